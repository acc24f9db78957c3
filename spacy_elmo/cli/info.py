"""``python -m spacy elmo info``"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Dict, List, Optional, Tuple

import typer
from wasabi import msg

from ._app import elmo_cli, reports_errors

if TYPE_CHECKING:
    from ..bilm.io import ModelFiles

_PARTS = {
    "characters": "Character vectors",
    "convolutions": "Convolutions",
    "highway": "Highway layers",
    "words": "Word vectors",
    "projection": "Token projection",
    "forward": "Forward LSTM",
    "backward": "Backward LSTM",
    "softmax": "Softmax",
}
_FORMATS = {
    "native": "native (spacy-elmo)",
    "bilm": "bilm (bilm-tf, AllenNLP)",
    "many-langs": "many-langs (ELMoForManyLangs)",
}
#: Facts of `meta` that are no prose for a table.
_NOT_SHOWN = ("source_options", "source_config")


@elmo_cli.command("info")
@reports_errors
def info_cli(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Built-in name, folder, zip, or options.json")
    ],
    weights: Annotated[
        Optional[Path],
        typer.Option("--weights", "-w", help="hdf5 weights, if MODEL is an options.json"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", "-j", help="Print JSON")] = False,
) -> None:
    """
    Show what a model is: format, shape, parameters, initial state, licence, softmax.

    The model is read as a whole, so this also checks that its files are complete and fit.
    """
    from ..bilm.io import read_model

    facts = collect_info(read_model(model, weights, softmax=True))
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        print_info(model, facts)


def collect_info(files: "ModelFiles") -> Dict[str, Any]:
    """Facts about a model as JSON-ready values."""
    from ..bilm.io import count_parameters

    config = files.config
    parameters = count_parameters(config)
    encoder = sum(parameters.values())
    parameters["softmax"] = sum(
        tensor.numel() for name, tensor in files.tensors.items() if name.startswith("softmax.")
    )
    vocabulary = len(files.vocabulary or ()) if files.has_softmax else None
    data = config.to_dict()
    return {
        "format": files.format,
        "width": config.width,
        "n_layers": config.n_layers,
        "initial_state": config.initial_state,
        "parameters": {**parameters, "encoder": encoder},
        "softmax": {"n_words": vocabulary} if files.has_softmax else None,
        "char_cnn": data["char_cnn"],
        "lstm": data["lstm"],
        "meta": data["meta"],
    }


def print_info(name: str, facts: Dict[str, Any]) -> None:
    """Print the facts as tables."""
    from ..bilm.io.origin import describe_origin

    cnn, lstm, softmax = facts["char_cnn"], facts["lstm"], facts["softmax"]
    unit = "UTF-8 bytes" if cnn["unit"] == "byte" else f"{cnn['n_characters']:,} code points"
    words = f" and {cnn['n_words']:,} words" if cnn["word_dim"] else ""
    filters = ", ".join(f"{count} of width {width}" for width, count in cnn["filters"])
    projected = lstm["cell_dim"] != lstm["projection_dim"] or lstm["always_project"]
    rows: List[Tuple[str, Any]] = [
        ("Format", _FORMATS[facts["format"]]),
        ("Layers", f"{facts['n_layers']} (tokens and {lstm['n_layers']} of the LSTM)"),
        ("Width", facts["width"]),
        ("Initial state", facts["initial_state"]),
        ("Input", f"{unit}{words}, {cnn['max_characters'] - 2} per word"),
        ("Character width", cnn["embedding_dim"]),
        ("Convolutions", f"{filters}; {cnn['activation']}"),
        ("Highway layers", cnn["n_highway"]),
        ("LSTM cells", lstm["cell_dim"]),
        ("LSTM projection", lstm["projection_dim"] if projected else "none"),
        ("Clips", f"cell {_clip(lstm['cell_clip'])}, projection {_clip(lstm['proj_clip'])}"),
        ("Skip connections", "yes" if lstm["skip_connections"] else "no"),
        ("Softmax", f"{softmax['n_words']:,} words" if softmax else "no"),
    ]
    msg.divider(name)
    msg.table(rows)
    parts = facts["parameters"]
    counts = [(title, f"{parts[part]:,}") for part, title in _PARTS.items() if parts[part]]
    total = [("Encoder in all", f"{parts['encoder']:,}")]
    msg.table(counts + total, header=("Parameters", ""), divider=True, aligns=("l", "r"))
    meta = [
        (key, value)
        for key, value in facts["meta"].items()
        if key not in _NOT_SHOWN and isinstance(value, (str, int, float))
    ]
    if origin := describe_origin(facts["meta"]):
        meta.append(("begun from", origin))
    if not any(key in facts["meta"] for key in ("licence", "license")):
        meta.append(("licence", "not stated"))
    msg.table(meta, header=("Facts", ""), divider=True)


def _clip(value: Optional[float]) -> str:
    return "none" if value is None else f"{value:g}"
