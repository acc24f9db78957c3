"""The Typer app ``elmo`` and what its commands share.

Every ``python -m spacy ...`` imports the commands of all plugins, so nothing heavy is imported
here; the commands import torch and the rest when they run.
"""

import functools
import warnings
from typing import Any, Callable, TextIO, Type, TypeVar, Union

import typer
from wasabi import Printer, msg

from ..errors import ElmoError, ElmoWarning

HELP = "ELMo: contextual word vectors from a bidirectional language model."

elmo_cli = typer.Typer(name="elmo", no_args_is_help=True, help=HELP)

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def reports_errors(command: CommandT) -> CommandT:
    """Show coded errors of a command as a message, without a traceback, and exit with code 1.

    Coded warnings are shown on standard error. All other errors keep their traceback: they are
    faults of the program, not of the input.
    """

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("always", ElmoWarning)
            warnings.showwarning = _show_warning
            try:
                return command(*args, **kwargs)
            except ElmoError as err:
                msg.fail(str(err))
                raise typer.Exit(1) from None

    return wrapper  # type: ignore[return-value]


_show_other_warning = warnings.showwarning


def _show_warning(
    message: Union[Warning, str],
    category: Type[Warning],
    filename: str,
    lineno: int,
    file: "TextIO | None" = None,
    line: "str | None" = None,
) -> None:
    if issubclass(category, ElmoWarning):
        # Standard output may be read by another program.
        typer.echo(Printer(no_print=True).warn(str(message)), err=True)
    else:
        _show_other_warning(message, category, filename, lineno, file, line)
