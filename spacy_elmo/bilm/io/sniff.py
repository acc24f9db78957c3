"""Say what a file is that is not what was expected, and read JSON with such messages."""

import json
from pathlib import Path
from typing import Any, Dict, Union

from ...errors import ElmoError, Errors

_SIGNATURES = (
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"version https://git-lfs", "a Git LFS pointer (the file itself was not fetched)"),
    (b"PK\x03\x04", "a zip archive (perhaps a file of torch.save)"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x80\x02", "a pickle"),
    (b"\x80\x03", "a pickle"),
    (b"\x80\x04", "a pickle"),
)


def describe_file(path: Path) -> str:
    """What the file seems to be, by its first bytes."""
    try:
        with path.open("rb") as file:
            start = file.read(256)
    except OSError as err:
        return f"it cannot be opened ({err.strerror or err})"
    if not start:
        return "it is empty"
    for signature, name in _SIGNATURES:
        if start.startswith(signature):
            return f"it is {name}"
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return "it is an HTML page (perhaps the error page of a download)"
    if text.startswith((b"{", b"[")):
        return "it is JSON"
    if start[8:10] == b'{"':
        return "it is a safetensors file"
    return f"it starts with {start[:12]!r}"


def foreign_file(path: Path, expected: str, problem: Union[str, BaseException]) -> ElmoError:
    """The error for a file that cannot be read as what it should be (E023)."""
    found = describe_file(path)
    return ElmoError(Errors.E023.format(path=path, expected=expected, found=f"{found} ({problem})"))


def read_json(path: Path, expected: str) -> Dict[str, Any]:
    """Read a JSON object in UTF-8, with or without a byte order mark.

    :param expected: What the file should be, for the message.
    :raises ElmoError: E023 if it is something else.
    """
    try:
        data = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as err:
        raise foreign_file(path, expected, err) from err
    if not isinstance(data, dict):
        raise foreign_file(path, expected, f"a JSON {type(data).__name__}, not an object")
    return data


def dump_json(data: Any) -> bytes:
    """JSON as it is written everywhere in this package: UTF-8, indented, keys in order."""
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
