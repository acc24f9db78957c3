"""Models in zip archives, as the NLPL repository and ELMoForManyLangs publish them."""

import shutil
import tempfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Dict, Iterator, List

from ...errors import ElmoError, Errors
from .detect import recognise


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A temporary folder with the model of an archive; it is gone when the block ends.

    Only the files of the folder of the archive that has the model are unpacked, under their bare
    names, so that no entry can be written anywhere else.

    :raises ElmoError: E037 if the archive is damaged or does not hold exactly one model.
    """
    try:
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as temp:
            for info in _members(archive, path):
                target = Path(temp) / _inner_path(info).name
                with archive.open(info) as source, target.open("wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
            yield Path(temp)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as err:
        raise ElmoError(Errors.E037.format(path=path, problem=err)) from err


def _members(archive: zipfile.ZipFile, path: Path) -> List[zipfile.ZipInfo]:
    folders: Dict[PurePosixPath, List[zipfile.ZipInfo]] = {}
    for info in archive.infolist():
        inner = _inner_path(info)
        # Archives made on a Mac have a shadow of every file.
        hidden = inner.name.startswith(".") or "__MACOSX" in inner.parts
        if not info.is_dir() and not hidden:
            folders.setdefault(inner.parent, []).append(info)
    models = [m for m in folders.values() if recognise([_inner_path(i).name for i in m])]
    if len(models) != 1:
        names = ", ".join(archive.namelist()[:12]) or "nothing"
        problem = f"it holds {len(models) or 'no'} models (files: {names})"
        raise ElmoError(Errors.E037.format(path=path, problem=problem))
    return models[0]


def _inner_path(info: zipfile.ZipInfo) -> PurePosixPath:
    return PurePosixPath(info.filename.replace("\\", "/"))
