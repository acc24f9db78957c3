"""Tiny weights and pipelines for tests of the component."""

from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
import spacy
import torch
from spacy.tokens import Doc
from spacy.training import Example

from spacy_elmo.bilm import BiLM, BiLMConfig, CharCNNConfig, LSTMConfig

LISTENER = {"@architectures": "spacy-elmo.ElmoListener.v1"}
TAGGER = {"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": LISTENER}}
NER = {
    "model": {
        "@architectures": "spacy.TransitionBasedParser.v2",
        "state_type": "ner",
        "extra_state_tokens": False,
        "hidden_width": 16,
        "maxout_pieces": 2,
        "use_upper": False,
        "tok2vec": LISTENER,
    }
}


@pytest.fixture(scope="session")
def weights(tmp_path_factory: Any) -> str:
    """A native folder with a biLM of random weights; 2 layers, width 16."""
    config = BiLMConfig(
        CharCNNConfig(((1, 4), (2, 8), (3, 12)), embedding_dim=4), LSTMConfig(24, 8)
    )
    model = BiLM(config)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0.0, 0.4, generator=generator)
    path = tmp_path_factory.mktemp("weights") / "tiny"
    model.save(path)
    return str(path)


@pytest.fixture
def make_nlp(weights: str) -> Callable[..., Any]:
    """Makes a blank pipeline with elmo and, if asked for, components that listen."""

    def make(*names: str, **settings: Any) -> Any:
        nlp = spacy.blank("en")
        nlp.add_pipe("elmo", config={"weights": weights, **settings})
        configs: Dict[str, Any] = {"tagger": TAGGER, "ner": NER}
        for name in names:
            nlp.add_pipe(name, config=configs[name])
        return nlp

    return make


_TEXTS = [
    ("She saw Paris .", "P V N .", ["O", "O", "U-LOC", "O"]),
    ("Paul saw Mary .", "N V N .", ["U-PER", "O", "U-PER", "O"]),
    ("We met in London again .", "P V I N A .", ["O", "O", "O", "U-LOC", "O", "O"]),
]


def examples(nlp: Any) -> List[Example]:
    """Fresh examples with tags and entities."""
    out = []
    for text, tags, entities in _TEXTS:
        words = text.split()
        gold = {"words": words, "tags": tags.split(), "entities": entities}
        out.append(Example.from_dict(Doc(nlp.vocab, words=words), gold))
    return out


def train(nlp: Any, steps: int = 20, **kwargs: Any) -> List[Dict[str, float]]:
    """Initialise with a fixed seed and update some steps; gives the losses of each."""
    from spacy.util import fix_random_seed

    fix_random_seed(0)
    optimizer = nlp.initialize(lambda: examples(nlp))
    optimizer.learn_rate = 0.02
    history = []
    for _ in range(steps):
        losses: Dict[str, float] = {}
        nlp.update(examples(nlp), sgd=optimizer, losses=losses, **kwargs)
        history.append(losses)
    return history


def mixes(nlp: Any, name: str) -> List[Any]:
    """Scalar mixes of a component."""
    return [n for n in nlp.get_pipe(name).model.walk() if n.name == "elmo_scalar_mix"]


def copy_tree(source: str, target: Path) -> str:
    """Copy a folder; gives the copy's path."""
    import shutil

    return str(shutil.copytree(source, target))
