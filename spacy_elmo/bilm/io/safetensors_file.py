"""Write safetensors files whose tensors lie well in memory when they are mapped.

Products of matrices give other last bits for other alignments of their operands. So that a model
gives the same vectors from whatever file it was read, weights always start at a multiple of
:data:`ALIGNMENT`, as all memory of torch does. The writer of the safetensors package does not
care (and gives the file to its owner alone).
"""

import json
from pathlib import Path
from typing import Any, Dict, Mapping

import torch
from torch import Tensor

ALIGNMENT = 64

_TYPES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float64: "F64",
    torch.int8: "I8",
}


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name; nothing is copied but what is not contiguous.

    The format allows no gaps: sizes that are no multiple of the alignment come last, so that only
    they can be out of step.
    """
    ordered = sorted(tensors.items(), key=lambda item: (item[1].nbytes % ALIGNMENT != 0, item[0]))
    # Other programs ask this entry for the library that the tensors belong to.
    header: Dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in ordered:
        header[name] = {
            "dtype": _TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for _, tensor in ordered:
            # As bytes, since numpy does not know all the types.
            file.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)


def aligned(tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy if it does not start at a multiple of the alignment."""
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()
