"""Contextual word vectors from a bidirectional LSTM language model (ELMo) for spaCy."""

__version__ = "0.1.0"
