"""The model card, ``README.md`` of a native model folder."""

from pathlib import Path
from typing import Any, List, Union

from .origin import describe_origin
from .weights import ModelFiles, count_parameters

README_NAME = "README.md"
#: Ends every card that was generated. A card without it was written by a person and is kept.
_MARK = "<!-- Generated from config.json. Remove this line to keep your own text. -->"
#: `meta` keys that are shown elsewhere or are of no use to a reader.
_NOT_SHOWN = ("name", "source_options", "source_format", "source_config")


def model_card(files: ModelFiles, path: Union[str, Path]) -> bytes:
    """The card for a model that is written to ``path``: the one that is there, or a new one."""
    existing = Path(path) / README_NAME
    if existing.is_file():
        text = existing.read_bytes()
        if _MARK.encode() not in text:
            return text
    return _generate(files).encode("utf-8", "surrogatepass")


def _generate(files: ModelFiles) -> str:
    config = files.config
    cnn, lstm, meta = config.char_cnn, config.lstm, config.meta
    unit = "UTF-8 bytes" if cnn.unit == "byte" else f"{cnn.n_characters} characters"
    words = f" and {cnn.n_words} words" if cnn.word_dim else ""
    filters = ", ".join(f"{count} of width {width}" for width, count in cnn.filters)
    clips = f"cell {_clip(lstm.cell_clip)}, projection {_clip(lstm.proj_clip)}"
    n_parameters = sum(count_parameters(config).values())
    rows = [
        ("Parameters", f"{n_parameters:,} (softmax not counted)"),
        ("Vectors", f"{config.n_layers} layers, {config.width} wide"),
        ("Input", f"{unit}{words}, up to {cnn.max_characters - 2} per word"),
        ("Convolutions", f"{filters}; {cnn.activation}; {cnn.n_highway} highway layers"),
        ("LSTM", f"{lstm.n_layers} layers, {lstm.cell_dim} cells to {lstm.projection_dim}"),
        ("Skip connections", "yes" if lstm.skip_connections else "no"),
        ("Clips", clips),
        ("Initial state", config.initial_state),
        ("Softmax", f"{len(files.vocabulary or ()):,} words" if files.has_softmax else "none"),
    ]
    if meta.get("source_format"):
        rows.append(("Converted from", _cell(meta["source_format"])))
    if origin := describe_origin(meta):
        rows.append(("Begun from", _cell(origin)))
    rows += [
        (_cell(key).replace("_", " ").capitalize(), _cell(value))
        for key, value in meta.items()
        if key not in _NOT_SHOWN and isinstance(value, (str, int, float))
    ]
    if not any(key in meta for key in ("licence", "license")):
        rows.append(("Licence", "not stated: ask where the weights come from"))
    lines: List[str] = [
        f"# {_cell(meta.get('name') or 'biLM')}",
        "",
        "Weights of a bidirectional LSTM language model over characters (ELMo; Peters et al.",
        "2018), which gives contextual vectors of words.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows),
        "",
        "```python",
        "from spacy_elmo.bilm import BiLM",
        "",
        'model = BiLM.load("path/to/this/folder")',
        'layers = model.embed([["A", "tokenised", "sentence"]])[0]  # (layers, tokens, width)',
        "```",
        "",
        _MARK,
        "",
    ]
    return "\n".join(lines)


def _clip(value: Any) -> str:
    return "none" if value is None else f"±{value:g}"


def _cell(value: Any) -> str:
    return " ".join(str(value).replace("|", "\\|").split())
