"""Vectors of whole corpora: written by `embed_corpus`, read by `read_embeddings`."""

from typing import TYPE_CHECKING, Any

from .reading import EmbeddedSentence, Embeddings, read_embeddings

if TYPE_CHECKING:
    from .options import EmbedOptions, Plan, Progress
    from .run import embed_corpus

__all__ = [
    "EmbedOptions",
    "EmbeddedSentence",
    "Embeddings",
    "Plan",
    "Progress",
    "embed_corpus",
    "read_embeddings",
]


def __getattr__(name: str) -> Any:
    # Who only reads embeddings has no need of torch.
    if name in ("EmbedOptions", "Plan", "Progress"):
        from . import options

        return getattr(options, name)
    if name == "embed_corpus":
        from .run import embed_corpus

        return embed_corpus
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
