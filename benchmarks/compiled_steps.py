"""What a compiled kernel would win: the steps of an LSTM layer in C, against the engine's.

    python benchmarks/compiled_steps.py [--shape en_mini] [--words 20] [--rounds 40]

An experiment: the package needs no compiler, this needs `cc`. The C function does for one sentence
all that `spacy_elmo.bilm.steps` does, in float32: the recurrent product, the gates, the clips, the
projection. Both run for all layers, both directions at once on two threads, on the same input, and
their results are compared. Milliseconds are medians of interleaved rounds.
"""

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, List

import torch
from inference_speed import make_weights
from torch import Tensor

from spacy_elmo.bilm.encoder import BiLM
from spacy_elmo.bilm.threads import run_both, shared_threads

SOURCE = r"""
#include <math.h>

static float dot(const float *a, const float *b, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static float clip(float x, float bound) {
    return x > bound ? bound : (x < -bound ? -bound : x);
}

void steps(float *gates, const float *recurrent, const float *projection, float *h, float *c,
           float *m, float *output, int n_steps, int C, int P, float cell_clip, float proj_clip) {
    for (int t = 0; t < n_steps; t++) {
        float *g = gates + (long)t * 4 * C;
        for (int k = 0; k < 4 * C; k++) g[k] += dot(recurrent + (long)k * P, h, P);
        for (int k = 0; k < 3 * C; k++) g[k] = 1.0f / (1.0f + expf(-g[k]));
        for (int k = 3 * C; k < 4 * C; k++) g[k] = 2.0f / (1.0f + expf(-2.0f * g[k])) - 1.0f;
        for (int k = 0; k < C; k++) c[k] = clip(g[C + k] * c[k] + g[k] * g[3 * C + k], cell_clip);
        for (int k = 0; k < C; k++) m[k] = 2.0f / (1.0f + expf(-2.0f * c[k])) - 1.0f;
        for (int k = 0; k < C; k++) m[k] *= g[2 * C + k];
        float *y = output + (long)t * P;
        for (int k = 0; k < P; k++) y[k] = clip(dot(projection + (long)k * C, m, C), proj_clip);
        h = y;
    }
}
"""


def build(folder: Path) -> Any:
    """The C function, compiled for this processor."""
    source, library = folder / "steps.c", folder / "steps.so"
    source.write_text(SOURCE)
    flags = ["-Ofast", "-march=native", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, str(source), "-o", str(library), "-lm"], check=True)
    function = ctypes.CDLL(str(library)).steps
    function.argtypes = [ctypes.c_void_p] * 7 + [ctypes.c_int] * 3 + [ctypes.c_float] * 2
    return function


def main() -> None:
    """Print both times and the difference of the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", default="en_mini")
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    n = options.words
    with tempfile.TemporaryDirectory() as name:
        kernel = build(Path(name))
        model = BiLM.load(make_weights(options.shape, Path(name)), initial_state="zero")
        config = model.config.lstm
        if not config.has_projection:
            parser.error("the kernel is for shapes with a projection")
        c, p = config.cell_dim, config.projection_dim
        cell_clip = config.cell_clip or 1e30
        proj_clip = config.proj_clip or 1e30
        generator = torch.Generator().manual_seed(0)
        gates = torch.randn(n, 4 * c, generator=generator)
        doubled = gates.clone()
        doubled[:, 3 * c :] *= 2.0
        ours = model.engine("float32")._directions
        weights = [[layer.weights for layer in direction] for direction in model.directions]
        weights = [
            [(w.recurrent_weight.contiguous(), w.projection_weight.contiguous()) for w in direction]
            for direction in weights
        ]

        def in_c(direction: int) -> Tensor:
            outputs = []
            for recurrent, projection in weights[direction]:
                g, output = gates.clone(), torch.empty(n, p)
                h, cell, m = torch.zeros(p), torch.zeros(c), torch.empty(c)
                tensors = (g, recurrent, projection, h, cell, m, output)
                pointers = [t.data_ptr() for t in tensors]
                kernel(*pointers, n, c, p, cell_clip, proj_clip)
                outputs.append(output)
            return torch.stack(outputs)

        def engine(direction: int) -> Tensor:
            outputs = []
            for layer in ours[direction]:
                output, _, _ = layer._steps(
                    doubled.clone(), [1] * n, torch.zeros(1, p), torch.zeros(1, c)
                )
                outputs.append(output)
            return torch.stack(outputs)

        times: List[List[float]] = [[], []]
        with torch.inference_mode(), shared_threads():
            both: List[Callable[[int], Tensor]] = [engine, in_c]
            for _ in range(options.rounds):
                for k, run in enumerate(both):
                    start = time.perf_counter()
                    run_both(lambda run=run: run(0), lambda run=run: run(1))
                    times[k].append(1000 * (time.perf_counter() - start))
            difference = max(float((engine(d) - in_c(d)).abs().max()) for d in (0, 1))
        for title, values in zip(("engine", "C"), times):
            print(f"{title:8}{statistics.median(values):8.2f} ms for {n} words")
        print(f"largest difference {difference:.1e}")
        if not difference < 1e-4:
            raise SystemExit("the results differ")


if __name__ == "__main__":
    main()
