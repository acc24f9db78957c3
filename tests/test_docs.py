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


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "project.yml"], ids=lambda p: p.name)
def test_commands_in_documents_exist(path):
    import typer

    from spacy_elmo.cli import elmo_cli

    commands = typer.main.get_command(elmo_cli).commands
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^[\s\"-]*python -m spacy elmo ([^\"\n]+)", text, flags=re.MULTILINE)
    assert lines or path.name not in ("README.md", "project.yml", "pretraining.md")
    for line in lines:
        name, *rest = line.split("#")[0].split()
        assert name in commands, f"{path.name}: {line}"
        known = {option for p in commands[name].params for option in p.opts}
        for word in rest:
            if word.startswith("-") and "." not in word:
                assert word in known, f"{path.name}: {line} has {word}"


def test_project_workflow_is_whole():
    """Every step of the workflow is a command, every variable that it uses is set."""
    import srsly

    project = srsly.read_yaml(ROOT / "project.yml")
    names = {command["name"] for command in project["commands"]}
    for steps in project["workflows"].values():
        assert set(steps) <= names
    used = set(re.findall(r"\$\{vars\.(\w+)\}", (ROOT / "project.yml").read_text("utf-8")))
    assert used == set(project["vars"])
    for command in project["commands"]:
        for path in command.get("deps", []):
            assert "${" in path or (ROOT / path).exists()


def test_readme_examples_print_what_they_say(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.S)
    assert len(blocks) == 2
    for code, output in blocks:
        exec(compile(code, "README.md", "exec"), {})
        assert capsys.readouterr().out == output


def test_no_machine_paths_in_documents():
    for path in DOCUMENTS:
        assert str(Path.home()) + "/" not in path.read_text(encoding="utf-8")
