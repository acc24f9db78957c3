"""Peak memory of a sentence of any length: 50,000 tokens that no segmenter cuts.

    python benchmarks/long_sentence.py TEXT [--shape original] [--tokens 50000]
        [--precision float32 ...] [--write]

Each length and precision runs in a process of its own, which makes a pipeline with the component
(random weights, if the shape is a preset's), puts the whole text into one doc that is one sentence
(`spacy-elmo.whole_doc_segmenter.v1`), and reads the peak of its resident memory when the vectors
are there. A short sentence first says what weights and libraries take. Linux only.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Tuple

from inference_speed import make_weights
from tasks_table import machine, write_section

from spacy_elmo.training.readers import read_documents

ROOT = Path(__file__).parents[1]
MARKERS = ("<!-- long_sentence:start -->", "<!-- long_sentence:end -->")
SHORT = 20

_RUN = """
import json, sys, time
import spacy
from spacy.tokens import Doc
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))
words = json.load(sys.stdin)
nlp = spacy.blank("en")
settings = {
    "weights": sys.argv[1],
    "model": {"precision": sys.argv[2]},
    "segmenter": {"@misc": "spacy-elmo.whole_doc_segmenter.v1"},
    "cache_mb": 0,
}
elmo = nlp.add_pipe("elmo", config=settings)
start = time.perf_counter()
doc = elmo(Doc(nlp.vocab, words))
seconds = time.perf_counter() - start
print(json.dumps([doc._.elmo_layers.shape, peak(), seconds]))
"""


def measure(weights: str, words: List[str], precision: str) -> Tuple[float, float, float]:
    """MiB of the layers, MiB of the peak, seconds."""
    command = [sys.executable, "-c", _RUN, weights, precision]
    done = subprocess.run(
        command, input=json.dumps(words), capture_output=True, text=True, check=True
    )
    (layers, tokens, width), peak, seconds = json.loads(done.stdout)
    assert tokens == len(words)
    return layers * tokens * width * 4 / 2**20, peak, seconds


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--shape", default="original")
    parser.add_argument("--tokens", type=int, default=50_000)
    parser.add_argument("--precision", nargs="+", default=["float32"])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results.md")
    options = parser.parse_args()
    source = itertools.chain.from_iterable(s.tokens for s in read_documents([options.text]))
    words = list(itertools.islice(source, options.tokens))
    lines = [
        f"| {options.shape} | tokens | the layers themselves, MiB | peak of the process, MiB |",
        "| --- | ---: | ---: | ---: |",
    ]
    with tempfile.TemporaryDirectory() as folder:
        weights = make_weights(options.shape, Path(folder))
        for precision in options.precision:
            for n in (SHORT, len(words)):
                layers, peak, seconds = measure(weights, words[:n], precision)
                lines.append(f"| {precision} | {n:,} | {layers:,.1f} | {peak:,.0f} |")
                print(lines[-1], f"{seconds:.1f} s", flush=True)
    if options.write:
        command = (
            f"python benchmarks/long_sentence.py {options.text.name} --shape {options.shape} "
            f"--precision {' '.join(options.precision)} --write"
        )
        text = f"### One long sentence\n\nWritten by `{command}`: {machine()}.\n\n" + "\n".join(
            lines
        )
        write_section(options.results, text, *MARKERS)


if __name__ == "__main__":
    main()
