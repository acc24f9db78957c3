"""``python -m spacy elmo convert``"""

from pathlib import Path
from typing import Annotated, Optional

import typer
from wasabi import msg

from ._app import elmo_cli, reports_errors


@elmo_cli.command("convert")
@reports_errors
def convert_cli(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="Built-in name, folder, zip, or options.json")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder to write; a model there is replaced")
    ],
    weights: Annotated[
        Optional[Path],
        typer.Option("--weights", "-w", help="hdf5 weights, if IN is an options.json"),
    ] = None,
    to: Annotated[
        str, typer.Option("--to", "-t", help="Format to write: native, bilm or many-langs")
    ] = "native",
    dtype: Annotated[
        Optional[str],
        typer.Option("--dtype", "-d", help="Native weights on disk: float16 or float32"),
    ] = None,
    softmax_dtype: Annotated[
        Optional[str],
        typer.Option("--softmax-dtype", help="Its softmax on disk: float16, float32 or int8"),
    ] = None,
) -> None:
    """
    Convert a model between file formats.

    Reads native folders, options.json with hdf5 weights (bilm-tf, AllenNLP, NLPL; also zipped)
    and ELMoForManyLangs folders. Converting there and back gives the same weights, bit for bit.
    Only the native format keeps the softmax of every model.
    """
    from ..bilm.io import convert

    files = convert(source, target, to, weights=weights, dtype=dtype, softmax_dtype=softmax_dtype)
    msg.good(f"Converted from {files.format!r} to {to!r}: {target}")
