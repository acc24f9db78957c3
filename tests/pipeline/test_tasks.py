"""Every trainable component of spaCy that takes a tok2vec learns on ELMo."""

import numpy as np
import pytest
from spacy.kb import InMemoryLookupKB
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import fix_random_seed

from .conftest import LISTENER, NER, TAGGER, mixes

_WORDS = [
    ["She", "saw", "Paris", "."],
    ["Paul", "saw", "Mary", ".", "Go", "!"],
    ["We", "met", "in", "London", "again", "."],
]


def _examples(nlp):
    """Docs annotated for all components."""
    references = [
        Doc(
            nlp.vocab,
            words=_WORDS[0],
            tags=["P", "V", "N", "."],
            pos=["PRON", "VERB", "PROPN", "PUNCT"],
            morphs=["Case=Nom", "Tense=Past", "", ""],
            lemmas=["she", "see", "Paris", "."],
            heads=[1, 1, 1, 1],
            deps=["nsubj", "ROOT", "obj", "punct"],
            ents=["O", "O", "B-LOC", "O"],
            sent_starts=[True, False, False, False],
        ),
        Doc(
            nlp.vocab,
            words=_WORDS[1],
            tags=["N", "V", "N", ".", "V", "."],
            pos=["PROPN", "VERB", "PROPN", "PUNCT", "VERB", "PUNCT"],
            morphs=["", "Tense=Past", "", "", "Tense=Pres", ""],
            lemmas=["Paul", "see", "Mary", ".", "go", "!"],
            heads=[1, 1, 1, 1, 4, 4],
            deps=["nsubj", "ROOT", "obj", "punct", "ROOT", "punct"],
            ents=["B-PER", "O", "B-PER", "O", "O", "O"],
            sent_starts=[True, False, False, False, True, False],
        ),
        Doc(
            nlp.vocab,
            words=_WORDS[2],
            tags=["P", "V", "I", "N", "A", "."],
            pos=["PRON", "VERB", "ADP", "PROPN", "ADV", "PUNCT"],
            morphs=["Case=Nom", "Tense=Past", "", "", "", ""],
            lemmas=["we", "meet", "in", "London", "again", "."],
            heads=[1, 1, 3, 1, 1, 1],
            deps=["nsubj", "ROOT", "case", "obl", "advmod", "punct"],
            ents=["O", "O", "O", "B-LOC", "O", "O"],
            sent_starts=[True, False, False, False, False, False],
        ),
    ]
    for doc, cats in zip(references, ({"A": 1.0, "B": 0.0}, {"A": 0.0, "B": 1.0}, None)):
        doc.cats = cats or {"A": 1.0, "B": 0.0}
        doc.spans["sc"] = list(doc.ents)
        for entity in doc.ents:
            for token in entity:
                token.ent_kb_id_ = "Q2" if token.text in ("Paris", "Mary") else "Q1"
    examples = []
    for doc in references:
        predicted = Doc(nlp.vocab, words=[t.text for t in doc])
        if "entity_linker" in nlp.pipe_names:
            # The linker goes by entities and sentences that others found.
            predicted.ents = [Span(predicted, e.start, e.end, label=e.label) for e in doc.ents]
            for token in predicted:
                token.is_sent_start = doc[token.i].is_sent_start
        examples.append(Example(predicted, doc))
    return examples


def _parser(state_type):
    return {"model": {**NER["model"], "state_type": state_type}}


CONFIGS = {
    "ner": NER,
    "tagger": TAGGER,
    "morphologizer": TAGGER,
    "senter": TAGGER,
    "trainable_lemmatizer": {**TAGGER, "min_tree_freq": 1},
    "parser": {**_parser("parser"), "min_action_freq": 1},
    "textcat": {
        "model": {
            "@architectures": "spacy.TextCatEnsemble.v2",
            "tok2vec": LISTENER,
            "linear_model": {
                "@architectures": "spacy.TextCatBOW.v3",
                "exclusive_classes": True,
                "ngram_size": 1,
                "no_output_layer": False,
                "length": 64,
            },
        }
    },
    "textcat_multilabel": {
        "model": {
            "@architectures": "spacy.TextCatParametricAttention.v1",
            "tok2vec": LISTENER,
            "exclusive_classes": False,
        }
    },
    "spancat": {
        "suggester": {"@misc": "spacy.ngram_suggester.v1", "sizes": [1]},
        "model": {
            "@architectures": "spacy.SpanCategorizer.v1",
            "tok2vec": LISTENER,
            "reducer": {
                "@layers": "spacy.mean_max_reducer.v1",
                "hidden_size": 8,
            },
            "scorer": {"@layers": "spacy.LinearLogistic.v1"},
        },
    },
    "entity_linker": {
        "generate_empty_kb": {"@misc": "spacy.EmptyKB.v2"},
        # This architecture wants to know the width when it is built.
        "model": {
            "@architectures": "spacy.EntityLinker.v2",
            "tok2vec": {**LISTENER, "width": 16},
        },
        "use_gold_ents": False,
        "incl_context": True,
        "incl_prior": False,
    },
}


def _knowledge_base(vocab):
    kb = InMemoryLookupKB(vocab, entity_vector_length=8)
    rng = np.random.default_rng(0)
    for name in ("Q1", "Q2"):
        kb.add_entity(name, freq=5, entity_vector=rng.normal(size=8).tolist())
    for alias in ("Paris", "Paul", "Mary", "London"):
        kb.add_alias(alias, ["Q1", "Q2"], [0.5, 0.5])
    return kb


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_two_updates_move_the_mix_and_a_short_run_lowers_the_loss(make_nlp, name, trainable):
    nlp = make_nlp(trainable=trainable, learn_rate_factor=0.1)
    component = nlp.add_pipe(name, config=CONFIGS[name])
    if name == "entity_linker":
        nlp.add_pipe("sentencizer", first=True)
        component.set_kb(_knowledge_base)
    fix_random_seed(0)
    optimizer = nlp.initialize(lambda: _examples(nlp))
    optimizer.learn_rate = 0.02
    (mix,) = mixes(nlp, name)
    n_mix = sum(mix.get_param(key).size for key in mix.param_names)
    assert n_mix == nlp.get_pipe("elmo").bilm.n_layers + 1
    before = {key: t.clone() for key, t in nlp.get_pipe("elmo").bilm.state_dict().items()}
    history = []
    for step in range(15):
        losses = {}
        nlp.update(_examples(nlp), sgd=optimizer, losses=losses)
        history.append(losses[name])
        if step == 1:
            assert (mix.get_param("w") != 0).all() and mix.get_param("gamma")[0] != 1
    assert sum(history[-3:]) < 0.9 * sum(history[:3])
    after = nlp.get_pipe("elmo").bilm.state_dict()
    moved = [key for key in before if (after[key] != before[key]).any()]
    assert set(moved) == (set(before) if trainable else set())
    # And the trained pipeline runs, whatever it is given.
    docs = list(nlp.pipe(["She saw Paris .", "", " "]))
    assert [len(doc) for doc in docs] == [4, 0, 1]
