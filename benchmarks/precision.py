"""What a precision of the encoder costs: scores, vectors and speed of one trained pipeline.

    python benchmarks/precision.py [--ner PATH] [--tagger PATH] [--only ner tagger]
        [--steps 300] [--data FOLDER] [--weights NAME_OR_PATH] [--rounds 3] [--write]

A NER on WNUT-17 and a tagger on UD English EWT, trained in float32: those of `--ner` and
`--tagger`, or trained here for `--steps` steps on the configs in `configs/`. Each is loaded in
all precisions and scored on its test set; nothing is trained again. Errors are those of all layers
of the test set's words against float32. Speed is the whole pipeline's behind the tokenizer, with
no cache of sentences and an empty one of words.
"""

import argparse
import datetime
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np
import spacy
import torch
from spacy import util
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Corpus
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_loop
from tasks_data import TASKS, DataMissing, Task, prepare
from tasks_table import machine, row, write_section

from spacy_elmo.bilm.kernels import PRECISIONS
from spacy_elmo.errors import ElmoError
from spacy_elmo.pipeline import Elmo

ROOT = Path(__file__).resolve().parents[1]
HEADS = {"ner": TASKS["wnut17"], "tagger": TASKS["ewt"]}
#: Docs whose layers are compared at a time.
CHUNK = 256


class Errors(NamedTuple):
    """Difference of vectors from those in float32.

    largest (float): Largest absolute difference of a value.
    relative (float): Norm of the difference of all vectors over the norm of all vectors.
    worst (float): The same for the vector, of one word in one layer, where it is largest.
    """

    largest: float
    relative: float
    worst: float


def elmo_of(nlp: Language) -> Elmo:
    """The pipeline's one elmo component."""
    found = [component for _, component in nlp.pipeline if isinstance(component, Elmo)]
    if len(found) != 1:
        raise RuntimeError(f"{len(found)} 'elmo' components in the pipeline, expected one")
    return found[0]


def load(path: Path, precision: str) -> Language:
    """A saved pipeline in another precision, with no cache in the way.

    :raises RuntimeError: if it is not in that precision then.
    """
    name = elmo_of(spacy.load(path)).name
    settings = {"cache_mb": 0.0, "cache_path": None, "model": {"precision": precision}}
    nlp = spacy.load(path, config={"components": {name: settings}})
    found = elmo_of(nlp).model.shims[0].cfg["precision"]
    if found != precision:
        raise RuntimeError(f"{path} is loaded in {found}, not in {precision}")
    return nlp


def compare(pipelines: Dict[str, Language], docs_of: Dict[str, List[Doc]]) -> Dict[str, Errors]:
    """Errors of the component's layers in each precision, for the same docs.

    :raises RuntimeError: if two precisions have the same vectors or fingerprint, so that one of
        them was not in effect.
    """
    prints = {name: elmo_of(nlp).model.shims[0].fingerprint() for name, nlp in pipelines.items()}
    if len(set(prints.values())) < len(prints):
        raise RuntimeError(f"precisions that are the same: {prints}")
    reference, others = PRECISIONS[0], PRECISIONS[1:]
    largest, worst, squares = dict.fromkeys(others, 0.0), dict.fromkeys(others, 0.0), 0.0
    differences = dict.fromkeys(others, 0.0)
    for start in range(0, len(docs_of[reference]), CHUNK):
        layers = {}
        for name, nlp in pipelines.items():
            arrays = elmo_of(nlp).predict(docs_of[name][start : start + CHUNK])
            layers[name] = np.concatenate(arrays, axis=1).astype(np.float64)
        norms = (layers[reference] ** 2).sum(-1)
        squares += norms.sum()
        for name in others:
            difference = layers[name] - layers[reference]
            distances = (difference**2).sum(-1)
            differences[name] += distances.sum()
            largest[name] = max(largest[name], np.abs(difference).max(initial=0.0))
            # Whitespace has zeros for vectors, in any precision.
            ratios = distances[norms > 0] / norms[norms > 0]
            worst[name] = max(worst[name], math.sqrt(ratios.max(initial=0.0)))
    if not all(largest.values()):
        raise RuntimeError(f"vectors that do not differ from those in {reference}: {largest}")
    errors = {reference: Errors(0.0, 0.0, 0.0)}
    for name in others:
        relative = math.sqrt(differences[name] / squares)
        errors[name] = Errors(largest[name], relative, worst[name])
    return errors


def fresh(nlp: Language, gold: Sequence[Doc]) -> List[Doc]:
    """The texts alone, for one pipeline."""
    return [
        Doc(nlp.vocab, [t.text for t in doc], [bool(t.whitespace_) for t in doc]) for doc in gold
    ]


def predictions(docs: Sequence[Doc], head: str) -> List[str]:
    """What the head says of each token."""
    if head == "tagger":
        return [t.tag_ for doc in docs for t in doc]
    return [f"{t.ent_iob_}-{t.ent_type_}" for doc in docs for t in doc]


def speeds(
    pipelines: Dict[str, Language], gold: Sequence[Doc], rounds: int
) -> Dict[str, List[float]]:
    """Words/s of each round; the precisions take turns, after a round to warm up."""
    rates: Dict[str, List[float]] = {name: [] for name in pipelines}
    for number in range(rounds + 1):
        for name, nlp in pipelines.items():
            # Forgets word vectors; weights are laid out again by the first doc, untimed.
            elmo_of(nlp).bilm.reset_states()
            list(nlp.pipe([Doc(nlp.vocab, ["Warming", "up"])]))
            docs = fresh(nlp, gold)
            start = time.perf_counter()
            for _ in nlp.pipe(docs, batch_size=128):
                pass
            seconds = time.perf_counter() - start
            if number:
                rates[name].append(sum(map(len, docs)) / seconds)
    return rates


def evaluate(head: str, path: Path, test: Path, rounds: int) -> Dict[str, Any]:
    """One pipeline in all precisions on its test set."""
    pipelines = {precision: load(path, precision) for precision in PRECISIONS}
    gold = list(DocBin().from_disk(test).get_docs(spacy.blank("en").vocab))
    scores, said = {}, {}
    for name, nlp in pipelines.items():
        score = nlp.evaluate(list(Corpus(test)(nlp)))[HEADS[head].score]
        if score is None:
            raise RuntimeError(f"{path} gives no {HEADS[head].score}")
        scores[name] = float(score)
        said[name] = predictions(list(nlp.pipe(fresh(nlp, gold))), head)
    changed = {
        name: sum(a != b for a, b in zip(said[PRECISIONS[0]], of)) / len(of)
        for name, of in said.items()
    }
    errors = compare(pipelines, {name: fresh(nlp, gold) for name, nlp in pipelines.items()})
    weights = elmo_of(pipelines[PRECISIONS[0]]).bilm.state_dict().values()
    return {
        "head": head,
        # Then float16 rounds nothing, and errors are those of another order of summation.
        "exact": all(bool((w.half().float() == w).all()) for w in weights),
        "words": sum(map(len, gold)),
        "scores": scores,
        "changed": changed,
        "errors": errors,
        "speeds": speeds(pipelines, gold, rounds),
    }


def train(head: str, data: Dict[str, Path], args: argparse.Namespace, folder: Path) -> Path:
    """Train a pipeline in float32, as `spacy train` does; the best on dev."""
    print(f"training {head} for {args.steps} steps", flush=True)
    overrides: Dict[str, Any] = {
        "paths.train": str(data["train"]),
        "paths.dev": str(data["dev"]),
        "training.max_steps": args.steps,
        "training.patience": 0,
        "training.eval_frequency": math.ceil(args.steps / 2),
        "components.elmo.weights": args.weights,
    }
    config = util.load_config(
        ROOT / "configs" / f"{head}.cfg", overrides=overrides, interpolate=False
    )
    folder.mkdir(parents=True)
    train_loop(init_nlp(config), folder)
    return folder / "model-best"


def table(results: List[Dict[str, Any]]) -> str:
    """Markdown, a row for each pipeline and precision."""
    head = ("pipeline", "precision", "test", "difference", "predictions changed, %")
    head = (*head, "largest error", "relative error", "worst vector", "words/s")
    lines = [row(head), row(["---", "---", *["---:"] * 7])]
    for result in results:
        task: Task = HEADS[result["head"]]
        reference = result["scores"][PRECISIONS[0]]
        for name in PRECISIONS:
            score, errors = result["scores"][name], result["errors"][name]
            numbers = ["", "", "", "", ""]
            if name != PRECISIONS[0]:
                numbers = [
                    f"{100 * (score - reference):+.2f}",
                    f"{100 * result['changed'][name]:.2f}",
                    *(f"{error:.1e}" for error in errors),
                ]
            speed = f"{statistics.median(result['speeds'][name]):,.0f}"
            lines.append(row([task.title, name, f"{100 * score:.2f}", *numbers, speed]))
    return "\n".join(lines)


def section(results: List[Dict[str, Any]], args: argparse.Namespace) -> str:
    """Text of the section in docs/results.md."""
    words = ", ".join(f"{result['words']:,}" for result in results)
    return "\n\n".join(
        (
            "## Precision of the encoder",
            f"`{command(args)}`, {datetime.date.today().isoformat()}, on {machine()}; torch has "
            f"{torch.get_num_threads()} thread(s). Trained in float32, then scored on the test set "
            f"({words} words) in each precision. Medians of {args.rounds} rounds for the speed.",
            table(results),
            ("float16 holds these weights exactly. " if all(r["exact"] for r in results) else "")
            + "Errors are against float32, over all layers: the largest of a value, the norm of "
            "all differences over that of all vectors, and the same for the one vector where it is "
            "largest.",
        )
    )


def command(args: argparse.Namespace) -> str:
    """The command line, without paths of this machine."""
    words = ["python benchmarks/precision.py"]
    given = {"ner": args.ner, "tagger": args.tagger}
    words += [f"--{head} {path.name}" for head, path in given.items() if path and head in args.only]
    if args.only != list(HEADS):
        words.append(f"--only {' '.join(args.only)}")
    if not all(given[head] for head in args.only):
        words.append(f"--steps {args.steps} --weights {Path(args.weights).name}")
    return " ".join([*words, f"--rounds {args.rounds}"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ner", type=Path, metavar="PATH", help="a trained pipeline")
    parser.add_argument("--tagger", type=Path, metavar="PATH", help="a trained pipeline")
    parser.add_argument("--only", nargs="+", choices=list(HEADS), default=list(HEADS))
    parser.add_argument("--steps", type=int, default=300, help="of what is trained here")
    parser.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared" / "corpora" / "downstream"
    )
    parser.add_argument("--weights", default="en_mini", help="built-in name or path")
    parser.add_argument("--rounds", type=int, default=3, help="of the speed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="results as JSON as well")
    parser.add_argument("--write", action="store_true", help="put the section into --output")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "results.md")
    args = parser.parse_args()
    if min(args.steps, args.rounds) < 1:
        parser.error("--steps and --rounds are at least 1")
    given: Dict[str, Optional[Path]] = {"ner": args.ner, "tagger": args.tagger}
    results = []
    with tempfile.TemporaryDirectory(prefix="spacy-elmo-precision-") as scratch:
        try:
            for head in args.only:
                data = prepare(HEADS[head], args.data, Path(scratch) / "data")
                path = given[head] or train(head, data, args, Path(scratch) / head)
                results.append(evaluate(head, path, data["test"], args.rounds))
        except (DataMissing, ElmoError, RuntimeError, OSError) as error:
            sys.exit(str(error))
    text = section(results, args)
    print(text)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    if args.write:
        write_section(args.output, text, "<!-- precision:start -->", "<!-- precision:end -->")


if __name__ == "__main__":
    main()
