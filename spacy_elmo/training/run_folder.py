"""The folder of a run: one run writes to it at a time, and all of its processes see it."""

import secrets
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Iterator, Optional

from ..errors import ElmoError, Errors
from ..lock import FolderLock, signature
from .distributed import Group


@contextmanager
def locked(folder: Path, group: Group) -> Iterator[Optional[FolderLock]]:
    """Make the folder where there is none, and keep other runs out of it.

    :returns: The lock, which the first process holds for all; None in the others.
    :raises ElmoError: E175 if another run is in it, E083 if it cannot be made or written.
    """
    if not group.is_first:
        yield None
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder)
    except BlockingIOError as err:
        raise ElmoError(Errors.E175.format(path=folder)) from err
    except OSError as err:
        raise ElmoError(Errors.E083.format(path=folder, problem=err.strerror or err)) from err
    with closing(lock):
        yield lock


def meet(folder: Path, lock: Optional[FolderLock], group: Group) -> None:
    """Wait for the first process, and see to it that all have the folder that it has prepared.

    Another machine may have another run under the same path. So what all look for is a number
    that is drawn anew each time.

    :param lock: What :func:`locked` gave.
    :raises ElmoError: E176, in all processes, if one of them has not.
    """
    if group.world_size == 1:
        return
    drawn = 0
    if lock is not None:
        drawn = secrets.randbits(50)  # exact as a float
        lock.sign(str(drawn))
    number = int(group.sum_values([float(drawn)])[0])
    n = int(group.sum_values([float(signature(folder) != str(number))])[0])
    if n:
        raise ElmoError(Errors.E176.format(n=n, world_size=group.world_size, path=folder))
