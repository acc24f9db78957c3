"""An exclusive lock of a folder, for what is written over a long time and must not be by two."""

import os
from pathlib import Path
from typing import BinaryIO, Optional

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_NAME = "lock"


class FolderLock:
    """Holds a folder until it is closed.

    It is a lock of the system, which goes away with the process however that ends; the file
    stays, and means nothing by itself. Where there are no such locks (Windows, some network file
    systems) nothing is locked.

    :param folder: An existing folder.
    :raises BlockingIOError: if it is held already.
    :raises OSError: if the file cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        # Not "w": what the holder has written must stay if this is refused.
        self._file: BinaryIO = open(folder / LOCK_NAME, "ab")
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise
        except OSError:
            pass  # The file system has no locks.

    def sign(self, text: str) -> None:
        """Put a text into the file, which :func:`signature` reads, on other machines too."""
        self._file.truncate(0)
        self._file.write(text.encode("utf-8"))
        self._file.flush()
        # Network file systems show others what was written when it is synchronised or closed.
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let the folder go."""
        self._file.close()


def signature(folder: Path) -> Optional[str]:
    """What the holder of a folder's lock has put there, None if there is no such file."""
    try:
        return (folder / LOCK_NAME).read_text(encoding="utf-8")
    except OSError:
        return None
