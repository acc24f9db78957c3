"""The documents are true: pages are up to date, links lead somewhere, code runs, commands exist."""

import configparser
import importlib.metadata
import importlib.util
import inspect
import json
import re
from pathlib import Path
from typing import Any, Dict, List

import pytest

from .docs_runner import blocks_of, check_command, commands_of, prepare, run_page
from .util import ROOT

DOCS = ROOT / "docs"
DOCUMENTS = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
#: Pages that show what their code prints.
WITH_OUTPUT = ("README.md", "index.md", "tour.md", "migration.md", "architectures.md")


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date():
    for name, text in _module(DOCS / "generate.py").pages().items():
        found = (DOCS / name).read_text(encoding="utf-8")
        assert found == text, f"docs/{name} is out of date: python docs/generate.py"
        # A default as it is given on the command line, not as Python writes an enumeration.
        assert "Optimize." not in text
        assert not re.search(r"\(default: [A-Z]\w*\.\w", text)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_to_files(path):
    text = path.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text):
        if "://" in target:
            continue
        page = path.parent / target if target else path
        assert page.exists(), f"{path.name} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
            slugs = [re.sub(r"[^\w\- ]", "", t).strip().lower().replace(" ", "-") for t in titles]
            assert anchor in slugs, f"{path.name} links to {target}#{anchor}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_code_runs(path, tmp_path, monkeypatch):
    prepare(tmp_path)
    compared = run_page(path, tmp_path, monkeypatch)
    assert compared or path.name not in WITH_OUTPUT


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_commands_exist(path):
    n_checked = 0
    for block in blocks_of(path.read_text(encoding="utf-8")):
        for words in commands_of(block) if block.language == "bash" else ():
            if words[:3] == ["python", "-m", "spacy"]:
                check_command(words[3:], f"{path.name}:{block.line}")
                n_checked += 1
    assert n_checked or path.name not in ("README.md", "pretraining.md", "tour.md", "train-ner.md")


def test_commands_of_the_project_exist():
    import srsly

    project = srsly.read_yaml(ROOT / "project.yml")
    lines = [line for command in project["commands"] for line in command["script"]]
    for words in (re.sub(r"\$\{vars\.\w+\}", "1", line).split() for line in lines):
        if words[:3] == ["python", "-m", "spacy"]:
            check_command(words[3:], "project.yml")


def test_project_workflow_is_whole():
    """Every step of the workflow is a command, every variable that it uses is set."""
    import srsly

    project = srsly.read_yaml(ROOT / "project.yml")
    names = {command["name"] for command in project["commands"]}
    for steps in project["workflows"].values():
        assert set(steps) <= names
    used = set(re.findall(r"\$\{vars\.(\w+)\}", (ROOT / "project.yml").read_text("utf-8")))
    assert used == set(project["vars"])
    made = {path for command in project["commands"] for path in command.get("outputs", [])}
    for command in project["commands"]:
        for path in command.get("deps", []):
            assert "${" in path or path in made or (ROOT / path).exists()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_config_snippets_name_what_is_registered(path):
    from thinc.api import Config

    for block in blocks_of(path.read_text(encoding="utf-8")):
        if block.language == "ini":
            # Parsed as spaCy parses configs, section by section, so that parents may be absent.
            for section in re.split(r"^(?=\[)", block.code, flags=re.MULTILINE):
                if section.strip():
                    values = Config().from_str(re.sub(r"^\[.*\]", "[part]", section))["part"]
                    known = _known_settings(values)
                    for key in values:
                        assert key.startswith("@") or known is None or key in known, key


def _known_settings(values: Dict[str, Any]) -> Any:
    """Settings of what a section names, None if it names nothing; raises if it is not there."""
    import spacy

    from spacy_elmo.pipeline.factory import DEFAULT_CONFIG

    for key, name in values.items():
        if key.startswith("@"):
            return set(inspect.signature(getattr(spacy.registry, key[1:]).get(name)).parameters)
    return {"factory", *DEFAULT_CONFIG} if values.get("factory") == "elmo" else None


def _sections(text: str) -> Dict[str, str]:
    """Text of each section of the page on architectures by its title."""
    parts = re.split(r"^#{2,3} (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def _table(section: str) -> Dict[str, str]:
    """First and second column of a section's first table, code alone."""
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| .* \|$", section, flags=re.MULTILINE)
    return {name: value.strip("`") for name, value in rows}


def _entry_points() -> Dict[str, str]:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines: List[str] = []
    for group, text in config["options.entry_points"].items():
        if group not in ("spacy_factories", "spacy_cli"):
            lines += text.strip().splitlines()
    return {name.strip(): target.strip() for name, target in (s.split("=") for s in lines)}


def test_all_registered_names_are_described_with_their_arguments():
    sections = _sections((DOCS / "architectures.md").read_text(encoding="utf-8"))
    names = _entry_points()
    assert {title for title in sections if title.startswith("spacy-elmo.")} == set(names)
    for name, target in names.items():
        function = importlib.metadata.EntryPoint(name, target, "").load()
        parameters = inspect.signature(function).parameters.values()
        expected = {
            p.name: "required" if p.default is p.empty else json.dumps(p.default)
            for p in parameters
        }
        assert _table(sections[name]) == expected, name


def test_settings_of_the_component_are_described():
    from spacy_elmo.pipeline.factory import DEFAULT_CONFIG

    sections = _sections((DOCS / "architectures.md").read_text(encoding="utf-8"))
    section = sections["The component `elmo`"]
    found = _table(section.split("It sets")[0])
    assert set(found) == set(DEFAULT_CONFIG)
    for name, value in DEFAULT_CONFIG.items():
        if isinstance(value, dict):
            registered = next(v for k, v in value.items() if k.startswith("@"))
            assert found[name] in registered
        else:
            assert found[name] == json.dumps(value), name


def test_figures_are_up_to_date(tmp_path):
    """As to their texts: shapes of letters may differ between versions of matplotlib."""
    pytest.importorskip("matplotlib")
    module = _module(DOCS / "figures" / "draw.py")
    module.main(str(tmp_path))
    for name in module.FIGURES:
        texts = [
            re.findall(r"<!-- (.*?) -->", (folder / name).read_text("utf-8"), flags=re.S)
            for folder in (tmp_path, DOCS / "figures")
        ]
        assert texts[0] and texts[0] == texts[1], f"{name}: python docs/figures/draw.py"


def test_all_pages_are_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r": ([\w-]+\.md)$", text, flags=re.MULTILINE)) == sorted(
        path.name for path in DOCS.glob("*.md")
    )


def test_formulas_become_markup():
    pytest.importorskip("latex2mathml")
    hooks = _module(DOCS / "hooks.py")
    made = hooks.on_page_content('<p><span class="arithmatex">\\(s_l &lt; 1\\)</span></p>')
    assert made.startswith("<p><math") and "<msub>" in made and "arithmatex" not in made


def test_no_machine_paths_in_documents():
    for path in DOCUMENTS:
        assert str(Path.home()) + "/" not in path.read_text(encoding="utf-8")
