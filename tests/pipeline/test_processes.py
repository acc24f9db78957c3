"""`nlp.pipe(n_process=2)`, in a process of its own with a time limit: a fork can hang for ever."""

import os
import subprocess
import sys

import pytest

from ..util import ROOT

SCRIPT = """
import multiprocessing, sys
import numpy as np
import spacy, torch

if __name__ == "__main__":
    method, path = sys.argv[1:]
    multiprocessing.set_start_method(method)
    nlp = spacy.load(path)
    text = "She sat by the bank of the river with her old friends . " * 4
    # Torch has computed here, with more than one thread.
    torch.set_num_threads(2)
    torch.randn(400, 400) @ torch.randn(400, 400)
    expected = nlp(text)
    docs = list(nlp.pipe([text, "", text, "one", text], n_process=2, batch_size=1))
    for i in (0, 2, 4):
        np.testing.assert_allclose(docs[i]._.elmo, expected._.elmo, atol=1e-5)
        assert [t.tag_ for t in docs[i]] == [t.tag_ for t in expected]
    assert docs[1]._.elmo.shape == (0, 256) and docs[3]._.elmo.shape == (1, 256)
    # The parent's setting is as it was, and it goes on.
    assert torch.get_num_threads() == 2
    nlp("And again .")
    print("done")
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_several_processes(make_nlp, tmp_path, method):
    from .conftest import train

    if method == "fork" and not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    nlp = make_nlp("tagger", weights="en_mini", cache_mb=0)
    train(nlp, 2)
    nlp.to_disk(tmp_path / "nlp")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), method, str(tmp_path / "nlp")],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("done\n")


GPU_SCRIPT = """
import multiprocessing, sys
import spacy

if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    nlp = spacy.load(sys.argv[1])
    # Any device but the CPU will do.
    nlp.get_pipe("elmo").bilm.to("meta")
    list(nlp.pipe(["one", "two"], n_process=2))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_weights_on_a_gpu_are_refused_in_forked_processes(make_nlp, tmp_path):
    make_nlp().to_disk(tmp_path / "nlp")
    (tmp_path / "script.py").write_text(GPU_SCRIPT, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "nlp")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode != 0
    assert "[ELMO-E182] The weights are on meta" in result.stderr
