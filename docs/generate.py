"""Write the pages that follow from the code: docs/errors.md and docs/cli.md.

    python docs/generate.py

A test calls :func:`pages` and compares, so that they stay true.
"""

import inspect
import re
from enum import Enum
from pathlib import Path
from typing import Dict, Iterator, Tuple, Type

from spacy_elmo import errors

HERE = Path(__file__).parent


def _entries(catalogue: Type) -> Iterator[Tuple[str, str]]:
    for name in sorted(vars(catalogue)):
        if re.fullmatch(r"[EW]\d{3}", name):
            yield f"ELMO-{name}", getattr(catalogue, name).split("] ", 1)[1]


def errors_page() -> str:
    """All codes with their messages; what stands in braces is filled in."""
    lines = [
        "# Errors and warnings",
        "",
        "Made by `docs/generate.py` from `spacy_elmo/errors.py`. Errors are `ElmoError` (a",
        "`ValueError`), warnings `ElmoWarning`; both are in `spacy_elmo.errors`. Commands print an",
        "error's message and end with exit code 1.",
    ]
    for title, catalogue in (("Errors", errors.Errors), ("Warnings", errors.Warnings)):
        lines += ["", f"## {title}", "", "| code | message |", "| --- | --- |"]
        for code, text in _entries(catalogue):
            text = text.replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"| {code} | {text} |")
    return "\n".join(lines) + "\n"


def cli_page() -> str:
    """All commands with their arguments and options.

    Put together here and not by Typer, whose layout differs from version to version.
    """
    import typer

    from spacy_elmo.cli import elmo_cli

    group = typer.main.get_command(elmo_cli)
    lines = [
        "# Commands",
        "",
        "Made by `docs/generate.py`. All commands stand under `python -m spacy elmo`.",
    ]
    for name in sorted(group.commands):
        command = group.commands[name]
        lines += ["", f"## {name}", "", inspect.cleandoc(command.help or "").replace("<", "&lt;")]
        lines += ["", "| argument or option | meaning |", "| --- | --- |"]
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                label = getattr(parameter, "metavar", None) or parameter.name.upper()
            else:
                label = ", ".join(sorted(parameter.opts, key=len))
            meaning = (getattr(parameter, "help", "") or "").replace("|", "\\|")
            default = parameter.default
            if isinstance(default, Enum):
                # What is given on the command line, and not its name in Python.
                default = default.value
            if default not in (None, False, "") and not callable(default):
                if not isinstance(default, (list, tuple)) and "Ellipsis" not in repr(default):
                    meaning += f" (default: {default})"
            lines.append(f"| `{label}` | {meaning} |")
    return "\n".join(lines) + "\n"


def pages() -> Dict[str, str]:
    """Texts of the generated pages by file name."""
    return {"errors.md": errors_page(), "cli.md": cli_page()}


if __name__ == "__main__":
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")
        print(HERE / name)
