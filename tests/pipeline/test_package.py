"""`spacy package`, installed by pip into a folder of its own, loaded in a fresh process."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np

from ..util import ROOT
from .conftest import copy_tree, train

LOAD = """
import json, sys
import spacy

nlp = spacy.load("en_river")
doc = nlp("She saw Paris .")
json.dump([[t.tag_ for t in doc], doc._.elmo.tolist()], sys.stdout)
"""


def run(*command, **env):
    result = subprocess.run(
        [sys.executable, *map(str, command)],
        env={**os.environ, **env},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_packaged_pipeline_installs_and_loads(make_nlp, weights, tmp_path):
    source = copy_tree(weights, tmp_path / "source")
    nlp = make_nlp("tagger", weights=source)
    train(nlp, 5)
    expected = nlp("She saw Paris .")
    nlp.to_disk(tmp_path / "nlp")
    shutil.rmtree(source)
    packages = tmp_path / "packages"
    packages.mkdir()
    options = ("--name", "river", "--version", "1.2.3", "--build", "none")
    run("-m", "spacy", "package", tmp_path / "nlp", packages, *options)
    shutil.rmtree(tmp_path / "nlp")
    folder = packages / "en_river-1.2.3"
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    assert any(line.startswith("spacy-elmo") for line in meta["requirements"])
    target = tmp_path / "installed"
    install = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    run("-m", "pip", "install", *install, "--target", target, folder)
    shutil.rmtree(packages)
    tags, vectors = json.loads(run("-c", LOAD, PYTHONPATH=str(target)))
    assert tags == [t.tag_ for t in expected]
    np.testing.assert_allclose(vectors, expected._.elmo, atol=1e-5)
