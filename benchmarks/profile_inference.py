"""Where the time of inference goes, by operation: a plain implementation and ours.

    python benchmarks/profile_inference.py TEXT [--shape original] [--batch 64] [--top 8]

One thread, so that shares are of processor time; PyTorch's profiler.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any, Callable, List

import torch
from inference_speed import PRECISIONS, make_weights, read
from plain_reference import PlainReference
from torch.profiler import ProfilerActivity, profile

from spacy_elmo.bilm.encoder import BiLM


def shares(run: Callable[[List[List[str]]], Any], batch: List[List[str]], top: int) -> str:
    """Operations with the largest shares of the time that operations take themselves."""
    run(batch)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        run(batch)
    events = sorted(recorded.key_averages(), key=lambda e: -e.self_cpu_time_total)
    total = sum(e.self_cpu_time_total for e in events)
    listed = [f"{e.key} {e.self_cpu_time_total / total:.0%}" for e in events[:top]]
    return f"{total / 1000:,.0f} ms: " + ", ".join(listed)


def main() -> None:
    """Print a line for each implementation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--shape", default="original")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--top", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    batch = read(options.text)[: options.batch]
    print(f"{options.shape}, {options.batch} sentences, {sum(map(len, batch)):,} words")
    with tempfile.TemporaryDirectory() as folder:
        weights = make_weights(options.shape, Path(folder))
        model = BiLM.load(weights, initial_state="zero")
        print(f"plain: {shares(PlainReference(model).embed, batch, options.top)}")
        for precision in PRECISIONS:
            engine = model.engine(precision)

            def run(sentences: List[List[str]], engine: Any = engine) -> None:
                engine.forget_words()
                engine.embed(sentences)

            print(f"{precision}: {shares(run, batch, options.top)}")


if __name__ == "__main__":
    main()
