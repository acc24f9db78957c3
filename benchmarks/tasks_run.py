"""One run of `tasks.py` in a process of its own: train, choose on dev, score on test, time.

    python benchmarks/tasks_run.py '{"kind": "train", ...}' RESULT.json

Training is `spacy train`'s: `init_nlp` and `spacy.training.loop.train` on a config and overrides.
"""

import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import spacy
from spacy import util
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Corpus
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from tasks_table import WITH_ELMO

from spacy_elmo.pipeline.mixes import pipeline_mixes

#: Above what the largest of the sets takes: about 2.6 kB a token of a model 256 wide.
CACHE_MB = 4096.0
SPEED_ROUNDS = 3


def encode(settings: Dict[str, Any]) -> Dict[str, Any]:
    """Fill the cache's file with the sentences of train and dev, as the first epoch would."""
    nlp = spacy.blank("en")
    elmo = nlp.add_pipe(
        "elmo",
        config={
            "weights": settings["weights"],
            # Nothing comes twice here, so the file alone is enough.
            "cache_mb": 0.0,
            "cache_path": settings["cache"],
        },
    )
    docs = [doc for part in ("train", "dev") for doc in _docs(nlp, settings["data"][part])]
    # Loads the weights, which is not to be timed.
    elmo.fill_cache(docs[:1])
    start = time.perf_counter()
    elmo.fill_cache(docs)
    return {"seconds": time.perf_counter() - start, "words": sum(map(len, docs))}


def train_and_score(settings: Dict[str, Any]) -> Dict[str, Any]:
    """Train with one seed; the checkpoint that was best on dev is scored on test."""
    has_elmo = settings["encoder"] in WITH_ELMO
    folder = Path(settings["output"])
    folder.mkdir(parents=True, exist_ok=True)
    steps = settings["steps"]
    overrides: Dict[str, Any] = {
        "paths.train": settings["data"]["train"],
        "paths.dev": settings["data"]["dev"],
        "system.seed": settings["seed"],
        "training.max_steps": steps,
        "training.max_epochs": 0,
        # All of the budget, whatever dev says on the way.
        "training.patience": 0,
        "training.eval_frequency": max(1, steps // settings["evaluations"]),
    }
    if has_elmo:
        overrides["components.elmo.weights"] = settings["weights"]
        overrides["components.elmo.cache_path"] = settings["cache"]
        overrides["components.elmo.cache_mb"] = CACHE_MB
    if settings.get("vectors"):
        embed = f"components.{settings['head']}.model.tok2vec.embed"
        overrides["paths.vectors"] = settings["vectors"]
        overrides[f"{embed}.include_static_vectors"] = True
    start, cpu_start = time.perf_counter(), time.process_time()
    config = util.load_config(settings["config"], overrides=overrides, interpolate=False)
    nlp = init_nlp(config)
    nlp, _ = train(nlp, folder)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cache = nlp.get_pipe("elmo").cache if has_elmo else None

    # Test sentences must not come out of a cache when the speed is measured.
    off = {"components": {"elmo": {"cache_mb": 0.0, "cache_path": None}}} if has_elmo else {}
    best = spacy.load(folder / "model-best", config=off)
    examples = list(Corpus(settings["data"]["test"])(best))
    scores = best.evaluate(examples)
    name = settings["score"]
    return {
        "test": float(scores[name]),
        "test_scores": {
            key: float(scores[key]) for key in ("ents_p", "ents_r", "tag_acc") if scores.get(key)
        },
        "dev": float(best.meta["performance"][name]),
        "train_seconds": seconds,
        "train_cpu_seconds": cpu,
        "peak_bytes": peak,
        "words_per_second": _speed(best, settings["data"]["test"]),
        "mix": [[*mix.weights, mix.gamma] for mix in pipeline_mixes(best)],
        "cache_misses": cache.misses if cache else None,
        "cache_bytes": cache.n_bytes if cache else None,
    }


def _docs(nlp: Language, path: str) -> List[Doc]:
    gold = DocBin().from_disk(path).get_docs(nlp.vocab)
    return [
        Doc(nlp.vocab, [t.text for t in doc], [bool(t.whitespace_) for t in doc]) for doc in gold
    ]


def _speed(nlp: Language, path: str) -> float:
    """Words/s of the pipeline behind the tokenizer; median, after a first round to warm up.

    Each round finds the biLM's word cache empty.
    """
    rates = []
    for _ in range(SPEED_ROUNDS + 1):
        docs = _docs(nlp, path)
        if nlp.has_pipe("elmo"):
            nlp.get_pipe("elmo").bilm.forget_words()
        start = time.perf_counter()
        for _ in nlp.pipe(docs):
            pass
        rates.append(sum(map(len, docs)) / (time.perf_counter() - start))
    return statistics.median(rates[1:])


def main() -> None:
    settings, target = json.loads(sys.argv[1]), Path(sys.argv[2])
    result = (encode if settings["kind"] == "encode" else train_and_score)(settings)
    unfinished = target.with_name(target.name + ".tmp")
    unfinished.write_text(json.dumps(result), encoding="utf-8")
    os.replace(unfinished, target)


if __name__ == "__main__":
    main()
