"""Torch in a forked process, such as the workers of `nlp.pipe(n_process=2)` on Linux."""

import os
from typing import Protocol
from weakref import WeakSet

import torch

_home = os.getpid()


class PreparableT(Protocol):
    """Something that has work to do which forked processes can share."""

    def prepare(self) -> None:
        """Do it."""


_preparable: "WeakSet[PreparableT]" = WeakSet()


def before_fork(thing: PreparableT) -> None:
    """Have `thing.prepare()` called before the process forks, for as long as it lives."""
    _preparable.add(thing)


def _prepare() -> None:
    for thing in list(_preparable):
        thing.prepare()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_prepare)


def mind_fork() -> None:
    """In a child that was forked, go down to one thread; to be called before torch computes.

    If the parent has computed with several threads, the child inherits the bookkeeping of an
    OpenMP pool whose threads do not exist there, and the first operation that wants them waits
    for ever. With one thread the pool is not touched. The workers are parallel among themselves.
    """
    global _home
    if os.getpid() != _home:
        _home = os.getpid()
        torch.set_num_threads(1)
