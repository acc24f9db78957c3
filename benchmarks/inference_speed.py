"""Speed and memory of inference: a plain implementation, ours at each precision, and peers.

    python benchmarks/inference_speed.py TEXT [--shapes original en_mini] [--rounds 5] [--write]

TEXT has a pre-tokenised sentence a line (.gz and .xz too). In one run, interleaved: words/s by
sentences in a batch, GFLOP/s of the LSTM's products alone and their ratio to the peak of a large
matrix product measured beside them, peak memory of the process (each in one of its own); then
end to end through spaCy: `nlp.pipe`, the latency of one sentence, the time from `import spacy` to
the first vector, cost by length of text, and growth of memory over many docs. Shapes of the
presets have random weights. `--write` puts the tables into docs/results.md and draws the figure.
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
from plain_reference import PlainReference
from tasks_table import machine, write_section

from spacy_elmo.bilm.config import PRESETS, BiLMConfig
from spacy_elmo.bilm.encoder import BiLM
from spacy_elmo.bilm.lm import init_bilm
from spacy_elmo.training.readers import read_documents

BATCHES = (1, 8, 64, 256)
PRECISIONS = ("float32", "float16", "int8")
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
            # The two boundaries of a sentence are computed as well.
            tokens[name, batch] = words[name, batch] + 2 * sum(map(len, batches))
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


_STARTUP = """
import sys, time
import spacy
start = time.perf_counter()
nlp = spacy.blank("en")
nlp.add_pipe("elmo", config={"weights": sys.argv[1]})
nlp("The bank of the river.")[1]._.elmo
print(time.perf_counter() - start)
"""


def end_to_end(weights: str, sentences: Sentences, rounds: int) -> Dict[str, float]:
    """Through spaCy: words/s of `nlp.pipe`, ms of one sentence, seconds to the first vector."""
    import spacy

    texts = [" ".join(s) for s in sentences[:3000]]
    results: Dict[str, List[float]] = defaultdict(list)
    cnn = _cnn(texts)
    pipelines = {}
    for precision in PRECISIONS:
        nlp = spacy.blank("en")
        settings = {"weights": weights, "store": "vectors", "model": {"precision": precision}}
        nlp.add_pipe("elmo", config=settings)
        pipelines[f"nlp.pipe, {precision}"] = nlp
    pipelines["nlp.pipe, spaCy's CNN tok2vec"] = cnn
    transformer = _transformer(texts, BiLM.load(weights).width)
    if transformer is not None:
        pipelines["nlp.pipe, transformer of the same width"] = transformer
    twenty = " ".join(list(itertools.chain(*sentences))[:20])
    for nlp in pipelines.values():
        list(nlp.pipe(texts[:200]))
    for _ in range(rounds):
        for name, nlp in pipelines.items():
            chosen = texts if "transformer" not in name else texts[:500]
            # Nothing is served from the cache of outputs.
            _forget(nlp)
            start = time.perf_counter()
            n = sum(len(doc) for doc in nlp.pipe(chosen))
            results[name + ", words/s"].append(n / (time.perf_counter() - start))
            lasted = []
            for _ in range(15):
                _forget(nlp)
                start = time.perf_counter()
                nlp(twenty)
                lasted.append(1000 * (time.perf_counter() - start))
            latency = name.replace("nlp.pipe", "latency of 20 words")
            results[latency + ", ms"].append(statistics.median(lasted))
        command = [sys.executable, "-c", _STARTUP, weights]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        results["first vector after `import spacy`, s"].append(float(done.stdout))
    return {name: statistics.median(values) for name, values in results.items()}


def _forget(nlp: Any) -> None:
    """Empty the caches of outputs and of words."""
    if nlp.has_pipe("elmo"):
        shim = nlp.get_pipe("elmo").model.shims[0]
        shim.cache.clear()
        shim.bilm.engine(shim.cfg["precision"]).forget_words()


def _cnn(texts: List[str]) -> Any:
    import spacy

    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec")
    nlp.initialize()
    return nlp


def _transformer(texts: List[str], width: int) -> Any:
    """A small BERT with random weights through spacy-transformers, if that is installed."""
    try:
        import spacy
        import spacy_transformers  # noqa: F401
        from transformers import BertConfig, BertModel, BertTokenizerFast
    except ImportError:
        return None
    pieces = sorted({piece for text in texts for piece in text.lower().split()})
    letters = sorted({c for piece in pieces for c in piece})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    vocabulary += [f"##{c}" for c in letters] + [p for p in pieces if len(p) > 1][:20000]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
        BertTokenizerFast(str(path / "vocab.txt")).save_pretrained(folder)
        shape = BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=width,
            num_hidden_layers=6,
            num_attention_heads=max(1, width // 64),
            intermediate_size=4 * width,
        )
        BertModel(shape).save_pretrained(folder)
        nlp = spacy.blank("en")
        model = {
            "@architectures": "spacy-transformers.TransformerModel.v3",
            "name": folder,
            "get_spans": {"@span_getters": "spacy-transformers.strided_spans.v1"},
            "tokenizer_config": {"use_fast": True},
        }
        nlp.add_pipe("transformer", config={"model": model})
        nlp.initialize()
    return nlp


def linearity(weights: str, sentences: Sentences) -> Dict[int, float]:
    """Words/s of `nlp.pipe` for 1, 10 and 100 times a text of about 2,000 words."""
    import spacy

    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"weights": weights, "store": "none", "cache_mb": 0})
    one = [" ".join(s) for s in sentences[:100]]
    list(nlp.pipe(one))
    results: Dict[int, List[float]] = defaultdict(list)
    for times in (1, 10, 100, 1, 10, 1, 10, 1, 1):
        # Other text each time, as far as there is any, so that caches do not help.
        start = times * 7
        texts = [" ".join(s) for s in (sentences * 3)[start : start + 100 * times]]
        begin = time.perf_counter()
        n = sum(len(doc) for doc in nlp.pipe(texts))
        results[times].append(n / (time.perf_counter() - begin))
    return {times: statistics.median(values) for times, values in results.items()}


_GROWTH = """
import sys
import spacy
def rss():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))
nlp = spacy.blank("en")
nlp.add_pipe("elmo", config={"store": "vectors"})
words = "the a river bank lends money to people who sit on water and count it twice".split()
def texts(n):
    for i in range(n):
        yield " ".join(words[(i * k + k) % len(words)] for k in range(1, 11)) + f" {i % 977}."
def run(n):
    for doc in nlp.pipe(texts(n)):
        pass
    return rss()
run(4000)
readings = [run(2500) for _ in range(8)]
print(sum(readings[:4]) / 4, sum(readings[4:]) / 4)
"""


def growth() -> Tuple[float, float]:
    """MiB of a process in the first and in the second half of 20,000 short docs, on average.

    Single readings go up and down with what a batch just needed.
    """
    done = subprocess.run(
        [sys.executable, "-c", _GROWTH], capture_output=True, text=True, check=True
    )
    before, after = map(float, done.stdout.split())
    return before, after


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
    axes[0][0].legend(frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--shapes", nargs="+", default=["original", "en_mini"])
    parser.add_argument("--rounds", type=int, default=5)
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
            name = f"End to end with {shape}"
            whole = end_to_end(weights, sentences, options.rounds) if shape == "en_mini" else {}
            if not whole:
                whole = _latency(weights, sentences, options.rounds)
            lines = [f"| {name} | |", "| --- | ---: |"]
            lines += [f"| {k} | {_number(v)} |" for k, v in whole.items()]
            parts.append("\n".join(lines))
            print(parts[-1], flush=True)
    speeds = linearity("en_mini", sentences)
    listed = ", ".join(f"{times}×: {speed:,.0f}" for times, speed in speeds.items())
    before, after = growth()
    parts.append(
        f"Words/s of `nlp.pipe` by length of text (1× is 100 sentences): {listed}.\n\n"
        f"20,000 short docs after a warm-up: {before:.1f} MiB in the first half, {after:.1f} in "
        f"the second ({after / before - 1:+.2%})."
    )
    print(parts[-1], flush=True)
    if options.write:
        command = f"python benchmarks/inference_speed.py {options.text.name} --write"
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


def _latency(weights: str, sentences: Sentences, rounds: int) -> Dict[str, float]:
    """Milliseconds of one 20-word sentence by precision, without spaCy."""
    twenty = list(itertools.chain(*sentences))[: 20 * (3 * rounds + 1)]
    result = {}
    for precision in PRECISIONS:
        engine = BiLM.load(weights, initial_state="zero").engine(precision)
        engine.embed([twenty[:20]])
        lasted = []
        for start in range(20, len(twenty), 20):
            begin = time.perf_counter()
            engine.embed([twenty[start : start + 20]])
            lasted.append(1000 * (time.perf_counter() - begin))
        result[f"one sentence of 20 words, {precision}, ms"] = statistics.median(lasted)
    return result


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


if __name__ == "__main__":
    main()
