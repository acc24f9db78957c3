"""Parquet: a row for each item, for engines that work on tables.

Columns: ``index``, ``tokens`` and ``text`` (if they are stored), and ``vectors``, or ``layer_0`` to
``layer_L`` if all layers are kept, so that one can be read without the others. Vectors are lists of
fixed-size lists: a row for each token.
"""

import itertools
import json
from bisect import bisect_right
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from ..errors import ElmoError, Errors
from .stored import FORMAT_NAME, Manifest, Reader, Source, Stored

#: So many bytes of vectors, or so many rows, end a row group.
GROUP_BYTES, GROUP_ROWS = 32 * 2**20, 65536


def import_pyarrow(path: Path) -> Any:
    """pyarrow, or a coded error."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as err:
        raise ElmoError(
            Errors.E137.format(path=path, package="pyarrow", problem=err, extra="arrow")
        ) from err
    return pyarrow


def vector_columns(manifest: Manifest) -> List[str]:
    """Names of the columns with vectors."""
    if manifest["selection"]["kind"] != "all":
        return ["vectors"]
    return [f"layer_{i}" for i in range(manifest["n_layers"])]


def to_table(manifest: Manifest, items: Sequence[Stored]) -> Any:
    """A pyarrow table of items. The manifest says what their vectors are."""
    pyarrow = import_pyarrow(Path("Parquet"))
    columns: Dict[str, Any] = {"index": pyarrow.array([i.index for i in items], pyarrow.int64())}
    if manifest["sentences"]:
        columns["tokens"] = pyarrow.array(
            [item.tokens for item in items], pyarrow.list_(pyarrow.string())
        )
        columns["text"] = pyarrow.array([item.text for item in items], pyarrow.string())
    width = manifest["width"]
    all_layers = manifest["selection"]["kind"] == "all"
    for number, name in enumerate(vector_columns(manifest)):
        rows = [item.vectors[number] if all_layers else item.vectors for item in items]
        flat = np.concatenate(rows or [np.zeros((0, width), manifest["dtype"])])
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int32)
        values = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(flat.reshape(-1)), width)
        columns[name] = pyarrow.ListArray.from_arrays(pyarrow.array(offsets), values)
    table = pyarrow.table(columns)
    return table.replace_schema_metadata({FORMAT_NAME: json.dumps(manifest)})


def write_parquet(path: Path, manifest: Manifest, source: Source, compress: bool) -> None:
    """Write a file.

    :raises ElmoError: E137 if pyarrow is missing.
    """
    pyarrow = import_pyarrow(path)
    schema = to_table(manifest, []).schema
    options: Dict[str, Any] = {"compression": "none"}
    if compress:
        options = {"compression": "zstd", "use_byte_stream_split": _leaves(manifest)}
    # Dictionaries of floats are a waste; statistics of vectors mean nothing.
    options.update(use_dictionary=False, write_statistics=["index"])
    with pyarrow.parquet.ParquetWriter(path, schema, **options) as writer:
        group: List[Stored] = []
        n_bytes = 0
        for item in source():
            group.append(item)
            n_bytes += item.vectors.nbytes
            if n_bytes >= GROUP_BYTES or len(group) == GROUP_ROWS:
                writer.write_table(to_table(manifest, group))
                group, n_bytes = [], 0
        if group:
            writer.write_table(to_table(manifest, group))


def _leaves(manifest: Manifest) -> List[str]:
    return [f"{name}.list.element.list.element" for name in vector_columns(manifest)]


class ParquetReader(Reader):
    """Items of such a file, or of a folder of such files in any order, with its index.

    Memory holds one row group.

    :raises ElmoError: E137 if pyarrow is missing, E138 if the file is something else.
    """

    def __init__(
        self, path: Path, manifest: Optional[Manifest] = None, files: Sequence[Path] = ()
    ) -> None:
        self._pyarrow = import_pyarrow(path)
        self.path = path
        self._paths = list(files) or [path]
        self._groups: List[Tuple[int, int]] = []
        self._starts = [0]
        self._open_number = -1
        self._file: Any = None
        indices = [np.zeros(0, np.int64)]
        for number in range(len(self._paths)):
            file = self._open(number)
            for group in range(file.num_row_groups):
                self._groups.append((number, group))
                self._starts.append(self._starts[-1] + file.metadata.row_group(group).num_rows)
            if files:
                indices.append(file.read(["index"])["index"].to_numpy())
        if manifest is None:
            found = (self._open(0).schema_arrow.metadata or {}).get(FORMAT_NAME.encode())
            if found is None:
                self.close()
                problem = "it is Parquet of another origin"
                raise ElmoError(Errors.E138.format(path=path, problem=problem))
            manifest = json.loads(found)
        self.manifest: Manifest = manifest
        # Rows of a single file are in order; those of a folder are as they came.
        self._order: Optional[np.ndarray] = None
        if files:
            together = np.concatenate(indices)
            self._order = np.argsort(together, kind="stable")
            if not np.array_equal(together[self._order], np.arange(manifest["n_items"])):
                self.close()
                problem = f"its rows are not those of the items 0 to {manifest['n_items'] - 1}"
                raise ElmoError(Errors.E138.format(path=path, problem=problem))
        #: The row group that is in memory.
        self._number = -1
        self._group: Dict[str, Any] = {}

    def __len__(self) -> int:
        return self._starts[-1]

    def get(self, position: int) -> Stored:
        """The item at a position from 0."""
        row = position if self._order is None else int(self._order[position])
        self._read(bisect_right(self._starts, row) - 1)
        row -= self._starts[self._number]
        group = self._group
        arrays = []
        for name in vector_columns(self.manifest):
            values, offsets = group[name]
            arrays.append(values[offsets[row] : offsets[row + 1]])
        vectors = np.stack(arrays) if self.manifest["selection"]["kind"] == "all" else arrays[0]
        tokens, text = None, None
        if self.manifest["sentences"]:
            tokens, text = group["tokens"][row].as_py(), group["text"][row].as_py()
        return Stored(int(group["index"][row].as_py()), vectors.copy(), tokens, text)

    def _read(self, number: int) -> None:
        if number == self._number:
            return
        file, row_group = self._groups[number]
        table = self._open(file).read_row_group(row_group)
        self._group = {name: table[name].combine_chunks() for name in table.column_names}
        for name in vector_columns(self.manifest):
            column = self._group[name]
            lengths = column.value_lengths().to_numpy(zero_copy_only=False)
            offsets = list(itertools.accumulate(lengths.tolist(), initial=0))
            flat = column.flatten().flatten().to_numpy(zero_copy_only=False)
            self._group[name] = (flat.reshape(-1, self.manifest["width"]), offsets)
        self._number = number

    def _open(self, number: int) -> Any:
        """One file at a time, since a folder may have more than a process may open."""
        if number != self._open_number:
            self.close()
            try:
                self._file = self._pyarrow.parquet.ParquetFile(self._paths[number])
            except (OSError, self._pyarrow.ArrowInvalid) as err:
                raise ElmoError(Errors.E138.format(path=self._paths[number], problem=err)) from err
            self._open_number = number
        return self._file

    def close(self) -> None:
        """Close the file that is open."""
        if self._file is not None:
            self._file.close()
        self._open_number, self._file = -1, None
