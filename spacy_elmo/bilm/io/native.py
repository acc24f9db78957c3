"""The native format: one folder with ``model.safetensors`` and a ``config.json`` that says it all.

Reading maps the weights into memory: no copy is made of float32 weights, pages are read when
they are first used, and processes that load the same model share them.
"""

from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...errors import ElmoError, Errors
from ..config import BiLMConfig
from .atomic import replace_folder
from .card import README_NAME, model_card
from .dictionaries import (
    CHARACTERS_NAME,
    WORDS_NAME,
    dictionary_files,
    dump_vocabulary,
    read_dictionaries,
    read_vocabulary,
)
from .safetensors_file import aligned, write_safetensors
from .sniff import dump_json, foreign_file, read_json
from .weights import (
    SOFTMAX_BIAS,
    SOFTMAX_WEIGHT,
    ModelFiles,
    Shape,
    check_files,
    check_shapes,
    expected_shapes,
    softmax_shapes,
)

FORMAT = "spacy-elmo"
FORMAT_VERSION = 1
CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
VOCABULARY_NAME = "vocabulary.txt"
OWN_FILES = (
    CONFIG_NAME,
    WEIGHTS_NAME,
    VOCABULARY_NAME,
    CHARACTERS_NAME,
    WORDS_NAME,
    README_NAME,
)

#: Largest absolute value of an int8 weight; -128 is left out to be symmetric around zero.
_INT8_MAX = 127
#: Factor of each row of an int8 softmax.
_SOFTMAX_SCALE = "softmax.weight_scale"
#: Bytes of narrow weights that are mapped at a time while they are converted.
_MAX_MAPPED = 32 << 20
_FLOATS = ("F32", "F16", "BF16", "F64")
_DTYPES = {"float16": torch.float16, "float32": torch.float32}


def read_native(path: Union[str, Path], softmax: bool = False) -> ModelFiles:
    """Read a native model folder.

    float32 weights are views of the mapped file (but for odd sizes, see `safetensors_file`), all
    others are converted to float32.

    :param softmax: Read the softmax and its vocabulary too, where there is one.
    :raises ElmoError: E023 for files that are absent, truncated or foreign, E024 for weights
        that do not fit, E025, E027 for a configuration that cannot be used, E033, E038.
    """
    path = Path(path)
    config = _read_config(path / CONFIG_NAME)
    weights_path = path / WEIGHTS_NAME
    try:
        with safe_open(weights_path, framework="pt") as file:
            n_words = _check_contents(file, config, weights_path)
            names = [n for n in _names(file) if softmax or not n.startswith("softmax.")]
            narrow = [n for n in names if file.get_slice(n).get_dtype() != "F32"]
            tensors = {n: aligned(file.get_tensor(n)) for n in names if n not in narrow}
        tensors.update(_widened(weights_path, narrow))
    except (SafetensorError, OSError) as err:
        raise foreign_file(weights_path, "the weights of a model", err) from err
    if _SOFTMAX_SCALE in tensors:
        tensors[SOFTMAX_WEIGHT] *= tensors.pop(_SOFTMAX_SCALE)[:, None]
    files = ModelFiles(config, tensors)
    if softmax and n_words is not None:
        files.vocabulary = read_vocabulary(path / VOCABULARY_NAME)
        if len(files.vocabulary) != n_words:
            problem = f"it has {n_words} rows for the {len(files.vocabulary)} words in {path}"
            raise ElmoError(Errors.E038.format(problems=problem))
    if config.char_cnn.unit == "codepoint":
        read_dictionaries(path, files)
    return files


def write_native(
    files: ModelFiles,
    path: Union[str, Path],
    *,
    dtype: Optional[str] = None,
    softmax_dtype: Optional[str] = None,
) -> None:
    """Write a native model folder; an existing one is replaced as a whole or not at all.

    :param dtype: "float16" halves the file (relative error 2⁻¹¹), "float32", or None to keep
        the type that the weights have.
    :param softmax_dtype: The same for the softmax alone; "int8" stores it as whole numbers with
        a factor per row. None for the same as the rest.
    :raises ElmoError: E010, E024, E038 for an incomplete model, E035, E036 for a type that is
        unknown or too narrow, E034, E039 if the folder cannot be written.
    """
    _check_choice("dtype", dtype, (*_DTYPES, None))
    _check_choice("softmax_dtype", softmax_dtype, (*_DTYPES, "int8", None))
    path = Path(path)
    check_files(files, path)
    stored: Dict[str, Tensor] = {}
    for name, tensor in files.tensors.items():
        tensor = tensor.detach().cpu()
        in_softmax = name.startswith("softmax.")
        if name == SOFTMAX_WEIGHT and softmax_dtype == "int8":
            stored[name], stored[_SOFTMAX_SCALE] = _quantise_rows(tensor)
            continue
        wanted = softmax_dtype if in_softmax and softmax_dtype else dtype
        # The bias is small and adds directly to the scores, it is not worth rounding.
        if in_softmax and wanted == "int8":
            wanted = "float32"
        stored[name] = _store_as(name, tensor, wanted)
    data = {"format": FORMAT, "format_version": FORMAT_VERSION, **files.config.to_dict()}
    texts = {CONFIG_NAME: dump_json(data), **dictionary_files(files)}
    if files.has_softmax:
        texts[VOCABULARY_NAME] = dump_vocabulary(files.vocabulary or [])
    texts[README_NAME] = model_card(files, path)
    with replace_folder(path, OWN_FILES) as folder:
        write_safetensors(folder / WEIGHTS_NAME, stored)
        for name, text in texts.items():
            (folder / name).write_bytes(text)


def _read_config(path: Path) -> BiLMConfig:
    data = read_json(path, "the configuration of a spacy-elmo model")
    if data.get("format") != FORMAT:
        problem = f"'format' is {data.get('format')!r}, expected {FORMAT!r}"
        raise ElmoError(Errors.E025.format(path=path, problems=problem))
    version = data.get("format_version")
    if version != FORMAT_VERSION:
        raise ElmoError(Errors.E027.format(path=path, found=version, expected=FORMAT_VERSION))
    try:
        return BiLMConfig.from_dict(data)
    except (TypeError, ValueError, AttributeError) as err:
        # Values of a wrong type surface wherever they are first compared.
        raise ElmoError(Errors.E025.format(path=path, problems=err)) from err


def _widened(path: Path, names: List[str]) -> Dict[str, Tensor]:
    """Tensors converted to float32, a limited amount from one mapping of the file.

    The pages of a mapping count as memory until it is closed, so that one for all would hold the
    narrow weights beside the converted ones.
    """
    tensors: Dict[str, Tensor] = {}
    remaining = list(names)
    while remaining:
        n_bytes = 0
        with safe_open(path, framework="pt") as file:
            while remaining and n_bytes < _MAX_MAPPED:
                name = remaining.pop()
                narrow = file.get_tensor(name)
                tensors[name] = narrow.to(torch.float32)
                n_bytes += narrow.nbytes
                del narrow
    return tensors


def _names(file: Any) -> List[str]:
    names = file.keys()
    return list(names)


def _check_contents(file: Any, config: BiLMConfig, path: Path) -> Optional[int]:
    """Check the header of the weights before anything is loaded; rows of the softmax, if any."""
    slices = {name: file.get_slice(name) for name in _names(file)}
    shapes: Dict[str, Shape] = {n: tuple(s.get_shape()) for n, s in slices.items()}
    expected = expected_shapes(config)
    n_words = None
    if any(name.startswith("softmax.") for name in shapes):
        n_words = shapes.get(SOFTMAX_WEIGHT, shapes.get(SOFTMAX_BIAS, (0,)))[0]
        expected.update(softmax_shapes(config, n_words))
        if _SOFTMAX_SCALE in shapes:
            expected[_SOFTMAX_SCALE] = (n_words,)
    check_shapes(shapes, expected, path)
    wrong = []
    for name, part in slices.items():
        quantised = name == SOFTMAX_WEIGHT and _SOFTMAX_SCALE in shapes
        allowed = ("I8",) if quantised else _FLOATS
        if part.get_dtype() not in allowed:
            wrong.append(f"{name} has type {part.get_dtype()}, expected {' or '.join(allowed)}")
    if wrong:
        raise ElmoError(Errors.E024.format(path=path, problems="; ".join(wrong[:12])))
    return n_words


def _store_as(name: str, tensor: Tensor, dtype: Optional[str]) -> Tensor:
    if dtype is None:
        return tensor.contiguous()
    stored = tensor.to(_DTYPES[dtype]).contiguous()
    if not torch.isfinite(stored).all() and torch.isfinite(tensor).all():
        problem = f"{name} has values up to {tensor.abs().max().item():.3g}"
        raise ElmoError(Errors.E036.format(name="dtype", found=dtype, problems=problem))
    return stored


def _quantise_rows(weight: Tensor) -> Tuple[Tensor, Tensor]:
    """Round each row to whole multiples of a 127th of its largest value."""
    weight = weight.to(torch.float32)
    if not torch.isfinite(weight).all():
        problem = "the softmax has values that are not finite"
        raise ElmoError(Errors.E036.format(name="softmax_dtype", found="int8", problems=problem))
    scale = weight.abs().amax(dim=1) / _INT8_MAX
    # A row of zeros has no scale of its own; any will do.
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    rounded = torch.round(weight / scale[:, None]).clamp(-_INT8_MAX, _INT8_MAX)
    return rounded.to(torch.int8), scale


def _check_choice(name: str, value: Optional[str], allowed: Tuple[Optional[str], ...]) -> None:
    if value not in allowed:
        raise ElmoError(
            Errors.E035.format(name=name, found=value, expected=", ".join(map(str, allowed)))
        )
