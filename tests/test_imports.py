"""What importing a part of the package loads, and which parts may know which."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List, Set, Tuple

import pytest

from .util import ROOT

PACKAGE = "spacy_elmo"

#: Parts of the package that each part may import; None for no limit.
ALLOWED = {
    "__init__": set(),
    "errors": set(),
    "lock": set(),
    "bilm": {"errors", "bilm"},
    "models": set(),
    "training": {"errors", "lock", "bilm", "training"},
    "compat": {"errors", "bilm", "compat"},
    "layers": {"errors", "bilm", "layers"},
    "pipeline": {"errors", "bilm", "layers", "pipeline"},
    "embedding": {"errors", "lock", "bilm", "training", "layers", "embedding"},
    "analysis": {"errors", "bilm", "training", "layers", "pipeline", "analysis"},
    "cli": None,
}
#: Packages that no module of a part may import, not even inside a function.
FOREIGN = {
    "errors": {"torch", "numpy", "spacy", "thinc", "h5py"},
    "lock": {"torch", "numpy", "spacy", "thinc", "h5py"},
    "bilm": {"spacy", "thinc", "matplotlib"},
    "compat": {"spacy", "thinc", "h5py", "allennlp"},
    "training": {"thinc"},
}


def loaded_after(statement: str) -> Set[str]:
    """Top-level modules of a fresh interpreter after a statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in json.loads(result.stdout.splitlines()[-1])}


@pytest.mark.parametrize(
    "statement, absent",
    [
        (f"import {PACKAGE}", {"torch", "numpy", "h5py", "spacy", "thinc", "safetensors"}),
        # All at once, since starting torch takes a while: what one loads all have loaded.
        (
            f"import {PACKAGE}.bilm, {PACKAGE}.bilm.scoring, {PACKAGE}.compat.allennlp\n"
            f"import {PACKAGE}.training.pretrain, {PACKAGE}.training.loop",
            {"spacy", "thinc", "h5py", "matplotlib"},
        ),
    ],
)
def test_heavy_packages_are_not_loaded(statement: str, absent: Set[str]) -> None:
    loaded = loaded_after(statement)
    assert PACKAGE in loaded
    assert not loaded & absent


def modules() -> Iterator[Tuple[str, Path]]:
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        if path.name == "__main__.py":
            continue  # A command: it may use everything, and nothing imports it.
        yield path.relative_to(ROOT / PACKAGE).parts[0].removesuffix(".py"), path


def imported(path: Path) -> List[str]:
    """Absolute names of all modules that a module imports, wherever in the file."""
    package = path.relative_to(ROOT).parts[:-1]
    names: List[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            # `from .. import x`: x may be a part.
            names += [".".join([*base, alias.name]) for alias in node.names]
    return names


def test_parts_import_only_what_they_stand_on() -> None:
    problems = []
    seen = set()
    for part, path in modules():
        seen.add(part)
        assert part in ALLOWED, f"{part} is new: say here what it may import"
        allowed = ALLOWED[part]
        for name in imported(path):
            first, _, rest = name.partition(".")
            if first == PACKAGE and allowed is not None:
                other = rest.partition(".")[0]
                if other.startswith("__") or other in allowed:
                    continue
                problems.append(f"{path.relative_to(ROOT)} imports {name}")
            elif first in FOREIGN.get(part, ()):
                problems.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not problems
    assert {"errors", "bilm", "training", "compat"} <= seen


def test_the_check_sees_relative_imports() -> None:
    """Or the test above would be satisfied with anything."""
    names = imported(ROOT / PACKAGE / "bilm" / "io" / "weights.py")
    assert f"{PACKAGE}.errors.ElmoError" in names and f"{PACKAGE}.bilm.config.BiLMConfig" in names
