"""Two processes train as one: same losses, same weights, everything written once."""

import os
import shutil
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import pytest
import torch
import torch.distributed as dist
from confection import Config

from spacy_elmo.errors import ElmoError
from spacy_elmo.training import loop
from spacy_elmo.training.checkpoint import CHECKPOINT_NAME, load_checkpoint
from spacy_elmo.training.config import PretrainConfig
from spacy_elmo.training.distributed import Group, available_cores, join, leave
from spacy_elmo.training.pretrain import pretrain
from spacy_elmo.training.step import Workers

from ..util import ROOT
from . import tiny


class Meeting:
    """Where the threads that stand for processes exchange what they have."""

    def __init__(self, n: int) -> None:
        self.barrier = threading.Barrier(n, timeout=60)
        self.brought: List[Any] = [None] * n

    def exchange(self, rank: int, value: Any) -> List[Any]:
        self.brought[rank] = value
        self.barrier.wait()
        everything = list(self.brought)
        self.barrier.wait()
        return everything


class ThreadGroup:
    """The interface of `Group` for a thread; starting processes would take many seconds."""

    device = torch.device("cpu")

    def __init__(self, meeting: Meeting, rank: int, world_size: int) -> None:
        self.meeting, self.rank, self.world_size = meeting, rank, world_size

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, tensors: List[torch.Tensor]) -> None:
        for tensor in tensors:
            parts = self.meeting.exchange(self.rank, tensor.clone())
            tensor.copy_(sum(parts[1:], parts[0]))

    def sum_values(self, values: List[float]) -> List[float]:
        return [sum(column) for column in zip(*self.meeting.exchange(self.rank, values))]


class Interruption(Exception):
    pass


def together(
    n: int,
    folder: Path,
    config: Optional[PretrainConfig],
    stop_at: int = 0,
    threads: int = 1,
    folders: Sequence[Path] = (),
) -> None:
    """Train with `n` threads in the place of processes; resume where no settings are given.

    `threads` is what each of them uses; `folders` are theirs where they do not see the same.
    """
    meeting = Meeting(n)
    errors: Dict[int, BaseException] = {}

    def report(progress: Any) -> None:
        if progress.step == stop_at:
            raise Interruption

    def work(rank: int) -> None:
        group: Any = ThreadGroup(meeting, rank, n) if n > 1 else Group()
        try:
            pretrain(
                [folder.parent / "in.txt"],
                folders[rank] if folders else folder,
                config,
                heldout=[folder.parent / "held.txt"],
                resume=config is None,
                group=group,
                threads=threads,
                report=report,
            )
        except BaseException as error:
            errors[rank] = error
            meeting.barrier.abort()

    processes = [threading.Thread(target=work, args=(rank,)) for rank in range(n)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    real = [e for e in errors.values() if not isinstance(e, threading.BrokenBarrierError)]
    if stop_at:
        assert isinstance(real[0], Interruption)
    elif errors:
        raise (real or list(errors.values()))[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.write_text(tmp_path / "in.txt", tiny.sentences(200))
    tiny.write_text(tmp_path / "held.txt", tiny.sentences(25, seed=7))
    return tmp_path


def assert_same_losses(a: Path, b: Path) -> None:
    """Logs agree within rounding, line by line."""
    logs = [tiny.without_times(tiny.read_log(path)) for path in (a, b)]
    assert len(logs[0]) == len(logs[1]) > 5
    for one, other in zip(*logs):
        assert one.pop("event") == other.pop("event")
        assert one == pytest.approx(other, rel=1e-4), one


def assert_same_weights(a: Path, b: Path) -> None:
    ours, theirs = tiny.tensors(a / "model-last"), tiny.tensors(b / "model-last")
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.allclose(ours[name], theirs[name], atol=1e-4), name


# Adam divides by gradients that may be almost nothing; Adagrad shows the gradients themselves.
SETTINGS: Dict[str, Dict[str, Any]] = {
    "sentences": {"optimizer": "adagrad", "learn_rate": 0.1},
    # Often only one of the two has a sentence.
    "tiny batches": {"optimizer": "adagrad", "learn_rate": 0.1, "batch_tokens": 12},
    "streams": {"optimizer": "adagrad", "learn_rate": 0.1, "unit": "stream", "batch_tokens": 20},
    "frozen": {"optimizer": "adagrad", "learn_rate": 0.1, "freeze_steps": 6, "n_negatives": 0},
    "sums": {"optimizer": "adagrad", "learn_rate": 0.1, "batch_tokens": 12, "accumulate": 3},
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_two_are_as_one(kind: str, folder: Path) -> None:
    config = tiny.config(dropout=0.2, **SETTINGS[kind])
    together(1, folder / "one", config)
    together(2, folder / "two", config)
    assert_same_losses(folder / "one", folder / "two")
    assert_same_weights(folder / "one", folder / "two")
    tensors = [load_checkpoint(folder / name).tensors for name in ("one", "two")]
    assert {n: t.shape for n, t in tensors[0].items()} == {
        n: t.shape for n, t in tensors[1].items()
    }


def test_two_of_two_threads_are_as_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: List[Workers] = []

    class Noted(Workers):
        def __init__(self, threads: int) -> None:
            super().__init__(threads)
            made.append(self)

    monkeypatch.setattr(loop, "Workers", Noted)
    config = tiny.config(dropout=0.2, optimizer="adagrad", learn_rate=0.1)
    together(1, folder / "one", config)
    together(2, folder / "two", config, threads=2)
    assert [workers.count for workers in made] == [1, 2, 2]
    assert_same_losses(folder / "one", folder / "two")
    assert_same_weights(folder / "one", folder / "two")


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("unit", ["sentence", "stream"])
def test_two_resume_exactly(unit: str, accumulate: int, folder: Path) -> None:
    # Five rows of streams: the first process has three of them, the second two.
    config = tiny.config(dropout=0.2, unit=unit, batch_tokens=20, accumulate=accumulate)
    together(2, folder / "whole", config)
    together(2, folder / "run", config, stop_at=8)
    assert load_checkpoint(folder / "run").facts["step"] == 5
    together(2, folder / "run", None)
    for name in ("model-last", "model-best", CHECKPOINT_NAME):
        tiny.assert_equal(
            tiny.tensors(folder / "run" / name), tiny.tensors(folder / "whole" / name)
        )
    logs = [tiny.without_times(tiny.read_log(folder / name)) for name in ("run", "whole")]
    assert logs[0] == logs[1]


def test_a_run_of_two_can_be_resumed_by_one(folder: Path) -> None:
    config = tiny.config(unit="stream", batch_tokens=20, optimizer="adagrad", learn_rate=0.1)
    together(2, folder / "two", config)
    together(2, folder / "run", config, stop_at=8)
    together(1, folder / "run", None)
    assert_same_losses(folder / "run", folder / "two")
    assert_same_weights(folder / "run", folder / "two")


def test_torchrun_starts_processes_that_train_as_one(folder: Path) -> None:
    config = tiny.config(dropout=0.2, optimizer="adagrad", learn_rate=0.1, max_steps=10)
    Config(config.to_dict()).to_disk(folder / "settings.cfg")
    arguments = [str(folder / "in.txt"), str(folder / "two")]
    arguments += ["--heldout", str(folder / "held.txt"), "--config", str(folder / "settings.cfg")]
    # The last settings come from the command line, as with `spacy elmo pretrain`.
    arguments += ["--training.max_steps", "12", "--training.log_every=2", "--threads", "2"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", "2", "-m", "spacy_elmo.training"]
    result = subprocess.run(
        [*torchrun, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert result.returncode == 0, result.stderr
    same = tiny.config(dropout=0.2, optimizer="adagrad", learn_rate=0.1, log_every=2)
    together(1, folder / "one", same)
    assert_same_losses(folder / "one", folder / "two")
    assert_same_weights(folder / "one", folder / "two")
    # One of them writes and talks.
    assert result.stdout.count("Longer than") == result.stdout.count("Trained model") == 1
    names = [sorted(path.name for path in (folder / run).iterdir()) for run in ("one", "two")]
    assert set(names[1]) - set(names[0]) <= {"perplexity.png"} and set(names[0]) <= set(names[1])


@pytest.mark.parametrize("there", ["nothing", "another run", "an older copy"])
def test_a_folder_that_is_not_shared_is_an_error(there: str, folder: Path) -> None:
    config: Optional[PretrainConfig] = tiny.config(max_steps=6)
    run, other = folder / "run", folder / "other"
    if there == "another run":
        together(1, other, config)
    elif there == "an older copy":
        together(2, run, config, stop_at=6)
        shutil.copytree(run, other)
        config = None
    with pytest.raises(ElmoError, match="ELMO-E176.*1 of 2 processes.*all machines see"):
        together(2, run, config, folders=[run, other])
    together(2, run, config)
    assert tiny.read_log(run)[-1]["step"] == 6


def test_processes_wait_for_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one may prepare text for hours; torch's own limit is half an hour or less."""
    init = dist.init_process_group

    def init_alone(backend: str, **options: Any) -> None:
        init(backend, store=dist.HashStore(), rank=0, world_size=1, **options)

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "init_process_group", init_alone)
    try:
        group = join()
        assert group.world_size == 2 and dist.group.WORLD is not None
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        assert backend.options._timeout >= timedelta(days=2)
        # The number of milliseconds is an int in some places of torch.
        assert backend.options._timeout / timedelta(milliseconds=1) < 2**31
    finally:
        leave()


def test_processes_share_the_cores_of_their_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    shares = [available_cores()]
    for n in ("1", "4", "5", "16"):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", n)
        shares.append(available_cores())
    assert shares == [12, 12, 3, 2, 1]


def test_alone_nothing_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    group = join()
    assert group == Group(0, 1, torch.device("cpu")) and group.is_first
    tensor = torch.ones(3)
    group.sum([tensor])
    assert torch.equal(tensor, torch.ones(3)) and group.sum_values([2.0]) == [2.0]


@pytest.mark.skipif(torch.cuda.device_count() > 90, reason="has so many GPUs")
def test_a_gpu_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(ElmoError, match="ELMO-E081.*no GPU number 99"):
        join(99)
