"""Train an entity recogniser that listens to ELMo, and see which layers it takes.

    python examples/train_ner.py

As in Peters et al. (2018): the biLM stays as it is, the recogniser learns a weighted sum of its
layers, joined to an embedding of the recogniser's own, with spaCy's convolutions behind. A dozen
sentences are enough to show the code, not to make a recogniser; for that see docs/train-ner.md.
"""

import spacy
from spacy.language import Language
from spacy.training import Example
from spacy.util import fix_random_seed, minibatch
from thinc.api import Config

from spacy_elmo.pipeline.mixes import pipeline_mixes

#: Entities in brackets with their label.
TRAINING = [
    "[Maria|PER] works for [Acme|ORG] in [Berlin|LOC] .",
    "[John|PER] moved from [Paris|LOC] to [London|LOC] last year .",
    "The shares of [Globex|ORG] fell after [Anna|PER] left .",
    "[Initech|ORG] opened an office in [Madrid|LOC] .",
    "We met [Peter|PER] at the station in [Vienna|LOC] .",
    "[Susan|PER] joined [Globex|ORG] as a lawyer .",
    "Nobody in [Rome|LOC] had heard of [Initech|ORG] .",
    "Last week [Acme|ORG] hired [David|PER] .",
    "The rain in [London|LOC] did not stop for days .",
    "[Acme|ORG] and [Initech|ORG] will merge in May .",
    "My sister [Laura|PER] lives in [Lisbon|LOC] .",
    "A lawyer of [Initech|ORG] wrote to [Thomas|PER] .",
]
TEST = [
    "[Emma|PER] works for [Hooli|ORG] in [Prague|LOC] .",
    "[Hooli|ORG] hired [George|PER] last year .",
    "My brother [Henry|PER] lives in [Dublin|LOC] .",
]
CONFIG = """
[model]
@architectures = "spacy.TransitionBasedParser.v2"
state_type = "ner"
extra_state_tokens = false
hidden_width = 64
maxout_pieces = 2
use_upper = true

[model.tok2vec]
@architectures = "spacy-elmo.ConcatEmbed.v1"
width = 64

[model.tok2vec.elmo]
@architectures = "spacy-elmo.ElmoListener.v1"

[model.tok2vec.embed]
@architectures = "spacy.MultiHashEmbed.v2"
width = 64
attrs = ["NORM", "SHAPE"]
rows = [500, 100]
include_static_vectors = false

[model.tok2vec.encode]
@architectures = "spacy.MaxoutWindowEncoder.v2"
width = 64
depth = 2
window_size = 1
maxout_pieces = 3
"""


def example(nlp: Language, marked: str) -> Example:
    """An example from a sentence with marked entities."""
    text, entities = "", []
    for i, part in enumerate(marked.replace("]", "[").split("[")):
        word, _, label = part.partition("|") if i % 2 else (part, "", "")
        if label:
            entities.append((len(text), len(text) + len(word), label))
        text += word
    return Example.from_dict(nlp.make_doc(text), {"entities": entities})


def main() -> None:
    fix_random_seed(0)
    nlp = spacy.blank("en")
    elmo = nlp.add_pipe("elmo")
    nlp.add_pipe("ner", config=Config().from_str(CONFIG))
    training = [example(nlp, marked) for marked in TRAINING]
    optimizer = nlp.initialize(lambda: training)
    optimizer.learn_rate = 0.005

    for epoch in range(1, 16):
        losses = {}
        for batch in minibatch(training, size=4):
            nlp.update(batch, sgd=optimizer, drop=0.1, losses=losses)
        if epoch % 5 == 0:
            print(f"epoch {epoch:2}: loss {losses['ner']:7.3f}")
    # The biLM does not learn, so a sentence is encoded in the first epoch and remembered.
    print(f"encoded {elmo.cache.misses} sentences, found {elmo.cache.hits} in the cache")

    scores = nlp.evaluate([example(nlp, marked) for marked in TEST])
    print(f"F-score on {len(TEST)} other sentences with other names: {scores['ents_f']:.2f}")
    doc = nlp(example(nlp, TEST[0]).text)
    print("  ", [(entity.text, entity.label_) for entity in doc.ents])

    # Equal shares are what it began with; so few steps move them little.
    mix = pipeline_mixes(nlp)[0]
    shares = ", ".join(f"layer {i} {share:.3f}" for i, share in enumerate(mix.weights))
    print(f"learned mix: {shares}; gamma {mix.gamma:.3f}")


if __name__ == "__main__":
    main()
