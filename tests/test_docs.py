"""The generated pages are up to date, links lead somewhere, commands in the documents exist."""

import importlib.util
import re
from pathlib import Path

import pytest

from .util import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _generator():
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date():
    for name, text in _generator().pages().items():
        found = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert found == text, f"docs/{name} is out of date: python docs/generate.py"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_to_files(path):
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_commands_in_documents_exist(path):
    import typer

    from spacy_elmo.cli import elmo_cli

    commands = typer.main.get_command(elmo_cli).commands
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^python -m spacy elmo (.+)$", text, flags=re.MULTILINE):
        name, *rest = line.split("#")[0].split()
        assert name in commands, f"{path.name}: {line}"
        known = {option for p in commands[name].params for option in p.opts}
        for word in rest:
            if word.startswith("-") and "." not in word:
                assert word in known, f"{path.name}: {line} has {word}"


def test_readme_example_prints_what_it_says(tmp_path, capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, output = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.S).groups()
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == output


def test_no_machine_paths_in_documents():
    for path in DOCUMENTS:
        assert str(Path.home()) + "/" not in path.read_text(encoding="utf-8")
