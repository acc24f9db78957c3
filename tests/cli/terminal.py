"""Commands whose output goes to a terminal."""

import io
import sys
from typing import Any, Tuple

import pytest

from spacy_elmo.cli import elmo_cli


class Stream(io.TextIOWrapper):
    """A stream in memory that may say it is a terminal."""

    def __init__(self, is_terminal: bool) -> None:
        self.data = io.BytesIO()
        self.is_terminal = is_terminal
        super().__init__(self.data, encoding="utf-8", newline="")

    def isatty(self) -> bool:
        return self.is_terminal

    def text(self) -> str:
        self.flush()
        return self.data.getvalue().decode("utf-8")


def run_on_terminal(*args: Any, stdout: bool = False) -> Tuple[str, str]:
    """Run a command whose standard error is a terminal.

    :param stdout: Whether standard output is one too.
    :returns: What was written to standard output, and to standard error.
    """
    out, err = Stream(stdout), Stream(True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        elmo_cli([*map(str, args)], standalone_mode=False)
        return out.text(), err.text()
