"""`spacy project run` in a copy of the repository."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import srsly
from weasel.cli.run import project_run
from weasel.util import load_project_config

from .util import ROOT

ARTEFACTS = ("corpus", "training", "metrics")


@pytest.fixture(scope="module")
def project(tmp_path_factory: Any) -> Path:
    """What a user has who fetched the repository."""
    path: Path = tmp_path_factory.mktemp("project")
    for name in ("assets", "configs", "scripts"):
        shutil.copytree(ROOT / name, path / name)
    shutil.copy(ROOT / "project.yml", path)
    return path


def run(project: Path, name: str, capfd: Any, **variables: Any) -> str:
    capfd.readouterr()
    overrides = {f"vars.{key}": value for key, value in variables.items()}
    dry = bool(variables.pop("dry", False))
    overrides.pop("vars.dry", None)
    project_run(project, name, overrides=overrides, dry=dry)
    return str(capfd.readouterr().out)


def test_all_from_data_to_table_and_again_from_cache(project: Path, capfd: Any) -> None:
    output = run(project, "all", capfd, max_steps=3)
    for name in ("ner", "ner_cnn", "tagger", "tagger_cnn"):
        assert (project / "training" / "ambiguous" / name / "model-best" / "config.cfg").exists()
    table = " ".join(output[output.rindex("report") :].split())
    for task in ("NER, F", "tagging, accuracy"):
        assert re.search(rf"{task} own embedding \d+\.\d", table)
        assert re.search(rf"{task} own embedding \+ ELMo \d+\.\d", table)
    for name in ("mixes.png", "ner-moved.png", "tagger-moved.png"):
        picture = project / "metrics" / "ambiguous" / name
        assert (
            picture.read_bytes().startswith(b"\x89PNG")
            and f"Figure: metrics/ambiguous/{name}" in output
        )
    before = sorted((p, p.stat().st_mtime_ns) for d in ARTEFACTS for p in (project / d).rglob("*"))
    again = run(project, "all", capfd, max_steps=3)
    for name in ("convert", "train-ner", "train-tagger", "evaluate"):
        assert f"Skipping '{name}': nothing changed" in again
    assert " ".join(again[again.rindex("report") :].split()) == table
    after = sorted((p, p.stat().st_mtime_ns) for d in ARTEFACTS for p in (project / d).rglob("*"))
    assert before == after


def test_a_changed_file_is_noticed(project: Path, capfd: Any) -> None:
    path = project / "assets" / "ambiguous" / "ambiguous-dev.iob"
    original = path.read_bytes()
    path.write_bytes(original.replace(b"laughed", b"coughed"))
    try:
        with pytest.raises(SystemExit):
            run(project, "convert", capfd)
    finally:
        path.write_bytes(original)
    output = "".join(capfd.readouterr().out.split())
    assert "[ELMO-E121]" in output and "ambiguous-dev.iob" in output


def test_paths_with_variables_stay_apart(project: Path) -> None:
    """Two variables one after the other in a list would become one path."""
    config = load_project_config(project)
    for command in config["commands"]:
        for path in command.get("deps", []) + command.get("outputs", []):
            assert ", " not in path, f"{command['name']}: {path}"


@pytest.mark.parametrize("name", ["all", "pretrain", "conll2003", "en_mini"])
def test_dry_run_of_every_workflow(name: str, project: Path, capfd: Any) -> None:
    output = run(project, name, capfd, dry=True, data="wnut17", source="elsewhere", max_steps=7)
    for step in srsly.read_yaml(project / "project.yml")["workflows"][name]:
        assert step in output
    if name in ("all", "pretrain"):
        assert "scripts/convert.py wnut17 elsewhere corpus/wnut17" in output
        assert "--max-steps 7" in output
    if name == "conll2003":
        assert "--weights assets/elmo/options.json --weights assets/elmo/weights.hdf5" in output
