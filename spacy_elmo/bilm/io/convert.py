"""Write a model in any format, and convert between formats."""

from pathlib import Path
from typing import Optional, Union

from ...errors import ElmoError, Errors
from .bilm_hdf5 import write_bilm
from .load import read_model
from .many_langs import write_many_langs
from .native import write_native
from .weights import ModelFiles

FORMATS = ("native", "bilm", "many-langs")


def write_model(
    files: ModelFiles,
    path: Union[str, Path],
    format: str = "native",
    *,
    dtype: Optional[str] = None,
    softmax_dtype: Optional[str] = None,
) -> None:
    """Write a model folder.

    An existing folder is replaced as a whole or, if anything goes wrong, left as it is.

    :param format: "native"; "bilm" for ``options.json`` and hdf5 weights, which bilm-tf and
        AllenNLP read; "many-langs" for ELMoForManyLangs.
    :param dtype: "float16" or "float32", for the native format (see :func:`write_native`).
    :param softmax_dtype: "float16", "float32" or "int8", for the softmax of the native format.
    :raises ElmoError: E029 for models that the format cannot hold, E035 for unknown formats and
        types, E010, E024, E033, E036, E038 for models that are not whole, E034, E039 if the
        folder cannot be written.
    """
    if format == "native":
        write_native(files, path, dtype=dtype, softmax_dtype=softmax_dtype)
        return
    if format not in FORMATS:
        raise _choice("format", format, ", ".join(FORMATS))
    for name, value in (("dtype", dtype), ("softmax_dtype", softmax_dtype)):
        if value not in (None, "float32"):
            raise _choice(name, value, f"float32 (the format {format!r} has nothing else)")
    if format == "bilm":
        write_bilm(files, path)
    else:
        write_many_langs(files, path)


def convert(
    source: Union[str, Path],
    target: Union[str, Path],
    format: Optional[str] = None,
    *,
    weights: Union[str, Path, None] = None,
    dtype: Optional[str] = None,
    softmax_dtype: Optional[str] = None,
) -> ModelFiles:
    """Read a model of any format and write it in another.

    Converting there and back gives the same weights bit for bit, but for a narrower ``dtype`` and
    a softmax that the format between cannot hold (left out with warning W002).

    :param source: As for :func:`read_model`.
    :param target: Folder to write, as for :func:`write_model`.
    :param format: As for :func:`write_model`; "native" if not given.
    :param weights: As for :func:`read_model`.
    :returns: What was read.
    :raises ElmoError: As both of these functions.
    """
    files = read_model(source, weights, softmax=True)
    write_model(files, target, format or "native", dtype=dtype, softmax_dtype=softmax_dtype)
    return files


def _choice(name: str, found: Optional[str], expected: str) -> ElmoError:
    return ElmoError(Errors.E035.format(name=name, found=found, expected=expected))
