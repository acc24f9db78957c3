"""What a training step costs: ELMo's outputs computed, from a file, or from memory, and a CNN.

    python benchmarks/training_speed.py [FILE ...] [--words 8000] [--batch-words 200] [--rounds 5]
        [--weights NAME_OR_PATH] [--clock wall|cpu] [--write]

FILE is CoNLL-U (.conllu) or IOB, possibly .xz: entities train the NER of `configs/ner.cfg`, tags
the tagger of `configs/tagger.cfg`; without one, synthetic sentences train both. Each round trains
an epoch in each of the settings, one after another, in one process; medians over the rounds.

cnn     The same head on spaCy's CNN (`configs/*_cnn.cfg`).
head    ELMo's head alone, handed layers that lie ready: what the others can come down to.
warm    Second and later epochs: all sentences are in the cache's memory.
file    First epoch of a second run with `cache_path`: all are in the file, none in memory.
cold    First epoch: the encoder runs. Its own cache of words is empty.

numpy and thinc get one thread; torch, which only the encoder uses, keeps its own number.
"""

import argparse
import datetime
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import spacy
import torch
from spacy import util
from spacy.schemas import ConfigSchemaTraining
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Corpus, Example
from spacy.training.batchers import minibatch_by_words
from spacy.training.initialize import init_nlp
from tasks_data import read_docs
from tasks_table import machine, row, write_section

from spacy_elmo.errors import ElmoError
from spacy_elmo.layers.listener import state_of

ROOT = Path(__file__).resolve().parents[1]
CLOCKS: Dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
SETTINGS = {
    "cnn": "CNN",
    "head": "ELMo, head alone",
    "warm": "ELMo, later epochs, from memory",
    "file": "ELMo, second run, from file",
    "cold": "ELMo, first epoch, computed",
}


class Trained:
    """A pipeline that trains on the same batches in each epoch.

    config (Path): Its config.
    data (Path): Sentences in spaCy's binary format.
    overrides (Dict[str, Any]): Of the config.
    batch_words (int): Words of a batch.
    """

    def __init__(
        self, config: Path, data: Path, overrides: Dict[str, Any], batch_words: int
    ) -> None:
        paths = {"paths.train": str(data), "paths.dev": str(data)}
        loaded = util.load_config(config, overrides={**paths, **overrides}, interpolate=False)
        self.nlp = init_nlp(loaded)
        training = self.nlp.config.interpolate()["training"]
        resolved = spacy.registry.resolve(training, schema=ConfigSchemaTraining)
        self.optimizer, self.dropout = resolved["optimizer"], resolved["dropout"]
        examples = list(Corpus(data)(self.nlp))
        random.Random(0).shuffle(examples)
        self.batches = list(minibatch_by_words(examples, size=batch_words, tolerance=0.2))
        self.words = sum(len(eg.x) for eg in examples)
        self.sentences = len(examples)

    def epoch(self) -> None:
        """A step for each batch."""
        for batch in self.batches:
            self.nlp.update(batch, sgd=self.optimizer, drop=self.dropout)


class TrainedElmo(Trained):
    """The same on ELMo, whose cache and encoder can be brought to a known state."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.elmo = self.nlp.get_pipe("elmo")
        (self.head,) = [pipe for name, pipe in self.nlp.pipeline if name != "elmo"]
        self._ready: List[List[Any]] = []

    def forget(self) -> None:
        """Empty the cache and the encoder's own cache of words; weights stay laid out."""
        self.elmo.bilm.reset_states()
        self.elmo.predict([Doc(self.nlp.vocab, words=["Warming", "up", "the", "encoder"])])
        self.elmo.model.shims[0].cache.clear()

    def make_ready(self) -> None:
        """Keep the layers of all batches for `head_epoch`."""
        self._ready = [self.elmo.predict([eg.x for eg in batch]) for batch in self.batches]

    def head_epoch(self) -> None:
        """As `epoch`, but the layers lie ready: what `Language.update` does for the head."""
        for batch, layers in zip(self.batches, self._ready):
            examples = [Example(eg.x.copy(), eg.y) for eg in batch]
            for listener in self.elmo.listeners:
                state_of(listener).receive([eg.x for eg in examples], layers, None)
            self.head.update(examples, sgd=self.optimizer, drop=self.dropout, losses={})


def measure(args: argparse.Namespace, head: str, docs: List[Doc]) -> Dict[str, Any]:
    """Seconds of the epochs of each setting, by round.

    :raises RuntimeError: if the cache did not do what its setting is about.
    """
    clock = CLOCKS[args.clock]
    with tempfile.TemporaryDirectory(prefix="spacy-elmo-speed-") as folder:
        data = Path(folder) / "train.spacy"
        DocBin(docs=docs).to_disk(data)

        def config(suffix: str) -> Path:
            return ROOT / "configs" / f"{head}{suffix}.cfg"

        weights = {"components.elmo.weights": args.weights}
        on_file = {**weights, "components.elmo.cache_path": str(Path(folder) / "cache.sqlite")}
        cnn = Trained(config("_cnn"), data, {}, args.batch_words)
        memory = TrainedElmo(config(""), data, weights, args.batch_words)
        second = TrainedElmo(config(""), data, on_file, args.batch_words)
        steps: Dict[str, Tuple[Trained, Callable[[], None], Callable[[], None]]] = {
            # Cold before warm, which lives on what cold has left.
            "cold": (memory, memory.forget, memory.epoch),
            "warm": (memory, lambda: None, memory.epoch),
            "file": (second, second.forget, second.epoch),
            "head": (memory, memory.make_ready, memory.head_epoch),
            "cnn": (cnn, lambda: None, cnn.epoch),
        }
        second.epoch()  # Writes the file.
        seconds: Dict[str, List[float]] = {name: [] for name in steps}
        for number in range(args.rounds + 1):
            for name, (trained, prepare, epoch) in steps.items():
                prepare()
                before = _counters(trained)
                start = clock()
                epoch()
                elapsed = clock() - start
                _check(name, before, _counters(trained), trained.sentences)
                # The first round finds everything out for the first time.
                if number:
                    seconds[name].append(elapsed)
    return {
        "head": head,
        "steps": len(cnn.batches),
        "words": cnn.words,
        "sentences": cnn.sentences,
        "seconds": seconds,
    }


def _counters(trained: Trained) -> Tuple[int, int, int]:
    if not isinstance(trained, TrainedElmo):
        return 0, 0, 0
    cache = trained.elmo.cache
    return cache.hits, cache.file_hits, cache.misses


def _check(name: str, before: Tuple[int, ...], after: Tuple[int, ...], sentences: int) -> None:
    """Whether sentences came from where they should."""
    hits, file_hits, misses = (b - a for a, b in zip(before, after))
    good = {
        "cold": misses > 0 and file_hits == 0,
        "warm": hits >= sentences and misses == 0,
        "file": file_hits > 0 and misses == 0,
    }
    if not good.get(name, hits == file_hits == misses == 0):
        raise RuntimeError(
            f"setting '{name}': {hits} sentences from memory, {file_hits} from the file, "
            f"{misses} computed; does the cache (cache_mb) hold all of --words?"
        )


def table(results: List[Dict[str, Any]]) -> str:
    """Markdown, a row for each head and setting."""
    head = ("head", "tok2vec", "steps/s", "words/s", "slowest to fastest", "time, head alone = 1")
    lines = [row((*head, "time, CNN = 1")), row(["---", "---", *["---:"] * 5])]
    for result in results:
        medians = {name: statistics.median(of) for name, of in result["seconds"].items()}
        for name, title in SETTINGS.items():
            rates = sorted(result["words"] / s for s in result["seconds"][name])
            lines.append(
                row(
                    [
                        result["head"],
                        title,
                        f"{result['steps'] / medians[name]:.1f}",
                        f"{result['words'] / medians[name]:,.0f}",
                        f"{rates[0]:,.0f} to {rates[-1]:,.0f}",
                        f"{medians[name] / medians['head']:.2f}",
                        f"{medians[name] / medians['cnn']:.2f}",
                    ]
                )
            )
    return "\n".join(lines)


def section(results: List[Dict[str, Any]], args: argparse.Namespace) -> str:
    """Text of the section in docs/results.md."""
    sizes = "; ".join(
        f"{r['head']}: {r['sentences']:,} sentences, {r['words']:,} words, {r['steps']} steps"
        for r in results
    )
    clock = "" if args.clock == "wall" else " Processor time, not wall time."
    return "\n\n".join(
        (
            "## Speed of training",
            f"`{command(args)}`, {datetime.date.today().isoformat()}, on {machine()}; one thread, "
            f"torch {torch.get_num_threads()}. Frozen encoder; an epoch is {sizes}. Medians of "
            f"{args.rounds} epochs.{clock}",
            table(results),
            '"Head alone" gets layers that lie ready: its own embedding, the mix of the layers, '
            "the layer that joins them, and the task. What later epochs cost above it is the "
            "cache and the component.",
        )
    )


def command(args: argparse.Namespace) -> str:
    """The command line, without paths of this machine."""
    words = ["python benchmarks/training_speed.py", *(path.name for path in args.files)]
    words.append(f"--words {args.words} --batch-words {args.batch_words} --rounds {args.rounds}")
    words.append(f"--weights {Path(args.weights).name}")
    return " ".join([*words, *(["--clock cpu"] if args.clock == "cpu" else [])])


def first_words(docs: List[Doc], words: int) -> List[Doc]:
    """Docs from the start, of so many words."""
    taken, n = [], 0
    for doc in docs:
        if n >= words:
            break
        taken.append(doc)
        n += len(doc)
    return taken


def head_of(docs: List[Doc]) -> Optional[str]:
    """The head that these annotations train."""
    if any(doc.ents for doc in docs):
        return "ner"
    # The converter of IOB gives all words the same tag.
    return "tagger" if len({token.tag for doc in docs for token in doc}) > 1 else None


def synthetic(words: int) -> List[Doc]:
    """Sentences of 5 to 35 words by a Zipf-like law, each word with its tag, some with entities."""
    generator = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    spelled = ("".join(generator.choices(letters, k=1 + n % 11)) for n in range(5000))
    # The order of the words is the order of their frequency.
    vocabulary = list(dict.fromkeys(spelled))
    weights = [1.0 / (rank + 3) for rank in range(len(vocabulary))]
    tags = [f"T{generator.randrange(40)}" for _ in vocabulary]
    nlp, docs, n = spacy.blank("en"), [], 0
    while n < words:
        drawn = generator.choices(range(len(vocabulary)), weights, k=generator.randint(5, 35))
        doc = Doc(nlp.vocab, [vocabulary[i] for i in drawn], tags=[tags[i] for i in drawn])
        doc.ents = [Span(doc, k, k + 1, f"E{i % 5}") for k, i in enumerate(drawn) if i % 17 == 0]
        docs.append(doc)
        n += len(doc)
    return docs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--words", type=int, default=8000, help="of an epoch, of each file")
    parser.add_argument("--batch-words", type=int, default=200, help="of a step")
    parser.add_argument("--rounds", type=int, default=5, help="epochs in each setting")
    parser.add_argument("--weights", default="en_mini", help="built-in name or path")
    parser.add_argument(
        "--clock", choices=list(CLOCKS), default="wall", help="cpu: on a machine that is busy"
    )
    parser.add_argument("--write", action="store_true", help="put the section into --output")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "results.md")
    args = parser.parse_args()
    if min(args.words, args.batch_words, args.rounds) < 1:
        parser.error("--words, --batch-words and --rounds are at least 1")
    work: List[Tuple[str, List[Doc]]] = []
    for path in args.files:
        if not path.exists():
            parser.error(f"no such file: {path}")
        docs = list(read_docs(path))
        head = head_of(docs)
        if head is None:
            parser.error(f"{path} has neither entities nor tags")
        work.append((head, first_words(docs, args.words)))
    if not work:
        work = [(head, synthetic(args.words)) for head in ("ner", "tagger")]
    try:
        results = [measure(args, head, docs) for head, docs in work]
    except (ElmoError, RuntimeError) as error:
        sys.exit(str(error))
    text = section(results, args)
    print(text)
    if args.write:
        name = "training_speed"
        write_section(args.output, text, f"<!-- {name}:start -->", f"<!-- {name}:end -->")


if __name__ == "__main__":
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        # It is read when numpy is imported, which it is by now.
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    main()
