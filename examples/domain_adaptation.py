"""Let the built-in biLM read text of another domain, and see what it learned.

    python examples/domain_adaptation.py

The text here is made up: clauses in the style of a lease, put together from parts. With real text
give files of your own, more steps, and a held-out part that is not a variant of the rest; see
docs/adapt.md. The vocabulary stays that of en_mini, so that perplexities before and after compare.
"""

import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import List

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.io.detect import BUILTIN_FOLDER
from spacy_elmo.bilm.scoring import perplexity
from spacy_elmo.training.config import PretrainConfig
from spacy_elmo.training.loop import Progress
from spacy_elmo.training.pretrain import pretrain

PARTIES = [("Tenant", "Landlord"), ("Landlord", "Tenant"), ("Buyer", "Seller"), ("Seller", "Buyer")]
DUTIES = ["give notice to", "hold harmless", "pay the costs of", "obtain the consent of"]
OBJECTS = ["the premises", "the deposit", "the property", "this agreement", "the rent due"]
CONDITIONS = ["upon termination", "within thirty days", "in the event of default", "at all times"]


def clause(rng: random.Random) -> str:
    """A sentence of a contract, tokens between spaces."""
    first, second = rng.choice(PARTIES)
    return (
        f"The {first} shall , {rng.choice(CONDITIONS)} , {rng.choice(DUTIES)} the {second} with "
        f"respect to {rng.choice(OBJECTS)} and any part thereof ."
    )


def show(name: str, bilm: BiLM, sentences: List[List[str]]) -> None:
    """Print the perplexity under the full softmax."""
    found = perplexity(bilm, sentences)
    print(f"{name}: perplexity {found.average:.1f}, {100 * found.oov_rate:.1f} % unknown words")


def report(progress: Progress) -> None:
    """Print where the training is, now and then."""
    if progress.step % 3 == 0:
        print(f"  step {progress.step}, {100 * progress.progress:.0f} % done")


def main() -> None:
    rng = random.Random(0)
    training = [clause(rng) for _ in range(160)]
    seen = set(training)
    heldout = [text for text in (clause(rng) for _ in range(60)) if text not in seen]
    sentences = [text.split() for text in heldout]
    show("before", BiLM.load("en_mini", softmax=True), sentences)

    with tempfile.TemporaryDirectory() as folder:
        paths = {"training": training, "heldout": heldout}
        for name, texts in paths.items():
            Path(folder, f"{name}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
        config = PretrainConfig()
        settings = replace(
            config.training,
            epochs=1,
            batch_tokens=512,
            learn_rate=1e-3,
            warmup_steps=2,
            n_negatives=1024,
            eval_every=1000,
        )
        # The same as: python -m spacy elmo pretrain training.txt run --init en_mini ...
        pretrain(
            [Path(folder, "training.txt")],
            Path(folder, "run"),
            replace(config, training=settings),
            heldout=[Path(folder, "heldout.txt")],
            vocabulary=BUILTIN_FOLDER / "en_mini" / "vocabulary.txt",
            init="en_mini",
            report=report,
        )
        adapted = BiLM.load(Path(folder, "run", "model-best"), softmax=True)
        show("after", adapted, sentences)
        # A model like any other now: nlp.add_pipe("elmo", config={"weights": "run/model-best"}).
        print("vectors", adapted.embed([["Pt", "c/o", "SOB"]])[0].shape)


if __name__ == "__main__":
    main()
