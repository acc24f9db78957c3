"""`spacy-elmo.MixLogger.v1`: spaCy's console logger that also writes how the mixes move."""

import json
import sys
import warnings
from pathlib import Path
from typing import IO, Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from spacy.language import Language
from spacy.training.loggers import console_logger

from ..errors import ElmoError, ElmoWarning, Errors, Warnings
from .mixes import Mix, pipeline_mixes

LogT = Callable[[Optional[Dict[str, Any]]], None]
LoggerT = Callable[[Language, IO, IO], Tuple[LogT, Callable[[], None]]]


def build_mix_logger_v1(
    path: str, progress_bar: bool = False, console_output: bool = True
) -> LoggerT:
    """Build a logger for `[training.logger]`.

    At each evaluation it appends a line of JSON with "epoch", "step", "score" and "mixes", the
    latter as `pipeline_mixes` gives them; `python -m spacy elmo mix --history` plots the file.

    path (str): The file, begun anew with each training; its folder is made.
    progress_bar (bool): As in `spacy.ConsoleLogger.v2`.
    console_output (bool): As in `spacy.ConsoleLogger.v2`.
    """
    setup_console = console_logger(progress_bar=progress_bar, console_output=console_output)

    def setup(
        nlp: Language, stdout: IO = sys.stdout, stderr: IO = sys.stderr
    ) -> Tuple[LogT, Callable[[], None]]:
        log_console, finish_console = setup_console(nlp, stdout, stderr)
        if not pipeline_mixes(nlp):
            warnings.warn(Warnings.W121, ElmoWarning, stacklevel=2)
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            file = open(path, "w", encoding="utf-8", newline="\n")
        except OSError as err:
            problem = err.strerror or err
            raise ElmoError(Errors.E039.format(path=path, problem=problem)) from err

        def log_step(info: Optional[Dict[str, Any]]) -> None:
            log_console(info)
            if info is None:
                return
            line = {
                "epoch": info["epoch"],
                "step": info["step"],
                "score": float(info["score"]),
                "mixes": [mix.to_dict() for mix in pipeline_mixes(nlp)],
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            # A training that is stopped leaves all that it wrote.
            file.flush()

        def finish() -> None:
            file.close()
            finish_console()

        return log_step, finish

    return setup


class MixRecord(NamedTuple):
    """What the logger wrote at one evaluation.

    epoch (int), step (int), score (float): As spaCy logs them.
    mixes (List[Mix]): All mixes of the pipeline.
    """

    epoch: int
    step: int
    score: float
    mixes: List[Mix]


def read_history(path: Union[str, Path]) -> List[MixRecord]:
    """Read what the logger wrote.

    :raises ElmoError: E125 if the file cannot be read or is something else.
    """
    records: List[MixRecord] = []
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                fields = json.loads(line)
                mixes = [Mix(**mix) for mix in fields["mixes"]]
                records.append(MixRecord(fields["epoch"], fields["step"], fields["score"], mixes))
    except OSError as err:
        problem = err.strerror or str(err)
        raise ElmoError(Errors.E125.format(path=path, problem=problem)) from err
    except (ValueError, TypeError, KeyError) as err:
        problem = f"line {len(records) + 1} is no record of the logger"
        raise ElmoError(Errors.E125.format(path=path, problem=problem)) from err
    if not any(record.mixes for record in records):
        raise ElmoError(Errors.E125.format(path=path, problem="it holds no mixes"))
    return records
