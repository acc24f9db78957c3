"""Scores and perplexities against a plain softmax over every position."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import List

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elmo.bilm import BiLM, scoring
from spacy_elmo.bilm.predict import LanguageModel
from spacy_elmo.bilm.scoring import SoftmaxWords, perplexity, score_sentences, softmax_words
from spacy_elmo.errors import ElmoError

from ..training import tiny

WORDS = tiny.vocabulary(tiny.sentences(100), 40)
TEXT = [*tiny.sentences(15, seed=4), ["unknown-word", "the", "<S>", "</S>"], ["cat"], []]
MODEL = tiny.model(WORDS).eval()


def brute_force(model: BiLM, sentence: List[str]) -> List[np.ndarray]:
    """Log-probabilities of each direction by a full log-softmax of single positions."""
    ids = {word: k for k, word in enumerate(WORDS.words)}
    specials = ("<S>", "</S>", "<UNK>")
    targets = [2 if w in specials else ids.get(w, 2) for w in sentence]
    top = model.embed([sentence], boundaries=True)[0][-1].astype(np.float64)
    width = model.config.lstm.projection_dim
    assert model.softmax is not None
    weight, bias = (p.detach().double().numpy() for p in model.softmax.parameters())
    scores: List[List[float]] = [[], []]
    for position in range(len(sentence) + 1):
        # Forward: after <S> w1 … of this position comes the next word or the end.
        for k, row, target in (
            (0, top[position, :width], [*targets, 1][position]),
            (1, top[position + 1, width:], [0, *targets][position]),
        ):
            logits = weight @ row + bias
            scores[k].append(logits[target] - math.log(np.exp(logits).sum()))
    return [np.array(s) for s in scores]


@pytest.mark.parametrize("state", ["zero", "primed"])
def test_scores_equal_a_softmax_of_every_position(state: str) -> None:
    model = tiny.model(WORDS, replace(tiny.SHAPE, initial_state=state)).eval()
    found = score_sentences(model, softmax_words(model), TEXT)
    assert len(found) == len(TEXT)
    for sentence, score in zip(TEXT, found):
        forward, backward = brute_force(model, sentence)
        assert score.forward.shape == score.backward.shape == (len(sentence) + 1,)
        assert np.allclose(score.forward, forward, atol=1e-5)
        assert np.allclose(score.backward, backward, atol=1e-5)


def test_probabilities_of_the_next_word_sum_to_one() -> None:
    model = tiny.model(WORDS).eval()
    with torch.no_grad():
        model.softmax.bias[0] = -50.0  # no sentence begins behind a word
    words = softmax_words(model)
    followers = [*WORDS.words[3:], "unknown-word"]
    scores = score_sentences(model, words, [["the", word] for word in followers])
    total = sum(math.exp(score.forward[1]) for score in scores)
    total += math.exp(score_sentences(model, words, [["the"]])[0].forward[1])  # the end
    assert total == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("limit", [1, 400, 10**9])
def test_the_memory_limit_does_not_change_scores(limit: int) -> None:
    words = softmax_words(MODEL)
    expected = score_sentences(MODEL, words, TEXT)
    for one, other in zip(score_sentences(MODEL, words, TEXT, limit=limit), expected):
        assert np.allclose(one.forward, other.forward, atol=1e-6)
        assert np.allclose(one.backward, other.backward, atol=1e-6)


def test_the_logits_stay_under_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    addmm = torch.addmm

    def recording(*args: torch.Tensor) -> torch.Tensor:
        sizes.append(args[1].shape[0])
        return addmm(*args)

    monkeypatch.setattr(torch, "addmm", recording)
    limit = 5 * 4 * len(WORDS) + 1
    score_sentences(MODEL, softmax_words(MODEL), TEXT, limit=limit)
    assert max(sizes) == 5 and sum(sizes) == 2 * sum(len(s) + 1 for s in TEXT)


def test_perplexity_is_exp_of_the_mean_loss() -> None:
    result = perplexity(MODEL, TEXT)
    scores = [brute_force(MODEL, sentence) for sentence in TEXT]
    forward, backward = (np.concatenate(column) for column in zip(*scores))
    # Boundaries are scored: one prediction more than tokens in each sentence.
    assert len(forward) == sum(map(len, TEXT)) + len(TEXT)
    assert result.forward == pytest.approx(math.exp(-forward.mean()), rel=1e-5)
    assert result.backward == pytest.approx(math.exp(-backward.mean()), rel=1e-5)
    both = -(forward.mean() + backward.mean()) / 2
    assert result.average == pytest.approx(math.exp(both), rel=1e-5)
    assert (result.n_tokens, result.n_sentences) == (sum(map(len, TEXT)), len(TEXT))
    assert result.n_words == len(WORDS)
    n_oov = sum(w not in WORDS for s in TEXT for w in s)
    # Words that are spelled like boundaries are unknown ones.
    assert n_oov >= 3 and result.oov_rate == pytest.approx(n_oov / result.n_tokens)
    assert result.to_dict()["average"] == result.average


@settings(max_examples=6, deadline=None, derandomize=True)
@given(batch_tokens=st.integers(1, 400), piece=st.integers(1, 20), order=st.randoms())
def test_batches_pieces_and_order_do_not_matter(batch_tokens: int, piece: int, order) -> None:
    text = list(TEXT)
    order.shuffle(text)
    expected = perplexity(MODEL, TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "PIECE_SENTENCES", piece)
        found = perplexity(MODEL, iter(text), batch_tokens=batch_tokens)
    # Nothing is dropped at the end, as bilm-tf does with the last partial batch.
    assert found == pytest.approx(expected, rel=1e-5)


def test_threads_give_the_same_result() -> None:
    with ThreadPoolExecutor(2) as pool:
        found = perplexity(MODEL, TEXT, batch_tokens=30, executor=pool)
    assert found == perplexity(MODEL, TEXT, batch_tokens=30)


def test_progress_counts_every_token_once() -> None:
    n_tokens = sum(map(len, TEXT))
    for executor in (None, ThreadPoolExecutor(2)):
        told: List[int] = []
        result = perplexity(MODEL, TEXT, batch_tokens=50, executor=executor, progress=told.append)
        assert sum(told) == n_tokens and max(told) <= 50
        assert result == perplexity(MODEL, TEXT, batch_tokens=50)
    told = []
    scores = LanguageModel(MODEL).score(TEXT, batch_tokens=50, progress=told.append)
    assert sum(told) == n_tokens and max(told) <= 50 and len(scores) == len(TEXT)


def test_a_single_sentence_is_a_text() -> None:
    score = score_sentences(MODEL, softmax_words(MODEL), [["the", "cat"]])[0]
    result = perplexity(MODEL, [["the", "cat"]])
    assert result.forward == pytest.approx(math.exp(-score.forward.mean()), rel=1e-5)
    empty = perplexity(MODEL, [[]])
    assert empty.n_tokens == 0 and empty.oov_rate == 0.0 and empty.average > 1


def test_the_vocabulary_may_have_any_order() -> None:
    order = np.random.default_rng(0).permutation(len(WORDS)).tolist()
    other = tiny.model(WORDS).eval()
    assert other.softmax is not None and MODEL.vocabulary is not None
    other.vocabulary = [MODEL.vocabulary[k] for k in order]
    with torch.no_grad():
        other.softmax.weight.copy_(other.softmax.weight[order])
        other.softmax.bias.copy_(other.softmax.bias[order])
    assert perplexity(other, TEXT) == pytest.approx(perplexity(MODEL, TEXT), rel=1e-5)


def test_scores_that_would_depend_on_the_batches_are_refused() -> None:
    carrying = BiLM.from_files(MODEL.to_files(), initial_state="carry")
    for call in (lambda: perplexity(carrying, TEXT), lambda: LanguageModel(carrying)):
        with pytest.raises(ElmoError, match="ELMO-E170.*'zero' or 'primed'"):
            call()


def test_what_cannot_be_scored() -> None:
    without = BiLM.from_files(
        replace(
            MODEL.to_files(),
            vocabulary=None,
            tensors={
                name: t
                for name, t in MODEL.to_files().tensors.items()
                if not name.startswith("softmax.")
            },
        )
    )
    for call in (
        lambda: softmax_words(without),
        lambda: perplexity(without, TEXT),
        lambda: score_sentences(without, softmax_words(MODEL), TEXT),
    ):
        with pytest.raises(ElmoError, match="ELMO-E050"):
            call()
    with pytest.raises(ElmoError, match="ELMO-E058.*</S>, <UNK>"):
        SoftmaxWords([("<S>", 1), ("the", 1)])
    with pytest.raises(ElmoError, match="ELMO-E059"):
        perplexity(MODEL, [])
    with pytest.raises(ElmoError, match="ELMO-E001"):
        perplexity(MODEL, ["the cat"])
    assert score_sentences(MODEL, softmax_words(MODEL), []) == []
