"""Model files of all supported formats, read into and written from :class:`ModelFiles`."""

from .bilm_hdf5 import read_bilm, write_bilm
from .convert import FORMATS, convert, write_model
from .detect import builtin_models, locate
from .load import read_model
from .many_langs import read_many_langs, write_many_langs
from .native import read_native, write_native
from .weights import ModelFiles, count_parameters, expected_shapes

__all__ = [
    "FORMATS",
    "ModelFiles",
    "builtin_models",
    "convert",
    "count_parameters",
    "expected_shapes",
    "locate",
    "read_bilm",
    "read_many_langs",
    "read_model",
    "read_native",
    "write_bilm",
    "write_many_langs",
    "write_model",
    "write_native",
]
