"""A file for HDF5 to write to that never fails before its eyes.

When a write fails (a full disk), the HDF5 library is left with objects that can be neither written
nor dropped: h5py prints a traceback for each of them, and the process may end with a segmentation
fault. So a failure is noted here, what could not be written is kept in memory, and the writer,
who looks at `error` after each dataset, ends the file in peace and raises then.
"""

from pathlib import Path
from typing import Any, List, Optional, Tuple


class Sink:
    """What h5py's driver "fileobj" wants of a file.

    :param path: The file, which is made or emptied.
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "w+b", buffering=0)
        self._position = 0
        self._kept: List[Tuple[int, bytes]] = []
        #: The first error of the system, None if there was none.
        self.error: Optional[OSError] = None

    def check(self) -> None:
        """Raise the error, if there was one."""
        if self.error is not None:
            raise self.error

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place; behind the end as well."""
        if whence == 1:
            offset += self._position
        elif whence == 2:
            end = self._file.seek(0, 2)
            offset += max([end, *(start + len(data) for start, data in self._kept)])
        self._position = offset
        return offset

    def tell(self) -> int:
        """The current place."""
        return self._position

    def write(self, data: Any) -> int:
        """Write all of the data, to memory once the disk has refused some."""
        view = memoryview(data).cast("B")
        if self.error is None:
            try:
                self._file.seek(self._position)
                written = 0
                while written < len(view):
                    written += self._file.write(view[written:]) or 0
            except OSError as err:
                self.error = err
        if self.error is not None:
            self._kept.append((self._position, bytes(view)))
        self._position += len(view)
        return len(view)

    def readinto(self, buffer: Any) -> int:
        """Read what was written, wherever it went, and zeros where nothing was."""
        view = memoryview(buffer).cast("B")
        start, stop = self._position, self._position + len(view)
        self._file.seek(start)
        n_read = 0
        while n_read < len(view):
            n = self._file.readinto(view[n_read:])
            if not n:
                break
            n_read += n
        view[n_read:] = bytes(len(view) - n_read)
        for place, data in self._kept:
            a, b = max(start, place), min(stop, place + len(data))
            if a < b:
                view[a - start : b - start] = data[a - place : b - place]
        self._position = stop
        return len(view)

    def read(self, size: int) -> bytes:
        """As `readinto`; h5py knows a file by this method."""
        data = bytearray(size)
        self.readinto(data)
        return bytes(data)

    def truncate(self, size: Optional[int] = None) -> int:
        """Set the size; HDF5 does so at the end."""
        size = self._position if size is None else size
        if self.error is None:
            try:
                self._file.truncate(size)
            except OSError as err:
                self.error = err
        return size

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()
