"""Commands under ``python -m spacy elmo``; importing this module registers them with spaCy."""

from spacy.cli._util import app

from . import (  # noqa: F401  (each registers its command)
    convert,
    embed,
    info,
    init_config,
    mix,
    neighbors,
    perplexity,
    pretrain,
    probe,
    senses,
    surprisal,
)
from ._app import elmo_cli

__all__ = ["elmo_cli"]

app.add_typer(elmo_cli)
