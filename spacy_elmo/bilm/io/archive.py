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
                target = Path(temp) / PurePosixPath(info.filename).name
                with archive.open(info) as source, target.open("wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
            yield Path(temp)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as err:
        raise ElmoError(Errors.E037.format(path=path, problem=err)) from err


def _members(archive: zipfile.ZipFile, path: Path) -> List[zipfile.ZipInfo]:
    folders: Dict[str, List[zipfile.ZipInfo]] = {}
    for info in archive.infolist():
        name = PurePosixPath(info.filename.replace("\\", "/"))
        # Archives made on a Mac have a shadow of every file.
        hidden = any(part == "__MACOSX" or part.startswith(".") for part in name.parts[:-1])
        if not info.is_dir() and not hidden and not name.name.startswith("."):
            folders.setdefault(str(name.parent), []).append(info)
    models = [
        infos
        for infos in folders.values()
        if recognise([PurePosixPath(i.filename.replace("\\", "/")).name for i in infos])
    ]
    if len(models) != 1:
        names = ", ".join(archive.namelist()[:12]) or "nothing"
        problem = f"it holds {len(models) or 'no'} models (files: {names})"
        raise ElmoError(Errors.E037.format(path=path, problem=problem))
    return models[0]
