"""The folder of an unfinished output, and the journal of what is done.

The journal's first line says which run this is, each further one names a part that is whole and
safe on the disk. A process that is killed leaves at most half a line and half a part, which the
next one drops.
"""

import json
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

from ..errors import ElmoError, Errors
from ..lock import LOCK_NAME, FolderLock

JOURNAL_NAME = "journal.jsonl"


class Journal:
    """A run's folder, locked while it is open.

    :param folder: The folder; made if there is none.
    :raises ElmoError: E136 if another process has it open, E135 if it is not a run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: What the run is, None if it is new.
        self.header: Optional[Dict[str, Any]] = None
        self.parts: List[Dict[str, Any]] = []
        #: Identity of the assembled output, once it is about to be put in place.
        self.assembled: Optional[Dict[str, int]] = None
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = FolderLock(folder)
        except BlockingIOError as err:
            raise ElmoError(Errors.E136.format(path=folder)) from err
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unlock the folder."""
        self._lock.close()

    # -- reading -------------------------------------------------------------------------

    def _read(self) -> None:
        path = self.folder / JOURNAL_NAME
        if not path.exists():
            foreign = [p.name for p in self.folder.iterdir() if not _is_ours(p.name)]
            if foreign:
                differences = f"there is no journal, but {', '.join(sorted(foreign)[:5])}"
                raise ElmoError(Errors.E135.format(path=self.folder, differences=differences))
            return
        good = 0
        for line in path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
            except ValueError as err:
                problem = f"its journal cannot be read from byte {good} on"
                raise ElmoError(Errors.E135.format(path=self.folder, differences=problem)) from err
            good += len(line)
            self._take(entry)
        os.truncate(path, good)

    def verify(self) -> None:
        """Check that all parts are there, and remove what is half written.

        :raises ElmoError: E135 if a part that was finished is not.
        """
        for part in self.parts:
            file = self.folder / part["file"]
            if not file.exists() or file.stat().st_size != part["bytes"]:
                problem = f"{part['file']} is missing or not {part['bytes']:,} bytes long"
                raise ElmoError(Errors.E135.format(path=self.folder, differences=problem))
        known = {part["file"] for part in self.parts}
        for path in self.folder.glob("part-*"):
            if path.name not in known:
                path.unlink()

    def _take(self, entry: Dict[str, Any]) -> None:
        if self.header is None:
            self.header = entry
        elif "assembled" in entry:
            self.assembled = entry["assembled"]
        else:
            self.parts.append(entry)

    # -- writing -------------------------------------------------------------------------

    def begin(self, header: Dict[str, Any]) -> None:
        """Say which run this is."""
        self.header = header
        self._append(header)

    def add(self, part: Dict[str, Any]) -> None:
        """Note a finished part: its "file", "bytes", "n_items" and "n_tokens"."""
        self.parts.append(part)
        self._append(part)

    def will_place(self, path: Path) -> None:
        """Note that an assembled file or folder is about to become the output."""
        self.assembled = identity(path)
        self._append({"assembled": self.assembled})

    def placed(self, output: Path) -> bool:
        """Whether the output is what this run has assembled."""
        return self.assembled is not None and identity(output) == self.assembled

    def _append(self, entry: Dict[str, Any]) -> None:
        with open(self.folder / JOURNAL_NAME, "ab") as file:
            file.write(json.dumps(entry).encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())

    # -- ending --------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget all that was done, to begin anew."""
        for path in self.folder.iterdir():
            if path.name != LOCK_NAME:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.header, self.parts, self.assembled = None, [], None

    def remove(self) -> None:
        """Remove the folder; the journal last, so that a kill in between leaves it readable."""
        for path in self.folder.iterdir():
            if path.name not in (LOCK_NAME, JOURNAL_NAME):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.close()
        shutil.rmtree(self.folder)


def identity(path: Path) -> Dict[str, int]:
    """What a file or folder keeps when it is renamed, and no other one shares."""
    status = os.stat(path)
    return {"device": status.st_dev, "inode": status.st_ino}


def _is_ours(name: str) -> bool:
    return name in (LOCK_NAME, JOURNAL_NAME, "assembled", "replaced") or name.startswith("part-")
