"""The output formats by name."""

import json
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from ..errors import ElmoError, Errors
from .hdf5 import Hdf5Reader, import_h5py, write_hdf5
from .npz import NpzReader, write_npz
from .parquet import ParquetReader, import_pyarrow, write_parquet
from .parts import read_part
from .safetensors_folder import INDEX_NAME, SafetensorsReader, write_safetensors
from .stored import FORMAT_NAME, FORMAT_VERSION, Manifest, Reader, Stored

#: Endings of each format; an output named otherwise needs its format named.
SUFFIXES: Dict[str, Tuple[str, ...]] = {
    "hdf5": (".hdf5", ".h5"),
    "npz": (".npz",),
    "safetensors": (".safetensors",),
    "parquet": (".parquet", ".pq"),
}
_WRITERS = {"hdf5": write_hdf5, "npz": write_npz, "parquet": write_parquet}
#: Formats that are written without copying the finished parts.
IN_PLACE = ("safetensors",)
#: Formats whose output is a folder.
FOLDERS = ("safetensors",)


def format_of(output: Path, format: Optional[str] = None) -> str:
    """Format of an output, by its name unless it is said.

    :raises ElmoError: E130 if neither tells it.
    """
    for name, suffixes in SUFFIXES.items():
        if format == name or (format is None and output.suffix.lower() in suffixes):
            return name
    expected = ", ".join(f"{name} ({', '.join(ends)})" for name, ends in SUFFIXES.items())
    found = format if format is not None else output.suffix
    raise ElmoError(Errors.E130.format(path=output, found=found, expected=expected))


def check_format(format: str, output: Path, compress: bool) -> None:
    """Find out before the work whether its result can be written.

    :raises ElmoError: E028, E137 if a package is missing, E094 for compression that a format has
        not.
    """
    if format == "hdf5":
        import_h5py(output)
    elif format == "parquet":
        import_pyarrow(output)
    elif format == "safetensors" and compress:
        expected = "no compression, which safetensors does not have,"
        raise ElmoError(Errors.E094.format(name="compress", found=True, expected=expected))


def assemble(
    format: str,
    path: Path,
    manifest: Manifest,
    parts: Sequence[Tuple[Path, int]],
    compress: bool,
    told: Callable[[float], object] = lambda share: None,
) -> None:
    """Write an output from finished parts, which come with the numbers of their items.

    :param told: Told after each item which share of the work is done, up to 1.
    """
    if format == "safetensors":
        write_safetensors(path, manifest, parts, told)
        return
    # npz has the tokens of all items in a place of their own, behind the vectors.
    n_passes = 2 if format == "npz" and manifest["sentences"] else 1
    n_done = 0

    def source() -> Iterator[Stored]:
        nonlocal n_done
        for part, _ in parts:
            for item in read_part(part):
                yield item
                n_done += 1
                told(n_done / (n_passes * manifest["n_items"]))

    _WRITERS[format](path, manifest, source, compress)


def open_reader(path: Path) -> Reader:
    """Open one file or folder, whatever its name.

    :raises ElmoError: E138 if it is none of ours.
    """
    if path.is_dir():
        return _open_folder(path)
    try:
        with open(path, "rb") as file:
            start = file.read(8)
    except OSError as err:
        problem = err.strerror or err
        raise ElmoError(Errors.E138.format(path=path, problem=problem)) from err
    if start == b"\x89HDF\r\n\x1a\n":
        return checked(Hdf5Reader(path))
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return checked(NpzReader(path))
    if start.startswith(b"PAR1"):
        return checked(ParquetReader(path))
    problem = "it is neither HDF5, npz, Parquet nor a folder of safetensors"
    raise ElmoError(Errors.E138.format(path=path, problem=problem))


def _open_folder(path: Path) -> Reader:
    try:
        manifest = json.loads((path / INDEX_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        problem = f"the folder has no {INDEX_NAME} that can be read"
        raise ElmoError(Errors.E138.format(path=path, problem=problem)) from err
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT_NAME:
        problem = f"its {INDEX_NAME} is of something else"
        raise ElmoError(Errors.E138.format(path=path, problem=problem))
    if manifest.get("container") == "parquet":
        files: List[Path] = sorted(path.glob("*.parquet"))
        return checked(ParquetReader(path, manifest, files))
    return checked(SafetensorsReader(path, manifest))


def checked(reader: Reader) -> Reader:
    """The reader, if its file is of a version that this release knows.

    :raises ElmoError: E138 for a newer one.
    """
    version = reader.manifest.get("version", FORMAT_VERSION)
    if version > FORMAT_VERSION:
        reader.close()
        problem = f"it has version {version} of the format, this release reads {FORMAT_VERSION}"
        raise ElmoError(Errors.E138.format(path=reader.path, problem=problem))
    return reader
