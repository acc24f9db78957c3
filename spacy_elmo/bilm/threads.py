"""Two things at once: the two directions of a biLM, each on its own thread."""

import contextlib
import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Callable, Iterator, Optional, Tuple, TypeVar

import torch

A = TypeVar("A")
B = TypeVar("B")


#: Threads for each of two functions, 0 for one after the other; and all that there are.
_each: "ContextVar[int]" = ContextVar("spacy_elmo_threads", default=0)
_all: "ContextVar[int]" = ContextVar("spacy_elmo_all_threads", default=1)
_pool: Optional[ThreadPoolExecutor] = None
_lock = threading.Lock()


def _forget_threads() -> None:
    # Threads do not survive a fork, and a lock may have been held by one of them.
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def available_threads() -> int:
    """Threads to compute with: torch's setting, but one in a worker process.

    `nlp.pipe(n_process=...)` starts as many processes as there are cores; more threads in each
    would only get into each other's way. And OpenMP's own do not survive a fork.
    """
    if multiprocessing.parent_process() is not None:
        return 1
    return torch.get_num_threads()


@contextlib.contextmanager
def shared_threads() -> Iterator[None]:
    """Have this thread use half of the threads that torch may use, for `run_both` inside.

    The libraries below torch have one setting for all threads of the process, so it is put back
    afterwards. How products are split over threads shows in their last bits, which is why work
    that `run_both` does not share belongs inside as well.
    """
    before, available = torch.get_num_threads(), available_threads()
    each = max(1, available // 2)
    token = _each.set(each if available >= 2 else 0)
    all_token = _all.set(available)
    if before != each:
        torch.set_num_threads(each)
    try:
        yield
    finally:
        _all.reset(all_token)
        _each.reset(token)
        if before != each:
            torch.set_num_threads(before)


@contextlib.contextmanager
def undivided_threads() -> Iterator[None]:
    """Use all threads again, inside of `shared_threads`, and have `run_both` not share."""
    each = _each.get()
    if not each:
        yield
        return
    token = _each.set(0)
    torch.set_num_threads(_all.get())
    try:
        yield
    finally:
        torch.set_num_threads(each)
        _each.reset(token)


def run_both(
    first: Callable[[], A], second: Callable[[], B], *, at_once: bool = True
) -> Tuple[A, B]:
    """Run two functions at the same time; only inside of `shared_threads`.

    The first runs in the caller's thread. With one thread, or if they are too short for two to
    pay (`at_once`), they run one after the other.
    """
    global _pool
    each = _each.get()
    if not (each and at_once):
        return first(), second()
    with _lock:
        if _pool is None:
            workers = max(1, (os.cpu_count() or 1) // 2)
            _pool = ThreadPoolExecutor(workers, thread_name_prefix="spacy-elmo")
    future = _pool.submit(_in_worker, second, each)
    try:
        mine = first()
    finally:
        # Also after an error: the other one uses what the caller may take away.
        with contextlib.suppress(Exception):
            future.exception()
    return mine, future.result()


def _in_worker(function: Callable[[], B], threads: int) -> B:
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    with torch.inference_mode():
        return function()
