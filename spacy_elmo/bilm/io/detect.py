"""Find out which files make up the model that a user named."""

import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Collection, List, Optional, Union

from ...errors import ElmoError, Errors
from . import bilm_hdf5, many_langs, native
from .sniff import describe_file

#: Folder of the weights that are installed with the package.
BUILTIN_FOLDER = Path(__file__).parents[2] / "models"

_EXPECTED = (
    f"{native.WEIGHTS_NAME} with {native.CONFIG_NAME} (native), options.json with an .hdf5 file "
    f"(bilm-tf, AllenNLP), {many_langs.TOKEN_NAME} with {many_langs.ENCODER_NAME} "
    "(ELMoForManyLangs), or a zip of one of these"
)
#: Where a component of a saved spaCy pipeline has its model, below the component's folder.
COMPONENT_FOLDER = "weights"
_HDF5_SUFFIXES = (".hdf5", ".h5")


@dataclass(frozen=True)
class Location:
    """Where a model lies.

    :param format: "native", "bilm", "many-langs", or "zip" for an archive of one of them.
    :param path: Folder or zip; the options file of a "bilm" model.
    :param weights: hdf5 file of a "bilm" model.
    """

    format: str
    path: Path
    weights: Optional[Path] = None


def builtin_models() -> List[str]:
    """Names of the models that are installed with the package."""
    return sorted(path.parent.name for path in BUILTIN_FOLDER.glob(f"*/{native.CONFIG_NAME}"))


def locate(path: Union[str, Path], weights: Union[str, Path, None] = None) -> Location:
    """Find the files of a model and recognise the format.

    :param path: Name of a built-in model (as ``str``), folder, zip, or one of the files; also a
        saved spaCy pipeline with one component that has a model.
    :param weights: The hdf5 file, if ``path`` is an options file.
    :raises ElmoError: E020 if there is nothing at the path, E021 if it is no model, E022 if it
        is not clear which files are meant, E119 if it is a pipeline with several models.
    """
    if isinstance(path, str) and weights is None and path in builtin_models():
        return Location("native", BUILTIN_FOLDER / path)
    for given in (path, weights):
        if given is not None and not Path(given).exists():
            raise ElmoError(
                Errors.E020.format(
                    path=str(given),
                    cwd=Path.cwd(),
                    names=", ".join(builtin_models()) or "none installed",
                )
            )
    path = Path(path)
    if weights is not None:
        options = _pick(path, _names(path), "options") if path.is_dir() else path
        return Location("bilm", options, Path(weights))
    return _in_folder(path) if path.is_dir() else _by_file(path)


def recognise(names: Collection[str]) -> Optional[str]:
    """Format of a model that consists of files of these names, None for none."""
    if native.WEIGHTS_NAME in names and native.CONFIG_NAME in names:
        return "native"
    if many_langs.TOKEN_NAME in names and many_langs.ENCODER_NAME in names:
        return "many-langs"
    if any(_is_options(name) for name in names) and any(_is_hdf5(name) for name in names):
        return "bilm"
    return None


def _in_folder(folder: Path) -> Location:
    names = _names(folder)
    found = recognise(names)
    if found is None and (inside := _in_pipeline(folder)):
        if len(inside) > 1:
            shown = ", ".join(str(path.relative_to(folder)) for path in inside)
            raise ElmoError(Errors.E119.format(path=folder, found=shown))
        return _in_folder(inside[0])
    if found is None:
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise ElmoError(
            Errors.E021.format(
                path=folder, found=f"found {shown or 'no files'}", expected=_EXPECTED
            )
        )
    if found == "bilm":
        return Location("bilm", *(_pick(folder, names, what) for what in ("options", "weights")))
    return Location(found, folder)


def _in_pipeline(folder: Path) -> List[Path]:
    """Model folders in a saved spaCy pipeline, or in the one of a component of it."""
    found = [*folder.glob(f"*/{COMPONENT_FOLDER}"), folder / COMPONENT_FOLDER]
    return sorted(path for path in found if path.is_dir() and recognise(_names(path)) == "native")


def _by_file(path: Path) -> Location:
    """A model named by one of its files: the others are looked for beside it."""
    if path.name in (native.WEIGHTS_NAME, native.CONFIG_NAME, many_langs.TOKEN_NAME):
        return _in_folder(path.parent)
    if path.suffix.lower() in _HDF5_SUFFIXES:
        return Location("bilm", _beside(path, "options"), path)
    if path.suffix.lower() == ".json":
        return Location("bilm", path, _beside(path, "weights"))
    if zipfile.is_zipfile(path) or path.suffix.lower() == ".zip":
        return Location("zip", path)
    raise ElmoError(Errors.E021.format(path=path, found=describe_file(path), expected=_EXPECTED))


def _beside(path: Path, what: str) -> Path:
    names = _names(path.parent)
    if not any(_is_options(n) if what == "options" else _is_hdf5(n) for n in names):
        raise ElmoError(
            Errors.E021.format(
                path=path, found=f"there are no {what} beside it", expected=_EXPECTED
            )
        )
    return _pick(path.parent, names, what)


def _pick(folder: Path, names: Collection[str], what: str) -> Path:
    """The options or the weights among the files of a folder."""
    if what == "options":
        choices = [[bilm_hdf5.OPTIONS_NAME], [n for n in names if _is_options(n)]]
    else:
        files = [n for n in names if _is_hdf5(n)]
        choices = [
            [bilm_hdf5.WEIGHTS_NAME],
            [n for n in files if "weights" in n.lower()],
            # Nothing in the names tells: the first, as the loader of the NLPL models does.
            files[:1],
        ]
    for choice in choices:
        present = [name for name in choice if name in names]
        if len(present) == 1:
            return folder / present[0]
        if present:
            raise ElmoError(Errors.E022.format(path=folder, what=what, found=", ".join(present)))
    raise ElmoError(Errors.E021.format(path=folder, found=f"it has no {what}", expected=_EXPECTED))


def _names(folder: Path) -> List[str]:
    return sorted(
        entry.name
        for entry in folder.iterdir()
        if entry.is_file() and not entry.name.startswith(".")
    )


def _is_options(name: str) -> bool:
    path = PurePosixPath(name.lower())
    return path.suffix == ".json" and "options" in path.stem


def _is_hdf5(name: str) -> bool:
    return name.lower().endswith(_HDF5_SUFFIXES)
