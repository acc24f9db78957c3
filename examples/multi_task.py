"""Two tasks share one biLM, each with a mix of the layers of its own.

    python examples/multi_task.py

A tagger and an entity recogniser listen to the same component: the biLM runs once for a text, not
once for a task, and each task learns by itself how much it wants of each layer. The learn rate is
high, so that the mixes part within few steps.
"""

from typing import Dict, List

import spacy
from spacy.language import Language
from spacy.training import Example
from spacy.util import fix_random_seed, minibatch

from spacy_elmo.pipeline.mixes import pipeline_mixes

#: Word, part of speech, entity. "left", "book" and "play" are what their context makes them.
SENTENCES = [
    "Maria/PROPN/PER left/VERB/O the/DET/O house/NOUN/O",
    "John/PROPN/PER turned/VERB/O left/ADV/O",
    "Anna/PROPN/PER will/AUX/O book/VERB/O a/DET/O room/NOUN/O in/ADP/O Paris/PROPN/LOC",
    "The/DET/O book/NOUN/O is/AUX/O about/ADP/O London/PROPN/LOC",
    "The/DET/O children/NOUN/O play/VERB/O in/ADP/O the/DET/O garden/NOUN/O",
    "Peter/PROPN/PER wrote/VERB/O a/DET/O play/NOUN/O about/ADP/O Rome/PROPN/LOC",
    "They/PRON/O left/VERB/O Berlin/PROPN/LOC at/ADP/O night/NOUN/O",
    "She/PRON/O read/VERB/O the/DET/O book/NOUN/O in/ADP/O Vienna/PROPN/LOC",
    "We/PRON/O play/VERB/O with/ADP/O Susan/PROPN/PER",
    "The/DET/O play/NOUN/O was/AUX/O long/ADJ/O",
]
LISTENER = {"@architectures": "spacy-elmo.ElmoListener.v1"}
MODELS: Dict[str, Dict[str, object]] = {
    "tagger": {"@architectures": "spacy.Tagger.v2", "tok2vec": LISTENER},
    "ner": {
        "@architectures": "spacy.TransitionBasedParser.v2",
        "state_type": "ner",
        "extra_state_tokens": False,
        "hidden_width": 64,
        "maxout_pieces": 2,
        "use_upper": True,
        "tok2vec": LISTENER,
    },
}


def example(nlp: Language, annotated: str) -> Example:
    """An example with parts of speech and entities."""
    words, tags, entities = zip(*(word.split("/") for word in annotated.split()))
    doc = spacy.tokens.Doc(nlp.vocab, words=list(words))
    marks: List[str] = [label if label == "O" else f"U-{label}" for label in entities]
    return Example.from_dict(doc, {"tags": list(tags), "entities": marks})


def main() -> None:
    fix_random_seed(0)
    nlp = spacy.blank("en")
    elmo = nlp.add_pipe("elmo")
    for name, model in MODELS.items():
        nlp.add_pipe(name, config={"model": model})
    examples = [example(nlp, annotated) for annotated in SENTENCES]
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.02
    print("listening:", ", ".join(elmo.listening_components))

    for epoch in range(1, 21):
        losses = {}
        for batch in minibatch(examples, size=5):
            nlp.update(batch, sgd=optimizer, losses=losses)
        if epoch % 5 == 0:
            print(f"epoch {epoch:2}: tagger {losses['tagger']:7.3f}, ner {losses['ner']:7.3f}")

    before = elmo.cache.misses
    doc = nlp("Laura left the book in Dublin")
    print(f"the biLM ran {elmo.cache.misses - before} time for both tasks")
    print("  ", " ".join(f"{token.text}/{token.tag_}" for token in doc))
    print("  ", [(entity.text, entity.label_) for entity in doc.ents])
    for mix in pipeline_mixes(nlp):
        shares = "  ".join(f"{share:.3f}" for share in mix.weights)
        print(f"{mix.component:7} layers 0, 1, 2: {shares}   gamma {mix.gamma:.3f}")


if __name__ == "__main__":
    main()
