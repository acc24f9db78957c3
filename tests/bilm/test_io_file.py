"""Single files are replaced as a whole, where links lead to, and nothing else is replaced."""

import os
import re
import stat
from pathlib import Path

import pytest

from spacy_elmo.bilm.io.atomic import replace_file
from spacy_elmo.errors import ElmoError


def write(path: Path, text: str) -> None:
    with replace_file(path) as temporary:
        temporary.write_text(text)


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("n_links", [1, 2])
def test_links_stay_and_their_file_is_written(tmp_path: Path, exists: bool, n_links: int) -> None:
    file = tmp_path / "disk" / "file.txt"
    file.parent.mkdir()
    if exists:
        file.write_text("old")
    links = [tmp_path / f"link{k}.txt" for k in range(n_links)]
    for link, target in zip(links, ["disk/file.txt", *links]):
        link.symlink_to(target)
    write(links[-1], "new")
    assert file.read_text() == links[-1].read_text() == "new"
    assert all(link.is_symlink() for link in links) and not file.is_symlink()
    with pytest.raises(RuntimeError), replace_file(links[-1]) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert file.read_text() == "new"
    assert [path.name for path in file.parent.iterdir()] == ["file.txt"]


def test_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(ElmoError, match="ELMO-E039.*a could not be written"):
        write(tmp_path / "a", "new")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"] and (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_other_things_than_files_are_not_replaced(tmp_path: Path, kind: str, linked: bool) -> None:
    path = tmp_path / "output"
    if kind == "pipe":
        if not hasattr(os, "mkfifo"):
            pytest.skip("the system has no named pipes")
        # Not a device of the system: the test would be the end of it where it fails.
        os.mkfifo(path)
    else:
        path.mkdir()
    before = path.stat()
    if linked:
        (tmp_path / "link").symlink_to(path)
        path = tmp_path / "link"
    found = "a folder" if kind == "folder" else "a pipe, socket or device"
    shown = re.escape(f"{path} could not be written: it is {found}")
    with pytest.raises(ElmoError, match=f"ELMO-E039.*{shown}"):
        write(path, "new")
    after = path.stat()
    assert (after.st_ino, stat.S_IFMT(after.st_mode)) == (
        before.st_ino,
        stat.S_IFMT(before.st_mode),
    )
    assert path.is_symlink() == linked
