"""Speed and memory of inference: a plain implementation, ours at each precision, and peers.

    python benchmarks/inference_speed.py TEXT [--shapes original en_mini] [--rounds 5] [--long TEXT]
        [--write]

TEXT has a pre-tokenised sentence a line (.gz and .xz too). In one run, interleaved: words/s by
sentences in a batch, GFLOP/s of the LSTM's products alone and their ratio to the peak of a large
matrix product measured beside them, peak memory of the process (each in one of its own); then
end to end through spaCy (`pipeline_speed.py`): `nlp.pipe`, the latency of one sentence, the time
from `import spacy` to the first vector, cost by length of text, and growth of memory over many
docs. Shapes of the presets have random weights. `--long` takes more text for the cost by length.
`--write` puts the tables into docs/results.md and draws the figure.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import torch
from pipeline_speed import PRECISIONS, end_to_end, growth, linearity
from plain_reference import PlainReference
from tasks_table import machine, write_section

from spacy_elmo.bilm.config import PRESETS, BiLMConfig
from spacy_elmo.bilm.encoder import BiLM
from spacy_elmo.bilm.lm import init_bilm
from spacy_elmo.training.readers import read_documents

BATCHES = (1, 8, 64, 256)
#: Words that a measurement of the original shape goes through, by sentences in a batch.
WORDS = {1: 250, 8: 400, 64: 1400, 256: 5500}
ROOT = Path(__file__).parents[1]
MARKERS = ("<!-- inference_speed:start -->", "<!-- inference_speed:end -->")
Sentences = List[List[str]]


def read(path: Path) -> Sentences:
    """Sentences of a text."""
    return [list(sentence.tokens) for sentence in read_documents([path])]


def lstm_flops(config: BiLMConfig) -> float:
    """Floating-point operations of the LSTMs for a token, two for a product and its sum."""
    c, p, n = config.lstm.cell_dim, config.lstm.projection_dim, config.lstm.n_layers
    projection = p * c if config.lstm.has_projection else 0
    return 2.0 * 2 * n * (2 * 4 * c * p + projection)


def peak_gflops() -> float:
    """Of a large product in float32 with all threads."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        a @ b
        best = max(best, 2 * 2048**3 / (time.perf_counter() - start) / 1e9)
    return best


def make_weights(shape: str, folder: Path) -> str:
    """A built-in name as it is; for a preset, random weights written by our exporter."""
    if shape not in PRESETS:
        return shape
    path = folder / shape
    if not path.exists():
        model = BiLM(PRESETS[shape])
        init_bilm(model, model.config, torch.Generator().manual_seed(0))
        model.save(path)
    return str(path)


def cut(sentences: Sentences, batch: int, factor: int) -> List[Sentences]:
    """Batches in the order of the text, of about as many words as a measurement takes."""
    n_words = itertools.accumulate(map(len, sentences))
    n = sum(1 for total in n_words if total <= factor * WORDS[batch])
    chosen = sentences[: max(batch, n // batch * batch)]
    return [chosen[i : i + batch] for i in range(0, len(chosen), batch)]


def throughput(
    weights: str, sentences: Sentences, rounds: int, factor: int
) -> Tuple[List[Dict[str, Any]], float]:
    """Words/s of every implementation by batch size, and the machine's peak."""
    model = BiLM.load(weights, initial_state="zero")
    runs: Dict[str, Callable[[Sentences], Any]] = {"plain": PlainReference(model).embed}
    engines = {}
    for precision in PRECISIONS:
        engines[precision] = BiLM.load(weights, initial_state="zero").engine(precision)
        runs[precision] = engines[precision].embed
    check = sentences[:3]
    for ours, plain in zip(runs["float32"](check), runs["plain"](check)):
        if abs(ours - plain).max() > 1e-4:
            raise SystemExit("The plain implementation gives other numbers.")
    times: Dict[Tuple[str, int], List[float]] = defaultdict(list)
    words: Dict[Tuple[str, int], int] = {}
    tokens: Dict[Tuple[str, int], int] = {}
    peaks = []
    for _ in range(rounds):
        peaks.append(peak_gflops())
        for batch, (name, run) in itertools.product(BATCHES, runs.items()):
            batches = cut(sentences, batch, factor)
            if name == "plain" and batch == 1:
                batches = batches[: max(3, len(batches) // 3)]
            if name in engines:
                engines[name].forget_words()
            start = time.perf_counter()
            for part in batches:
                run(part)
            times[name, batch].append(time.perf_counter() - start)
            words[name, batch] = sum(len(s) for part in batches for s in part)
            # The plain one computes the two boundaries of each sentence as well.
            n_boundaries = 2 * sum(map(len, batches)) if name == "plain" else 0
            tokens[name, batch] = words[name, batch] + n_boundaries
    peak, flops = statistics.median(peaks), lstm_flops(model.config)
    rows = []
    for (name, batch), seconds in times.items():
        speed = words[name, batch] / statistics.median(seconds)
        gflops = speed * tokens[name, batch] / words[name, batch] * flops / 1e9
        rows.append(
            {
                "name": name,
                "batch": batch,
                "words/s": speed,
                "GFLOP/s": gflops,
                "ratio": gflops / peak,
                "spread": (max(seconds) - min(seconds)) / statistics.median(seconds),
            }
        )
    return rows, peak


_MEMORY = """
import json, sys
sys.path.insert(0, sys.argv[1])
def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(name))
from plain_reference import PlainReference
from spacy_elmo.bilm import BiLM
sentences = json.load(sys.stdin)
model = BiLM.load(sys.argv[2], initial_state="zero")
run = PlainReference(model).embed if sys.argv[3] == "plain" else model.engine(sys.argv[3]).embed
run(sentences)
print(status("VmHWM"))
"""


def peak_memory(weights: str, sentences: Sentences) -> Dict[str, float]:
    """MiB of a process that embeds one batch, by implementation (Linux only)."""
    result = {}
    for name in ("plain", *PRECISIONS):
        command = [sys.executable, "-c", _MEMORY, str(Path(__file__).parent), weights, name]
        text = json.dumps(sentences)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        result[name] = float(done.stdout)
    return result


def table(shape: str, rows: List[Dict[str, Any]], memory: Dict[str, float], peak: float) -> str:
    """Markdown of the throughput of one shape."""
    lines = [
        f"**{shape}** (peak of a large float32 product beside it: {peak:.0f} GFLOP/s)",
        "",
        "| | 1 | 8 | 64 | 256 | GFLOP/s at 64 | of the peak | peak memory, MiB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in ("plain", *PRECISIONS):
        mine = {r["batch"]: r for r in rows if r["name"] == name}
        speeds = " | ".join(f"{mine[b]['words/s']:,.0f}" for b in BATCHES)
        at = mine[64]
        title = "plain PyTorch" if name == "plain" else f"ours, {name}"
        lines.append(
            f"| {title} | {speeds} | {at['GFLOP/s']:.0f} | {at['ratio']:.0%} | "
            f"{memory.get(name, float('nan')):,.0f} |"
        )
    return "\n".join(lines)


def draw(found: Dict[str, List[Dict[str, Any]]], path: Path) -> None:
    """Words/s by batch size, a panel a shape."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    colours = {"plain": "#777777", "float32": "#0072B2", "float16": "#E69F00", "int8": "#009E73"}
    figure, axes = pyplot.subplots(1, len(found), figsize=(4.6 * len(found), 3.6), squeeze=False)
    for axis, (shape, rows) in zip(axes[0], found.items()):
        for name, colour in colours.items():
            mine = sorted((r["batch"], r["words/s"]) for r in rows if r["name"] == name)
            label = "plain PyTorch" if name == "plain" else name
            axis.plot(*zip(*mine), marker="o", color=colour, label=label)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(BATCHES, [str(b) for b in BATCHES])
        axis.set_title(shape)
        axis.set_xlabel("sentences in a batch")
        axis.grid(True, alpha=0.3, which="both")
    axes[0][0].set_ylabel("words/s")
    lines, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(lines, labels, frameon=False, loc="lower center", ncol=len(labels))
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--shapes", nargs="+", default=["original", "en_mini"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--long", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results.md")
    options = parser.parse_args()
    sentences = read(options.text)
    parts: List[str] = []
    found: Dict[str, List[Dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for shape in options.shapes:
            weights = make_weights(shape, Path(folder))
            factor = 1 if shape in ("original", "medium") else 4
            found[shape], peak = throughput(weights, sentences, options.rounds, factor)
            batch = cut(sentences, 64, 1)[0]
            parts.append(table(shape, found[shape], peak_memory(weights, batch), peak))
            print(parts[-1], flush=True)
            whole = end_to_end(weights, sentences, options.rounds, peers=shape == "en_mini")
            lines = [f"| End to end with {shape} | |", "| --- | ---: |"]
            lines += [f"| {k} | {_number(v)} |" for k, v in whole.items()]
            parts.append("\n".join(lines))
            print(parts[-1], flush=True)
    one, speeds = linearity("en_mini", read(options.long) if options.long else sentences)
    listed = ", ".join(f"{times}×: {speed:,.0f}" for times, speed in speeds.items())
    before, after = growth(options.text)
    parts.append(
        f"Words/s of `nlp.pipe` with en_mini by length of text (1× is {one} sentences, others each "
        f"time, after {one * 10} others): {listed}.\n\n"
        "20,000 docs of ten words, none twice, of words that were seen before: "
        f"{before:.1f} MiB in the first half, {after:.1f} in the second "
        f"({after / before - 1:+.2%})."
    )
    print(parts[-1], flush=True)
    if options.write:
        long = f" --long {options.long.name}" if options.long else ""
        command = (
            f"python benchmarks/inference_speed.py {options.text.name} --shapes "
            f"{' '.join(options.shapes)} --rounds {options.rounds}{long} --write"
        )
        figure = options.results.parent / "figures" / "inference_speed.png"
        draw(found, figure)
        text = "\n\n".join(
            [
                "## Speed and memory of inference",
                f"Written by `{command}`: words/s by sentences in a batch, median of "
                f"{options.rounds} interleaved rounds, sentences in the order of the text, all "
                f"words new to the caches at the start. {machine()}.",
                f"![Words per second by batch size](figures/{figure.name})",
                *parts,
            ]
        )
        write_section(options.results, text, *MARKERS)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


if __name__ == "__main__":
    main()
