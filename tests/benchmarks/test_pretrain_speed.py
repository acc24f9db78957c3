"""`benchmarks/pretrain_speed.py` on a small text: both trainers run, on the same work."""

import re
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Dict, Iterator, List

import pytest
import torch

from ..training import tiny
from ..util import ROOT


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import pretrain_speed

    # A large product takes its time, and threads that wait for a busy core theirs.
    monkeypatch.setattr(pretrain_speed, "peak", lambda threads: 50.0)
    monkeypatch.setattr(pretrain_speed, "available_cores", lambda: 1)
    threads = torch.get_num_threads()
    yield pretrain_speed
    torch.set_num_threads(threads)


def call(speed: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    small = ("--cell", 16, "--projection", 8, "--negatives", 20, "--rounds", 1)
    monkeypatch.setattr(sys, "argv", ["pretrain_speed.py", *map(str, (*words, *small))])
    speed.main()


def test_both_trainers_are_timed_on_equal_losses(
    speed: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    losses: Dict[str, List[float]] = {"ours": [], "plain": []}
    plain, ours = speed.Plain.step, speed.TrainingStep.__call__
    # By this clock theirs takes four times as long as ours.
    now = [0.0]
    clocks = {name: getattr(time, name) for name in ("thread_time", "process_time")}
    monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: now[0], **clocks))

    def plain_step(self: Any, *args: Any) -> float:
        now[0] += 4e-4
        losses["plain"].append(plain(self, *args))
        return losses["plain"][-1]

    def our_step(self: Any, batch: Any, number: int) -> Any:
        now[0] += 1e-4
        result = ours(self, batch, number)
        losses["ours"].append(sum(result.losses) / (2 * batch.n_targets))
        return result

    monkeypatch.setattr(speed.Plain, "step", plain_step)
    monkeypatch.setattr(speed.TrainingStep, "__call__", our_step)
    path = tiny.write_text(tmp_path / "in.txt", tiny.sentences(100))
    call(speed, monkeypatch, path, "--tokens", 40, 60)
    printed = capsys.readouterr().out
    assert re.match(
        r"16 cells, 8 projection, .* 20 negatives, vocabulary [\d,]+, \d+ cores\n", printed
    )
    blocks = re.findall(
        r"^Batches of (\d+) predictions a direction, \d+ distinct words:\n"
        r"  ours +([\d,]+) tokens/s +([\d,]+) GFLOP/s, (\d+) % of the matrix product's 50\n"
        r"  plain +([\d,]+) tokens/s +ours is (\d+\.\d) times as fast\n"
        r"  where our CPU time goes: (.*)$",
        printed,
        re.M,
    )
    assert [block[0] for block in blocks] == ["40", "60"], printed
    for tokens, *numbers, shares in blocks:
        our_speed, rate, share, plain_speed, times = (float(n.replace(",", "")) for n in numbers)
        # Boundaries are predicted but are no tokens of the text.
        assert 0.5 * float(tokens) < our_speed * 1e-4 < float(tokens)
        assert (our_speed, times) == (4 * plain_speed, 4.0)
        # Both numbers are rounded.
        assert share == pytest.approx(2 * rate, abs=1.5) and rate > 0
        parts = dict(part.rsplit(" ", 2)[:2] for part in shares.split(", ") if part.endswith(" %"))
        assert {"convolutions", "LSTM layers", "softmax", "optimiser"} <= set(parts)
    # The same model, batch and sample: what is compared does the same.
    assert losses["ours"][0] == pytest.approx(losses["plain"][0], rel=1e-5)
    assert len(losses["plain"]) == 4  # two rounds of each size


def test_the_plain_trainer_can_be_left_out(
    speed: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr(speed.Plain, "step", lambda *_: pytest.fail("was run"))
    path = tiny.write_text(tmp_path / "in.txt", tiny.sentences(100))
    call(speed, monkeypatch, path, "--tokens", 40, "--no-plain")
    printed = capsys.readouterr().out
    assert "  ours " in printed and "  plain " not in printed
