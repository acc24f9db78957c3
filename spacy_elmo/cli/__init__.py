"""Commands under ``python -m spacy elmo``; importing this module registers them with spaCy."""

from spacy.cli._util import app

from . import convert, info, perplexity, pretrain  # noqa: F401  (each registers its command)
from ._app import elmo_cli

__all__ = ["elmo_cli"]

app.add_typer(elmo_cli)
