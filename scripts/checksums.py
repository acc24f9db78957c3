"""Checksums of the files that project.yml names.

`python -m spacy project assets` says when a checksum is wrong, but keeps the file and ends well. So
the first command of the workflows checks again.
"""

import hashlib
from pathlib import Path
from typing import Dict

import srsly

from spacy_elmo.errors import ElmoError, Errors


def load_checksums(project: Path) -> Dict[str, str]:
    """MD5 of each asset that has one, by file name."""
    assets = srsly.read_yaml(project).get("assets", [])
    return {Path(a["dest"]).name: a["checksum"] for a in assets if a.get("checksum")}


def verify(name: str, path: Path, data: bytes, checksums: Dict[str, str]) -> bool:
    """Compare what a file holds (unpacked) with its checksum; whether there is one.

    name (str): The file's name in project.yml.
    path (Path): Where it was found, for the message.
    data (bytes): What it holds.
    checksums (Dict[str, str]): What `load_checksums` gave.
    :raises ElmoError: E121 if the two differ.
    """
    expected = checksums.get(name)
    if expected is None:
        return False
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if found != expected:
        raise ElmoError(Errors.E121.format(path=path, found=found, expected=expected))
    return True
