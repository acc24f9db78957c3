"""The loop: faulty steps, evaluations, early stop, which model is kept, what the log says."""

import math
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
import torch

from spacy_elmo.bilm import BiLM
from spacy_elmo.bilm.scoring import Perplexity, perplexity
from spacy_elmo.errors import ElmoError
from spacy_elmo.training import loop
from spacy_elmo.training.batches import Position, plan_window
from spacy_elmo.training.loop import Trainer, spread
from spacy_elmo.training.step import StepResult, TrainingStep

from . import tiny

TEXT = tiny.sentences(300)
HELD = [[*sentence, f"new-{k}"][-20:] for k, sentence in enumerate(tiny.sentences(40, seed=7))]
WORDS = tiny.vocabulary(TEXT)

Weights = Dict[str, torch.Tensor]


def make_trainer(output: Path, report: Any = None, seed: int = 0, **settings: Any) -> Trainer:
    config = tiny.config(**settings)
    state = "primed" if config.training.unit == "stream" else "zero"
    shape = loop.replace(config.model, initial_state=state)
    model = tiny.model(WORDS, shape, seed)
    config = type(config)(shape, config.training)
    output.mkdir(exist_ok=True)
    return Trainer(
        model, WORDS, tiny.ListCorpus(TEXT), HELD, config, output, threads=1, report=report
    )


def weights(trainer: Trainer) -> Weights:
    return {name: p.clone() for name, p in trainer.model.state_dict().items()}


def run(output: Path, **settings: Any) -> List[Weights]:
    """Train; gives the weights at the start and after every step."""
    seen: List[Weights] = []
    trainer = make_trainer(output, lambda _: seen.append(weights(trainer)), **settings)
    seen.append(weights(trainer))
    try:
        trainer.run()
    finally:
        trainer.close()
    return seen


def same(a: Weights, b: Weights) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def spoil(
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[TrainingStep, StepResult], StepResult],
    *steps: int,
) -> None:
    """Let some steps (all, if none is named) go wrong."""
    good = TrainingStep.__call__

    def call(self: TrainingStep, batch: Any, step: int, **options: Any) -> StepResult:
        result = good(self, batch, step, **options)
        return change(self, result) if not steps or step in steps else result

    monkeypatch.setattr(TrainingStep, "__call__", call)


def infinite_loss(step: TrainingStep, result: StepResult) -> StepResult:
    return result._replace(losses=(math.inf, result.losses[1]))


def nan_in_encoder(step: TrainingStep, result: StepResult) -> StepResult:
    step.direction_parameters[1][0].grad[0, 0] = math.nan
    return result


def inf_in_softmax(step: TrainingStep, result: StepResult) -> StepResult:
    result.row_gradient.bias[3] = math.inf
    return result


def exploding_gradient(step: TrainingStep, result: StepResult) -> StepResult:
    step.token_parameters[0].grad.mul_(1e5)
    return result


def exploding_loss(step: TrainingStep, result: StepResult) -> StepResult:
    return result._replace(losses=(4 * result.losses[0], 4 * result.losses[1]))


@pytest.mark.parametrize("unit", ["sentence", "stream"])
@pytest.mark.parametrize("change", [infinite_loss, nan_in_encoder, inf_in_softmax])
def test_a_step_that_is_not_finite_is_skipped_and_counted(
    unit: str, change: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, change, 0, 3, 4)
    seen = run(tmp_path, max_steps=7, log_every=1, unit=unit)
    for step in range(7):
        assert same(seen[step], seen[step + 1]) == (step in (0, 3, 4)), step
    skipped = tiny.read_log(tmp_path, "skipped")
    assert [line["step"] for line in skipped] == [0, 3, 4]
    value = skipped[0]["loss" if change is infinite_loss else "norm"]
    assert value is None  # JSON has no infinity
    lines = tiny.read_log(tmp_path, "train")
    assert [line["skipped"] for line in lines] == [1, 1, 1, 2, 3, 3, 3]
    # The averages are over the steps that were taken.
    losses = [line["sampled_loss"] for line in lines]
    assert [loss is None for loss in losses] == [step in (0, 3, 4) for step in range(7)]
    assert all(torch.isfinite(value).all() for value in seen[-1].values())


@pytest.mark.parametrize("change", [exploding_gradient, exploding_loss])
def test_an_exploding_step_is_skipped(
    change: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "TRUST_AFTER", 4)
    spoil(monkeypatch, change, 6, 7)
    seen = run(tmp_path, max_steps=9)
    assert [step for step in range(9) if same(seen[step], seen[step + 1])] == [6, 7]
    assert [line["step"] for line in tiny.read_log(tmp_path, "skipped")] == [6, 7]


def test_the_first_steps_may_be_anything_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, exploding_gradient, 1)
    run(tmp_path, max_steps=4)
    assert not tiny.read_log(tmp_path, "skipped")


def test_weights_that_are_not_finite_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "MAX_SKIPPED_IN_A_ROW", 3)
    trainer = make_trainer(tmp_path)
    with torch.no_grad():
        trainer.model.softmax.weight[5] = math.nan
    with pytest.raises(ElmoError, match="ELMO-E054.* 3 steps in a row, up to step 2"):
        trainer.run()
    trainer.close()
    assert len(tiny.read_log(tmp_path, "skipped")) == 3


def test_a_good_step_ends_a_row_of_bad_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "MAX_SKIPPED_IN_A_ROW", 3)
    spoil(monkeypatch, infinite_loss, 1, 2, 4, 5, 7, 8)
    run(tmp_path, max_steps=10)
    assert len(tiny.read_log(tmp_path, "skipped")) == 6


def script(monkeypatch: pytest.MonkeyPatch, *averages: float) -> None:
    """Let evaluations during training give these averages, one after another."""
    values = iter(averages)

    def scripted(model: BiLM, sentences: Any, **options: Any) -> Perplexity:
        result = perplexity(model, sentences)
        return result._replace(average=next(values)) if len(sentences) < len(HELD) else result

    monkeypatch.setattr(loop, "perplexity", scripted)


def test_early_stop_and_the_best_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, 50.0, 40.0, 45.0, 40.0, 30.0)
    seen = run(tmp_path, max_steps=20, eval_every=2, patience=2)
    # An equal value is no better one.
    assert len(seen) - 1 == 8
    assert same(tiny.tensors(tmp_path / "model-best"), seen[4])
    assert same(tiny.tensors(tmp_path / "model-last"), seen[8])


def test_without_patience_a_run_goes_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, 50.0, *range(60, 69))
    seen = run(tmp_path, max_steps=20, eval_every=2)
    assert len(seen) - 1 == 20
    assert same(tiny.tensors(tmp_path / "model-best"), seen[2])


def test_the_last_steps_can_still_be_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, 50.0, 60.0, 20.0)
    seen = run(tmp_path, max_steps=7, eval_every=3)
    assert same(tiny.tensors(tmp_path / "model-best"), seen[7])


@pytest.mark.parametrize("unit", ["sentence", "stream"])
def test_the_log_and_the_models_agree(unit: str, tmp_path: Path) -> None:
    run(tmp_path, max_steps=30, eval_every=10, unit=unit, schedule="constant")
    lines = tiny.read_log(tmp_path, "heldout")
    assert [line["step"] for line in lines] == [10, 20, 30, 30]
    parts, final = lines[:-1], lines[-1]
    for line in lines:
        assert {"forward", "backward", "average", "oov_rate", "n_words", "tokens"} <= set(line)
        mean = math.sqrt(line["forward"] * line["backward"])
        assert line["average"] == pytest.approx(mean)
        assert line["n_words"] == len(WORDS) and 0.05 < line["oov_rate"] < 0.3
    # The last evaluation is of all held-out text, the others of a part.
    assert final["n_sentences"] == len(HELD)
    part = spread(HELD, 60)
    assert {line["n_sentences"] for line in parts} == {len(part)} and len(part) < len(HELD)
    fresh = make_trainer(tmp_path / "new", unit=unit)
    fresh.close()
    assert parts[-1]["average"] < 0.8 * perplexity(fresh.model, part).average
    best, last = (BiLM.load(tmp_path / name, softmax=True) for name in ("model-best", "model-last"))
    # Streams are measured from the state that a loaded model begins with.
    assert last.config.initial_state == ("zero" if unit == "sentence" else "primed")
    assert perplexity(last, HELD).average == pytest.approx(final["average"], rel=1e-5)
    lowest = min(line["average"] for line in parts)
    assert perplexity(best, part).average == pytest.approx(lowest, rel=1e-5)
    facts = last.config.meta["training"]
    assert facts["steps"] == 30 and facts["settings"]["batch_tokens"] == 64
    assert facts["heldout"]["oov_rate"] == final["oov_rate"]


def test_sampled_losses_are_called_sampled(tmp_path: Path) -> None:
    run(tmp_path, max_steps=7)
    train = tiny.read_log(tmp_path, "train")
    assert [line["step"] for line in train] == [3, 6]
    for line in train:
        assert not {"loss", "perplexity"} & set(line)
        assert line["sampled_perplexity"] == pytest.approx(math.exp(line["sampled_loss"]))
        assert line["skipped"] == 0 and line["norm"] > 0 and line["tokens_per_second"] > 0
        assert 0 < line["progress"] <= 1 and line["learn_rate"] > 0
    assert [line["progress"] for line in train] == pytest.approx([3 / 7, 6 / 7])


def test_progress_is_reported_after_every_step(tmp_path: Path) -> None:
    seen: List[Any] = []
    trainer = make_trainer(tmp_path, seen.append, max_steps=6)
    result = trainer.run()
    trainer.close()
    assert [p.step for p in seen] == [1, 2, 3, 4, 5, 6]
    assert [p.progress for p in seen] == pytest.approx([k / 6 for k in range(1, 7)])
    assert seen[2].perplexity is None and seen[3].perplexity is not None
    assert seen[-1].tokens == trainer.tokens and seen[-1].sampled_perplexity > 1
    assert result is not None and result.n_sentences == len(HELD)


def test_summed_batches_are_as_one_large_batch(tmp_path: Path) -> None:
    # A step is an epoch: the same sentences in either case.
    common: Any = {"optimizer": "adagrad", "learn_rate": 0.1, "epochs": 4, "max_steps": 0}
    common.update(eval_every=1, log_every=1)
    n = len(plan_window(tiny.ListCorpus(TEXT).lengths, 0, Position(), 500) or [])
    assert n > 3
    one = run(tmp_path / "one", batch_tokens=10**6, **common)
    sums = run(tmp_path / "sums", batch_tokens=500, accumulate=n, **common)
    assert len(one) == len(sums) == 5
    logs = [tiny.without_times(tiny.read_log(tmp_path / name)) for name in ("one", "sums")]
    for a, b in zip(*logs):
        assert a.pop("event") == b.pop("event")
        assert a == pytest.approx(b, rel=1e-5), a
    for name, value in one[-1].items():
        assert torch.allclose(sums[-1][name], value, atol=1e-5), name


def test_steps_are_counted_in_sums_of_batches(tmp_path: Path) -> None:
    seen: List[Any] = []
    settings: Dict[str, Any] = {"batch_tokens": 500, "epochs": 3, "max_steps": 0}
    trainer = make_trainer(tmp_path, seen.append, accumulate=4, log_every=1, **settings)
    trainer.run()
    trainer.close()
    single = make_trainer(tmp_path / "single", **settings)
    single.run()
    single.close()
    # The last one has what is left.
    assert single.step % 4 and trainer.step == len(seen) == -(-single.step // 4)
    assert trainer.tokens == single.tokens and seen[-1].progress == 1.0
    assert [line["step"] for line in tiny.read_log(tmp_path, "train")] == [p.step for p in seen]


def test_a_bad_batch_spoils_its_step_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = TrainingStep.__call__

    def call(self: TrainingStep, batch: Any, step: int, **options: Any) -> StepResult:
        result = good(self, batch, step, **options)
        if step == 2 and options["number"] == 1:
            nan_in_encoder(self, result)
        return result

    monkeypatch.setattr(TrainingStep, "__call__", call)
    seen = run(tmp_path, max_steps=5, accumulate=3)
    assert [step for step in range(5) if same(seen[step], seen[step + 1])] == [2]
    assert [line["step"] for line in tiny.read_log(tmp_path, "skipped")] == [2]


def test_a_run_ends_with_its_epochs(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, max_steps=0, batch_tokens=800, epochs=2, eval_every=99)
    trainer.run()
    trainer.close()
    assert trainer.tokens == 2 * sum(map(len, TEXT))
    assert trainer.predictions == trainer.total


def test_a_run_ends_by_the_clock(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, max_steps=0, epochs=10**6, max_minutes=0.004)
    trainer.run()
    trainer.close()
    assert trainer.step > 0 and 0.24 <= trainer.seconds < 5


def test_a_frozen_encoder_rests_and_then_moves(tmp_path: Path) -> None:
    seen = run(tmp_path, max_steps=6, freeze_steps=3)
    for step in range(6):
        for name in seen[0]:
            moved = not torch.equal(seen[step][name], seen[step + 1][name])
            assert moved == (step >= 3 or name.startswith("softmax.")), (step, name)


@pytest.mark.parametrize("n_tokens", [1, 20, 100, 10**6])
def test_a_part_of_the_text_is_spread_over_it(n_tokens: int) -> None:
    part = spread(HELD, n_tokens)
    total = sum(map(len, HELD))
    wanted = min(n_tokens, total)
    assert part and abs(sum(map(len, part)) - wanted) < max(25, 0.4 * wanted)
    places = [HELD.index(sentence) for sentence in part]
    assert places == sorted(places)
    if n_tokens == 100:
        assert max(places) - min(places) > 20


def test_carried_states_of_streams_reach_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: List[Optional[Any]] = []
    good = TrainingStep.__call__

    def call(self: TrainingStep, *args: Any, initial: Any, **options: Any) -> StepResult:
        given.append(initial)
        return good(self, *args, initial=initial, **options)

    monkeypatch.setattr(TrainingStep, "__call__", call)
    run(tmp_path, max_steps=3, unit="stream")
    assert given[0] is None
    assert all(state.hidden.abs().max() > 0 for layer in given[1] for state in layer)
    given.clear()
    run(tmp_path / "sentences", max_steps=3)
    assert given == [None, None, None]
