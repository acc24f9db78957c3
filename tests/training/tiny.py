"""Text of a little grammar, and models and runs so small that a step takes milliseconds."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Sequence

import numpy as np
import torch
from safetensors import safe_open

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.config import BiLMConfig, CharCNNConfig, LSTMConfig
from spacy_elmo.bilm.lm import init_bilm, init_softmax
from spacy_elmo.training.config import PretrainConfig, TrainingConfig
from spacy_elmo.training.vocabulary import Vocabulary

SHAPE = BiLMConfig(
    CharCNNConfig(((1, 4), (2, 4), (3, 4)), embedding_dim=4, max_characters=14), LSTMConfig(16, 8)
)
SETTINGS = TrainingConfig(
    batch_tokens=64,
    stream_steps=4,
    max_steps=12,
    n_negatives=24,
    learn_rate=0.02,
    warmup_steps=2,
    eval_every=4,
    eval_tokens=60,
    checkpoint_every=5,
    log_every=3,
)

_NOUNS = "cat dog Straße river tree 猫 house ship engine garden letter café king moon".split()
_VERBS = "sees follows loves lässt draws finds calls paints".split()
_ADJECTIVES = "old red quiet naïve tiny good".split()


def sentences(n: int, seed: int = 0) -> List[List[str]]:
    """Sentences of 2 to about 20 tokens, frequent and rare words, made of rules."""
    rng = random.Random(seed)

    def phrase() -> List[str]:
        noun = _NOUNS[min(rng.randrange(len(_NOUNS)), rng.randrange(len(_NOUNS)))]
        adjectives = [rng.choice(_ADJECTIVES) for _ in range(rng.choice((0, 0, 0, 1, 2)))]
        return [rng.choice(("the", "a")), *adjectives, noun]

    result = []
    for _ in range(n):
        words = phrase()
        while rng.random() < 0.6:
            words += [rng.choice(_VERBS), *phrase()]
        if rng.random() < 0.1:
            words.append(f"no-{rng.randrange(1000)}")
        result.append([*words, rng.choice((".", ".", "!"))][-21:])
    return result


def write_text(path: Path, text: Sequence[Sequence[str]]) -> Path:
    """One sentence a line."""
    path.write_bytes("".join(" ".join(tokens) + "\n" for tokens in text).encode("utf-8"))
    return path


class ListCorpus:
    """A corpus in memory, as `sentence_batches` and the trainer take it."""

    def __init__(self, text: Sequence[Sequence[str]]) -> None:
        self.text = [list(tokens) for tokens in text]
        self.lengths = np.array([len(tokens) for tokens in text], np.uint16)

    def sentences(self, indices: np.ndarray) -> List[List[str]]:
        return [self.text[i] for i in indices]


def vocabulary(text: Sequence[Sequence[str]], max_size: int = 200) -> Vocabulary:
    """Words of a text with their counts."""
    pairs = [(token, 1) for tokens in text for token in tokens]
    return Vocabulary.from_counts(pairs, max_size, n_sentences=len(text))


def config(shape: BiLMConfig = SHAPE, **settings: Any) -> PretrainConfig:
    """Settings of a run of a dozen steps; keywords change them."""
    return PretrainConfig(shape, replace(SETTINGS, **settings))


def model(words: Vocabulary, shape: BiLMConfig = SHAPE, seed: int = 0) -> BiLM:
    """A model with random weights, softmax included."""
    bilm = BiLM(shape, vocabulary=list(zip(words.words, words.counts.tolist())))
    assert bilm.softmax is not None
    init_bilm(bilm, shape, torch.Generator().manual_seed(seed))
    counts = torch.from_numpy(words.counts)
    init_softmax(bilm.softmax, counts, torch.Generator().manual_seed(seed + 1))
    # Gates of a fresh model are symmetric; biases of all kinds make mistakes visible.
    generator = torch.Generator().manual_seed(seed + 2)
    with torch.no_grad():
        for name, parameter in bilm.named_parameters():
            if name.endswith("bias"):
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return bilm


def read_log(output: Path, event: str = "") -> List[Dict[str, Any]]:
    """Lines of a run's log, of one kind if asked for."""

    def no_constant(name: str) -> Any:
        raise AssertionError(f"{name} is not JSON")

    text = (output / "log.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line, parse_constant=no_constant) for line in text.splitlines()]
    return [line for line in lines if event in ("", line["event"])]


def without_times(lines: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Log lines without what depends on the clock."""
    return [
        {k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second")}
        for line in lines
    ]


def tensors(path: Path) -> Dict[str, torch.Tensor]:
    """Tensors of a model folder or of a safetensors file."""
    if path.is_dir():
        path = path / "model.safetensors"
    with safe_open(str(path), "pt") as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}


def assert_equal(a: Dict[str, torch.Tensor], b: Dict[str, torch.Tensor]) -> None:
    """Same names and the same values to the bit."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), f"{name} differs"
