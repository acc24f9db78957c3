"""``python -m spacy elmo init-config``"""

import copy
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Dict, Iterator, List, Sequence

import typer
from wasabi import msg

from ..errors import ElmoError, ElmoWarning, Errors, Warnings
from ._app import elmo_cli, reports_errors

if TYPE_CHECKING:
    from thinc.api import Config

DEFAULT_WEIGHTS = "en_mini"
#: Components that come with ELMo, or whose place it takes.
_ENCODERS = ("elmo", "tok2vec", "transformer")
_BAG_OF_WORDS = "spacy.TextCatBOW."


class Optimize(str, Enum):
    """What `spacy init config --optimize` takes."""

    efficiency = "efficiency"
    accuracy = "accuracy"


@elmo_cli.command("init-config")
@reports_errors
def init_config_cli(
    output: Annotated[
        Path, typer.Argument(metavar="OUT.cfg", help="File to write; '-': print", allow_dash=True)
    ],
    lang: Annotated[str, typer.Option("--lang", "-l", help="Code of the language")] = "en",
    pipeline: Annotated[
        str,
        typer.Option("--pipeline", "-p", help="Components to train, with commas, without elmo"),
    ] = "tagger,parser,ner",
    optimize: Annotated[
        Optimize,
        typer.Option(
            "--optimize",
            "-o",
            help="Size of the encoder behind ELMo, as spacy init config has it; accuracy also "
            "joins the language's static vectors, which have to be installed",
        ),
    ] = Optimize.efficiency,
    weights: Annotated[
        str, typer.Option("--weights", "-w", help="Built-in name or path of the biLM")
    ] = DEFAULT_WEIGHTS,
    force: Annotated[
        bool, typer.Option("--force", "-F", help="Replace the file if it exists")
    ] = False,
) -> None:
    """
    Write a complete training config for components that listen to ELMo.

    The counterpart of spacy init config, for all of its components. Each component joins ELMo,
    with a mix of the layers of its own, to an embedding of its own and has spaCy's encoder
    behind it. The biLM itself stays as it is; set trainable = true in [components.elmo] to
    change that. Then:

    python -m spacy train OUT.cfg --paths.train train.spacy --paths.dev dev.spacy --output OUT
    """
    from ..bilm.io.atomic import replace_file

    is_stdout = str(output) == "-"
    if not is_stdout and output.exists() and not force:
        raise ElmoError(Errors.E126.format(path=output))
    names = [name.strip() for name in pipeline.split(",") if name.strip()]
    text = make_config(lang, names, optimize.value, weights).to_str()
    if is_stdout:
        print(text)
        return
    with replace_file(output) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8", newline="\n")
    msg.good(f"Config: {output}")
    print(
        f"python -m spacy train {output} --paths.train ./train.spacy --paths.dev ./dev.spacy "
        "--output ./output"
    )


def make_config(
    lang: str,
    pipeline: Sequence[str],
    optimize: str = "efficiency",
    weights: str = DEFAULT_WEIGHTS,
) -> "Config":
    """Make a complete config with a component elmo and others that listen to it.

    lang (str): Code of the language.
    pipeline (Sequence[str]): Names of factories; encoders among them are left out, as
        `spacy init config` does.
    optimize (str): "efficiency" or "accuracy", see spaCy.
    weights (str): Built-in name or path of the biLM.
    :raises ElmoError: E127 if spaCy does not know the language or a component, E020 to E022 if
        there is no such biLM.
    """
    import warnings

    from spacy.cli.init_config import init_config
    from spacy.util import load_model_from_config

    from ..bilm.io.detect import locate

    locate(weights)
    if weights == DEFAULT_WEIGHTS and lang != "en":
        warnings.warn(Warnings.W120.format(lang=lang), ElmoWarning, stacklevel=2)
    names = [name for name in dict.fromkeys(pipeline) if name not in _ENCODERS]
    if not names:
        raise ElmoError(Errors.E127.format(problem="no component to train is named"))
    try:
        config = init_config(lang=lang, pipeline=names, optimize=optimize)
        # A pipeline of its own, since not every component makes spaCy add a tok2vec.
        own = init_config(lang=lang, pipeline=["tagger"], optimize=optimize)
        _listen(config, own["components"]["tok2vec"]["model"], names, weights)
        complete: "Config" = load_model_from_config(config, auto_fill=True).config
    except (ImportError, ValueError) as err:
        raise ElmoError(Errors.E127.format(problem=err)) from err
    return complete


def _listen(config: "Config", own: Dict[str, Any], names: List[str], weights: str) -> None:
    """Put elmo first, and a tok2vec with a listener wherever spaCy has one of its own."""
    components = config["components"]
    components.pop("tok2vec", None)
    config["nlp"]["pipeline"] = ["elmo", *names]
    config["system"]["gpu_allocator"] = "pytorch"
    tok2vec = _tok2vec(own, static_vectors=config["paths"]["vectors"] is not None)
    for name in names:
        component = components[name]
        model = component.get("model", {})
        if model.get("@architectures", "").startswith(_BAG_OF_WORDS):
            component["model"] = _reducing(model["exclusive_classes"])
        for holder in _holders(component):
            holder["tok2vec"] = copy.deepcopy(tok2vec)
    components["elmo"] = {"factory": "elmo", "weights": weights}


def _holders(section: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    """Sections with a tok2vec that is spaCy's own."""
    for key, value in section.items():
        if not isinstance(value, dict):
            continue
        if key == "tok2vec" and value.get("@architectures", "spacy.").startswith("spacy."):
            yield section
        else:
            yield from _holders(value)


def _tok2vec(own: Dict[str, Any], static_vectors: bool) -> Dict[str, Any]:
    """ELMo joined to spaCy's embedding, with spaCy's encoder behind."""
    width = own["encode"]["width"]
    embed = {**own["embed"], "width": width, "include_static_vectors": static_vectors}
    joined = {
        "@architectures": "spacy-elmo.ConcatEmbed.v1",
        "width": width,
        "elmo": {"@architectures": "spacy-elmo.ElmoListener.v1", "upstream": "*"},
        "embed": embed,
    }
    return {**own, "embed": joined, "encode": dict(own["encode"])}


def _reducing(exclusive_classes: bool) -> Dict[str, Any]:
    """A text classifier that has a tok2vec, in the place of one that counts words."""
    return {
        "@architectures": "spacy.TextCatReduce.v1",
        "exclusive_classes": exclusive_classes,
        "use_reduce_first": False,
        "use_reduce_last": False,
        "use_reduce_max": True,
        "use_reduce_mean": True,
        "tok2vec": {},
    }
