"""Files and folders that are replaced as a whole: a reader finds the old or the new, never half."""

import ctypes
import os
import re
import secrets
import shutil
import stat
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Collection, Iterator, Union

from ...errors import ElmoError, Errors

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}\.tmp")


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")


def remove_leftovers(directory: Path, names: Collection[str]) -> None:
    """Delete what writers that were killed left in a folder.

    :param names: Files and folders that nobody is writing now. Others may be: what belongs to
        them stays.
    """
    for entry in directory.iterdir():
        leftover = _LEFTOVER.fullmatch(entry.name)
        if leftover is None or leftover["name"] not in names:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


@contextmanager
def replace_file(path: Union[str, Path]) -> Iterator[Path]:
    """Give a name to write to; at the end the file takes the place of ``path``.

    If the body raises, ``path`` is as it was before.

    :param path: The file to make or to replace; folders are made. Of a link, the file that it
        leads to.
    :raises ElmoError: E039 if it cannot be written.
    """
    try:
        target = _file_behind(path)
        temporary = _temporary(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as err:
        raise ElmoError(Errors.E039.format(path=path, problem=err.strerror or err)) from err


def _file_behind(path: Union[str, Path]) -> Path:
    """The file that a path means, whether it exists or not, with all links followed."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    if not stat.S_ISREG(mode):
        # Renaming a file to its name would put an end to the pipe or device.
        found = "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device"
        problem = f"it is {found}, but a file is expected"
        raise ElmoError(Errors.E039.format(path=path, problem=problem))
    return Path(os.path.realpath(path))


@contextmanager
def replace_folder(path: Union[str, Path], own_files: Collection[str]) -> Iterator[Path]:
    """Give an empty folder to write into; at the end it takes the place of ``path``.

    If the body raises, ``path`` is as it was before. An existing folder is only replaced if it
    holds nothing else than a model would: nobody loses files by naming a wrong folder.

    :param path: The folder to make or to replace; parents are made.
    :param own_files: Names that a model of this format may consist of.
    :raises ElmoError: E034 if ``path`` is something else, E039 if it cannot be written.
    """
    target = Path(path).resolve()
    _check_replaceable(target, own_files, path)
    work = _temporary(target)
    try:
        work.mkdir(parents=True)
        yield work
        _put_in_place(work, target)
    except OSError as err:
        raise ElmoError(Errors.E039.format(path=path, problem=err)) from err
    finally:
        # Holds the new files if something failed, the old ones if they were exchanged.
        shutil.rmtree(work, ignore_errors=True)


def _check_replaceable(target: Path, own_files: Collection[str], path: Union[str, Path]) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise ElmoError(Errors.E034.format(path=path, found="it is a file"))
    foreign = sorted(
        entry.name for entry in target.iterdir() if entry.name not in own_files or entry.is_dir()
    )
    if foreign:
        shown = ", ".join(foreign[:8]) + (", ..." if len(foreign) > 8 else "")
        raise ElmoError(
            Errors.E034.format(path=path, found=f"the folder holds other files ({shown})")
        )


def _put_in_place(work: Path, target: Path) -> None:
    if not target.exists():
        work.rename(target)
    elif not _exchange(work, target):
        # Two steps where the system cannot exchange folders. Each leaves whole models only:
        # a kill in between leaves the old one under the name of `aside`.
        aside = work.with_suffix(".old")
        target.rename(aside)
        try:
            work.rename(target)
        except OSError:
            aside.rename(target)
            raise
        shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; whether the system could do it."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    result: int = rename(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE
    )
    return result == 0
