"""Memory of a sentence that no segmenter cuts, in a process of its own: the peak is of a process.

The peak with the shape of the published models is measured by `benchmarks/long_sentence.py`.
"""

import json
import subprocess
import sys

import pytest
import torch

from spacy_elmo.bilm import BiLM, BiLMConfig, CharCNNConfig, LSTMConfig

from ..util import ROOT

SCRIPT = """
import json, sys
import spacy
from spacy.tokens import Doc

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))

nlp = spacy.blank("en")
whole = {"@misc": "spacy-elmo.whole_doc_segmenter.v1"}
nlp.add_pipe("elmo", config={"weights": sys.argv[1], "segmenter": whole})
nlp(Doc(nlp.vocab, words=["word"] * 20))
long = Doc(nlp.vocab, words=[f"word{i % 50}" for i in range(50_000)])
before = peak()
layers = nlp(long)._.elmo_layers
print(json.dumps([layers.shape, layers.nbytes / 2**20, peak() - before]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
def test_one_sentence_of_50000_tokens_needs_little_more_than_its_vectors(tmp_path):
    # A wide cell behind a narrow output: the gates of all steps together would be 195 MiB for each
    # direction, the vectors are 12.
    config = BiLMConfig(CharCNNConfig(((1, 4), (2, 8)), embedding_dim=4), LSTMConfig(256, 16, 1))
    torch.manual_seed(0)
    BiLM(config).save(tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "model")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    shape, vectors, growth = json.loads(done.stdout)
    assert shape == [2, 50_000, 32] and vectors > 12
    assert growth < 100
