"""One process holds a folder at a time, and what killed writers left is told from others' work."""

import errno
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spacy_elmo.bilm.io.atomic import remove_leftovers
from spacy_elmo.lock import LOCK_NAME, FolderLock, signature


def test_a_folder_is_held_once_until_it_is_let_go(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with closing(FolderLock(tmp_path)) as lock:
        lock.sign("first, for all to read")
        lock.sign("12")
        for _ in range(2):
            with pytest.raises(BlockingIOError):
                FolderLock(tmp_path)
        # Who is refused does not spoil it.
        assert signature(tmp_path) == "12"
    FolderLock(tmp_path).close()
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]
    assert signature(tmp_path / "other") is None


def test_a_file_system_without_locks_is_used_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def no_locks(*args: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with closing(FolderLock(tmp_path)), closing(FolderLock(tmp_path)) as lock:
        lock.sign("3")
    assert signature(tmp_path) == "3"


def test_only_leftovers_of_the_given_names_are_removed(tmp_path: Path) -> None:
    kept = [".out.tsv.0123456789ab.tmp", ".a.b.tmp", "a.0123456789ab.tmp", ".a.xyz.tmp", "a"]
    gone = [".a.0123456789ab.tmp", ".a.ba9876543210.tmp", ".b.txt.0123456789ab.tmp"]
    for name in (*kept, *gone[1:]):
        (tmp_path / name).write_text("half")
    (tmp_path / gone[0]).mkdir()
    (tmp_path / gone[0] / "file").write_text("half")
    remove_leftovers(tmp_path, ("a", "b.txt"))
    assert {path.name for path in tmp_path.iterdir()} == set(kept)
