"""Freed memory goes back to the system now and then, unless a training wants to keep it."""

import os
import platform
from typing import Any, Dict, List, Tuple

import pytest
import spacy

from spacy_elmo.bilm import BiLM, allocator


class FakeC:
    """glibc's functions, and a clock that only they move on."""

    def __init__(self) -> None:
        self.now, self.trims = 1000.0, 0
        self.settings: List[Tuple[int, int]] = []
        self.functions: Dict[str, Any] = {"malloc_trim": self.trim, "mallopt": self.mallopt}

    def trim(self, pad: int) -> int:
        assert pad == 0
        self.trims += 1
        self.now += 0.01
        return 1

    def mallopt(self, parameter: int, value: int) -> int:
        self.settings.append((parameter, value))
        return 1


@pytest.fixture
def c(monkeypatch: pytest.MonkeyPatch) -> FakeC:
    fake = FakeC()
    monkeypatch.setattr(allocator, "_c_function", lambda name: fake.functions.get(name))
    monkeypatch.setattr(allocator, "_returner", allocator._Returner())
    monkeypatch.setattr(allocator, "monotonic", lambda: fake.now)
    return fake


def test_memory_is_given_back_after_so_many_results(
    c: FakeC, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = BiLM.load("en_mini")
    n_bytes = 4 * model.n_layers * model.width * 10
    monkeypatch.setattr(allocator, "RETURN_EVERY", 3 * n_bytes)
    sentences = [["word"] * 10]
    for _ in range(2):
        model.embed(sentences)
    assert c.trims == 0
    model.embed(sentences)
    assert c.trims == 1
    # What took ten milliseconds is not done again within a second.
    for _ in range(6):
        model.embed(sentences)
    assert c.trims == 1
    c.now += 1.01
    model.embed(sentences)
    assert c.trims == 2


def test_memory_is_given_back_when_a_stream_ends(c: FakeC) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo")
    text = "one two three four five six seven eight nine ten"
    list(nlp.pipe([text]))
    # A few small ones are not worth it.
    assert c.trims == 0
    docs = -(-allocator.RETURN_LAST // (4 * 3 * 256 * 10))
    stream = nlp.pipe(f"{text[3:]} {i}" for i in range(docs))
    for _ in range(docs):
        next(stream)
    assert c.trims == 0
    assert next(stream, None) is None
    assert c.trims == 1


def test_many_short_streams_do_not_give_back_each_time(c: FakeC) -> None:
    for _ in range(2):
        allocator.return_freed_memory(allocator.RETURN_LAST)
        allocator.return_freed_memory(0, ends=True)
    assert c.trims == 1
    c.now += 0.31
    allocator.return_freed_memory(0, ends=True)
    assert c.trims == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_does_not_wait_for_a_lock_of_its_parent(c: FakeC) -> None:
    with allocator._returner._lock:
        pid = os.fork()
        if pid == 0:
            allocator.return_freed_memory(allocator.RETURN_EVERY)
            os._exit(c.trims)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert c.trims == 0


def test_a_training_keeps_it(c: FakeC) -> None:
    assert allocator.keep_freed_memory()
    assert {parameter for parameter, _ in c.settings} == {-1, -2, -3}
    allocator.return_freed_memory(10 * allocator.RETURN_EVERY)
    assert c.trims == 0


def test_glibc_is_really_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    returner = allocator._Returner()
    monkeypatch.setattr(allocator, "_returner", returner)
    assert returner._took == 0.0
    allocator.return_freed_memory(allocator.RETURN_EVERY)
    # How long it took is known only if it was called.
    assert (returner._took > 0.0) == (platform.libc_ver()[0] == "glibc")


def test_other_c_libraries_are_left_alone(c: FakeC) -> None:
    c.functions.clear()
    allocator.return_freed_memory(10 * allocator.RETURN_EVERY)
    assert not allocator.keep_freed_memory()
