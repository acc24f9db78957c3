"""Single files that are replaced as a whole: a reader finds the old one or the new, never half."""

import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Union

from ..errors import ElmoError, Errors


@contextmanager
def replace_file(path: Union[str, Path]) -> Iterator[Path]:
    """Give a name to write to; at the end the file takes the place of `path`.

    If the body raises, `path` is as it was before.

    path (Union[str, Path]): The file to make or to replace; folders are made.
    :raises ElmoError: E039 if it cannot be written.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as err:
        problem = err.strerror or err
        raise ElmoError(Errors.E039.format(path=path, problem=problem)) from err
