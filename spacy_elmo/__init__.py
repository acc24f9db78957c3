"""Contextual word vectors from a bidirectional LSTM language model (ELMo) for spaCy."""

from typing import Any

__version__ = "0.1.0"

#: What can be had from here, and where it is; loaded when it is first asked for, since spaCy
#: imports this package in every process.
_LAZY = {
    "common_mean": ".analysis.similarity",
    "next_words": ".pipeline.language_model",
    "previous_words": ".pipeline.language_model",
    "read_embeddings": ".embedding",
    "render": ".analysis.heat_map",
    "score": ".pipeline.language_model",
    "score_docs": ".pipeline.language_model",
    "similarity": ".analysis.similarity",
    "similarity_matrix": ".analysis.similarity",
    "substitutes": ".pipeline.language_model",
    "to_padded": ".pipeline.padding",
    "top_k": ".pipeline.language_model",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> "list[str]":
    return sorted({*globals(), *_LAZY})
