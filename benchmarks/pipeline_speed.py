"""The part of `inference_speed.py` that goes through spaCy: speed, latency, growth of memory."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import spacy

from spacy_elmo.bilm.encoder import BiLM

PRECISIONS = ("float32", "float16", "int8")
Sentences = List[List[str]]
#: Words that `nlp.pipe` is timed on: of a small model, of a large one, of a transformer.
SMALL, LARGE, TRANSFORMER = 60_000, 4_000, 10_000
#: Sentences that the cost by length of text is measured on, at most.
LONGEST = 25_000
#: Sentences of just so many words whose latency is measured.
N_WORDS, N_SENTENCES = 20, 15

_STARTUP = """
import sys, time
import spacy
start = time.perf_counter()
nlp = spacy.blank("en")
nlp.add_pipe("elmo", config={"weights": sys.argv[1]})
nlp("The bank of the river.")[1]._.elmo
print(time.perf_counter() - start)
"""


def end_to_end(weights: str, sentences: Sentences, rounds: int, peers: bool) -> Dict[str, float]:
    """Words/s of `nlp.pipe`, ms of one sentence and, with peers, seconds to the first vector.

    weights (str): Built-in name or path.
    sentences (Sentences): Text.
    rounds (int): Interleaved rounds, of which the median is taken.
    peers (bool): spaCy's CNN and, if it is installed, a transformer beside it.
    """
    results: Dict[str, List[float]] = defaultdict(list)
    pipelines: Dict[str, Any] = {}
    for precision in PRECISIONS:
        nlp = spacy.blank("en")
        settings = {"weights": weights, "store": "vectors", "model": {"precision": precision}}
        nlp.add_pipe("elmo", config=settings)
        pipelines[f"nlp.pipe, {precision}"] = nlp
    texts = _texts(sentences, SMALL)
    if peers:
        pipelines["nlp.pipe, spaCy's CNN tok2vec"] = _cnn()
        width = BiLM.load(weights).width
        transformer = _transformer(texts, width)
        if transformer is not None:
            pipelines[f"nlp.pipe, transformer of 6 layers, {width} wide"] = transformer
    one_sentence = [text for text in texts if _is_one(pipelines["nlp.pipe, float32"], text)]
    for nlp in pipelines.values():
        list(nlp.pipe(one_sentence[:N_SENTENCES]))
    for _ in range(rounds):
        for name, nlp in pipelines.items():
            size = TRANSFORMER if "transformer" in name else SMALL if peers else LARGE
            _forget(nlp)
            start = time.perf_counter()
            n = sum(len(doc) for doc in nlp.pipe(_texts(sentences, size)))
            results[name + ", words/s"].append(n / (time.perf_counter() - start))
            latency = name.replace("nlp.pipe", f"one sentence of {N_WORDS} words")
            for known in (False, True):
                lasted = []
                for text in one_sentence[:N_SENTENCES]:
                    _forget(nlp, keep_words=known)
                    start = time.perf_counter()
                    nlp(text)
                    lasted.append(1000 * (time.perf_counter() - start))
                title = latency
                if nlp.has_pipe("elmo"):  # Only our word cache makes a difference between the two.
                    title += ", words seen before" if known else ", new words"
                results[f"{title}, ms"].append(statistics.median(lasted))
        if peers:
            command = [sys.executable, "-c", _STARTUP, weights]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results["first vector after `import spacy`, s"].append(float(done.stdout))
    return {name: statistics.median(values) for name, values in results.items()}


def _texts(sentences: Sentences, n_words: int) -> List[str]:
    """Texts of the first sentences, of about so many words."""
    texts, total = [], 0
    for sentence in sentences:
        if total >= n_words:
            break
        texts.append(" ".join(sentence))
        total += len(sentence)
    return texts


def _is_one(nlp: Any, text: str) -> bool:
    """Whether a text is one sentence of the wanted length for the component."""
    doc = nlp.make_doc(text)
    (segments,) = nlp.get_pipe("elmo").model.attrs["segmenter"].function([doc])
    return len(doc) == N_WORDS and len(segments) == 1


def _forget(nlp: Any, keep_words: bool = False) -> None:
    """Empty the cache of outputs, and that of words."""
    if nlp.has_pipe("elmo"):
        shim = nlp.get_pipe("elmo").model.shims[0]
        shim.cache.clear()
        if not keep_words:
            shim.bilm.engine(shim.cfg["precision"]).forget_words()


def _cnn() -> Any:
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec")
    nlp.initialize()
    return nlp


def _transformer(texts: List[str], width: int) -> Any:
    """A small BERT with random weights through spacy-transformers, if that is installed."""
    try:
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


def linearity(weights: str, sentences: Sentences) -> Tuple[int, Dict[int, float]]:
    """Words/s of `nlp.pipe` for 1, 10 and 100 times as much text, no sentence of which comes twice.

    Other text goes first, so that no run has more words that are new to the word cache.

    returns (Tuple[int, Dict[int, float]]): Sentences of the shortest text; words/s by factor.
    """
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"weights": weights, "store": "none", "cache_mb": 0})
    sentences = sentences[:LONGEST]
    factors = (1, 10, 1, 100, 1, 10, 1, 10, 1)
    one = len(sentences) // (sum(factors) + 10)
    parts = _parts(sentences, one)
    list(nlp.pipe(next(parts) for _ in range(10 * one)))
    results: Dict[int, List[float]] = defaultdict(list)
    for times in factors:
        texts = [next(parts) for _ in range(times * one)]
        begin = time.perf_counter()
        n = sum(len(doc) for doc in nlp.pipe(texts))
        results[times].append(n / (time.perf_counter() - begin))
    return one, {times: statistics.median(results[times]) for times in (1, 10, 100)}


def _parts(sentences: Sentences, one: int) -> Iterator[str]:
    # Documents follow each other in the text; going through it in strides mixes them.
    for start in range(one):
        for sentence in sentences[start::one]:
            yield " ".join(sentence)


_GROWTH = """
import sys
import spacy
from spacy_elmo.training.readers import read_documents
def rss():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))
words = [word for s in read_documents([sys.argv[1]]) for word in s.tokens]
def texts():
    # The first round shows all words; the others cut the same text elsewhere.
    for offset in range(10):
        for start in range(offset, len(words) - 9, 10):
            yield " ".join(words[start : start + 10])
nlp = spacy.blank("en")
nlp.add_pipe("elmo", config={"store": "vectors"})
source = texts()
def run(n):
    for doc in nlp.pipe(next(source) for _ in range(n)):
        pass
    return rss()
run(len(words) // 10)
readings = [run(2500) for _ in range(8)]
print(sum(readings[:4]) / 4, sum(readings[4:]) / 4)
"""


def growth(text: Path) -> Tuple[float, float]:
    """MiB of a process in the first and in the second half of 20,000 short docs, on average.

    Single readings go up and down with what a batch just needed.
    """
    command = [sys.executable, "-c", _GROWTH, str(text)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    return before, after
