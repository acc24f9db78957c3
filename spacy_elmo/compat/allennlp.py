"""``Elmo`` and ``batch_to_ids`` with the arguments and results of ``allennlp.modules.elmo``.

A script that was written for AllenNLP runs with the import line changed, and checkpoints of
models that were trained with it load. What differs is what was wrong there:

* Vectors do not depend on earlier calls: every call starts from the initial state, by default
  zeros, which are what a fresh AllenNLP model starts from. ``initial_state="primed"`` serves
  published models better, "carry" does what AllenNLP does.
* Models without projections, with other character limits, without highway layers or residual
  connections load; empty sentences, empty batches and batches of empty sentences work.
* A token ``"<S>"`` or ``"</S>"`` is text and no sentence boundary.
* Words are de-duplicated in every batch, so `vocab_to_cache` is not needed and not used.

What does not differ: `do_layer_norm` is AllenNLP's norm over *all* tokens of a batch, as trained
models expect. With it a sentence's vectors depend on the batch. `spacy_elmo.bilm.ScalarMix` has
a norm over single tokens.
"""

import warnings
from math import prod
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

import numpy as np
import torch
from torch import Tensor, nn

from ..bilm.characters import PAD_CHARACTER, WORD_END, ByteCharacters, CharacterIds
from ..bilm.encoder import BOS_INDEX, EOS_INDEX, BiLM
from ..bilm.scalar_mix import ScalarMix
from ..bilm.sentences import check_sentences
from ..errors import ElmoError, ElmoWarning, Errors, Warnings
from .allennlp_checkpoint import translate_checkpoint

#: Positions of a word in AllenNLP's character ids, whatever the model.
MAX_CHARACTERS = 50
#: AllenNLP's ids are ours and one, since 0 is its id of positions that hold no word.
SHIFT = 1
#: What AllenNLP adds to the variance in its norm.
EPSILON = 1e-13


def batch_to_ids(batch: List[List[str]], max_characters: int = MAX_CHARACTERS) -> Tensor:
    """Convert tokenised sentences to character ids.

    :param batch: Tokenised sentences.
    :param max_characters: Positions of a word; AllenNLP always has 50. Give the model's own
        number if it is larger, or longer words are cut too early.
    :returns: Ids from 1 to 261, and 0 at positions without a word.
        *Shape:* ``(batch, longest sentence, max_characters)``
    :raises ElmoError: E001, E002, E003 if the input is not a list of lists of strings, E094.
    """
    check_sentences(batch)
    if max_characters < 3:
        raise _bad_argument("max_characters", max_characters, "3 or more")
    index: Dict[str, int] = {}
    rows = [[index.setdefault(word, len(index) + 2) for word in sentence] for sentence in batch]
    words = ByteCharacters(max_characters).encode(list(index)).ids + SHIFT
    table = np.full((len(words), max_characters), PAD_CHARACTER + SHIFT, np.int64)
    table[:, : words.shape[1]] = words
    ids = np.zeros((len(rows), max(map(len, rows), default=0), max_characters), np.int64)
    for k, row in enumerate(rows):
        ids[k, : len(row)] = table[row]
    return torch.from_numpy(ids)


class Elmo(nn.Module):
    """A biLM and one or more scalar mixes of its layers, used as ``allennlp.modules.elmo.Elmo``.

    :param options_file: ``options.json``, or anything else that :meth:`BiLM.load` takes.
    :param weight_file: The hdf5 file that belongs to it; None where `options_file` is a model.
    :param num_output_representations: Number of mixes; each is a representation of its own.
    :param requires_grad: Whether gradients flow into the biLM; sets it for a `module` too.
    :param do_layer_norm: Normalise each layer over all tokens of a batch before mixing.
    :param dropout: Rate on the representations, in training mode.
    :param vocab_to_cache: Not used (warns, W090).
    :param keep_sentence_boundaries: Give the vectors of both sentence boundaries as well.
    :param scalar_mix_parameters: Weights before the softmax, one for each layer; the mixes are
        not trainable then.
    :param module: A biLM to use, instead of one from files.
    :param initial_state: "zero" (if not given), "primed" or "carry", see :class:`BiLMConfig`. A
        `module` keeps its own.
    :raises ElmoError: E090, E093, E094 for arguments that do not fit, and what loading raises.
    """

    def __init__(
        self,
        options_file: Union[str, Path, None],
        weight_file: Union[str, Path, None],
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Optional[List[str]] = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Optional[List[float]] = None,
        module: Optional[nn.Module] = None,
        *,
        initial_state: Optional[str] = None,
    ) -> None:
        super().__init__()
        if num_output_representations < 1:
            raise _bad_argument(
                "num_output_representations", num_output_representations, "1 or more"
            )
        if not 0.0 <= dropout <= 1.0:
            raise _bad_argument("dropout", dropout, "a rate from 0 to 1")
        if vocab_to_cache is not None:
            warnings.warn(Warnings.W090, ElmoWarning, stacklevel=2)
        self._elmo_lstm = _bilm(options_file, weight_file, module, initial_state)
        self._elmo_lstm.requires_grad_(requires_grad)
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._do_layer_norm = do_layer_norm
        self._dropout = nn.Dropout(dropout)
        self._n_mixes = num_output_representations
        for k in range(num_output_representations):
            mix = ScalarMix(
                self._elmo_lstm.n_layers,
                init_weights=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            self.add_module(f"scalar_mix_{k}", mix)

    def get_output_dim(self) -> int:
        """Width of a representation."""
        return self._elmo_lstm.width

    def forward(self, inputs: Tensor, word_inputs: Optional[Tensor] = None) -> Dict[str, Any]:
        """Encode a batch and mix the layers.

        :param inputs: Character ids as made by :func:`batch_to_ids`, of any width.
            *Shape:* ``(batch, ..., n_tokens, n_characters)``
        :param word_inputs: Not used; ids for AllenNLP's word cache.
        :returns: ``"elmo_representations"``, one tensor for each mix, zero at positions without
            a word, *Shape:* ``(batch, ..., n_tokens, 2P)``; and ``"mask"``, true where there is
            a word, *Shape:* ``(batch, ..., n_tokens)``. With boundaries kept there are
            ``n_tokens + 2`` positions.
        :raises ElmoError: E091, E092 if the inputs are no such ids.
        """
        if inputs.dim() < 3 or inputs.is_floating_point() or inputs.is_complex():
            found = f"{inputs.dtype} of shape {tuple(inputs.shape)}"
            raise ElmoError(Errors.E091.format(found=found))
        *leading, n_tokens, n_characters = inputs.shape
        ids = inputs.detach().cpu().numpy().reshape(prod(leading), n_tokens, n_characters)
        filled = (ids != 0).any(2)
        lengths = filled.sum(1)
        _check_ids(ids, filled, lengths)
        characters, sentences = _distinct_words(
            ids[filled], lengths, self._elmo_lstm.characters.max_characters
        )
        layers = self._elmo_lstm.encode(characters, sentences)
        if self._do_layer_norm:
            layers = _normalise_batch(layers)
        if self._keep_sentence_boundaries:
            n_tokens += 2
            filled = np.arange(n_tokens) < lengths[:, None] + 2
        else:
            inner = np.ones(layers.shape[1], bool)
            stops = np.cumsum(lengths + 2)
            inner[stops - 1] = inner[stops - lengths - 2] = False
            layers = layers[:, torch.from_numpy(inner).to(layers.device)]
        mask = torch.from_numpy(filled).to(layers.device)
        representations = []
        for k in range(self._n_mixes):
            mixed = self.get_submodule(f"scalar_mix_{k}")(layers)
            padded = mixed.new_zeros(*mask.shape, self.get_output_dim())
            padded[mask] = mixed
            padded = padded.view(*leading, n_tokens, self.get_output_dim())
            representations.append(self._dropout(padded))
        return {
            "elmo_representations": representations,
            "mask": mask.view(*leading, n_tokens),
        }

    def _load_from_state_dict(self, state_dict: Dict[str, Any], prefix: str, *args: Any) -> None:
        translate_checkpoint(state_dict, prefix, self._elmo_lstm.config)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _bilm(
    options_file: Union[str, Path, None],
    weight_file: Union[str, Path, None],
    module: Optional[nn.Module],
    initial_state: Optional[str],
) -> BiLM:
    if module is None:
        if options_file is None:
            raise ElmoError(Errors.E090.format(found="neither a module nor an options_file"))
        bilm = BiLM.load(options_file, weight_file, initial_state=initial_state or "zero")
    else:
        if options_file is not None or weight_file is not None:
            raise ElmoError(Errors.E090.format(found="both a module and files"))
        if not isinstance(module, BiLM):
            raise ElmoError(Errors.E090.format(found=f"a module of type {type(module).__name__}"))
        if initial_state is not None:
            expected = "None beside a module, which has a state of its own"
            raise _bad_argument("initial_state", initial_state, expected)
        bilm = module
    if bilm.config.char_cnn.unit != "byte":
        raise ElmoError(Errors.E093.format(unit=bilm.config.char_cnn.unit))
    return bilm


def _check_ids(ids: np.ndarray, filled: np.ndarray, lengths: np.ndarray) -> None:
    """Check that words are whole, in range, and stand at the start of their sentence."""
    problems = (
        ((ids < 0) | (ids > PAD_CHARACTER + SHIFT)).any(2),
        filled & (ids == 0).any(2),
        ~filled & (np.arange(ids.shape[1]) < lengths[:, None]),
    )
    texts = (
        f"it has ids outside of 0 to {PAD_CHARACTER + SHIFT}",
        f"it has zeros beside other ids; words are padded with {PAD_CHARACTER + SHIFT}",
        "it is all zeros, but words follow in the same sentence",
    )
    for bad, text in zip(problems, texts):
        if bad.any():
            sentence, token = np.argwhere(bad)[0]
            raise ElmoError(Errors.E092.format(sentence=sentence, token=token, problem=text))


def _distinct_words(
    tokens: np.ndarray, lengths: np.ndarray, max_characters: int
) -> Tuple[CharacterIds, List[np.ndarray]]:
    """Characters of the distinct words of a batch, and each sentence as indices into them.

    :param tokens: AllenNLP's ids of all tokens. *Shape:* ``(n_tokens, n_characters)``
    :param lengths: Tokens of each sentence. *Shape:* ``(batch,)``
    :param max_characters: The model's limit.
    """
    index: Dict[bytes, int] = {}
    first: List[int] = []
    places = np.empty(len(tokens), np.int64)
    for k, row in enumerate(tokens):
        place = index.setdefault(row.tobytes(), len(index) + 2)
        if place == len(first) + 2:
            first.append(k)
        places[k] = place
    boundaries = ByteCharacters(max_characters).encode([])
    words = np.full((len(first) + 2, max(3, tokens.shape[1])), PAD_CHARACTER, np.int64)
    words[:2, :3] = boundaries.ids
    words[2:, : tokens.shape[1]] = tokens[first].astype(np.int64) - SHIFT
    # Characters of a word: up to the last one that is no padding.
    used = words.shape[1] - np.argmax(words[:, ::-1] != PAD_CHARACTER, axis=1)
    used[(words == PAD_CHARACTER).all(1)] = 0
    # Words made for a larger limit are cut as the model's own reader cuts them.
    long = used > max_characters
    words = words[:, :max_characters]
    words[long, -1] = WORD_END
    used = np.minimum(used, max_characters)
    sentences = [
        np.concatenate(([BOS_INDEX], part, [EOS_INDEX]))
        for part in np.split(places, np.cumsum(lengths)[:-1])
    ]
    if not len(lengths):
        sentences = []
    return CharacterIds(words[:, : max(3, int(used.max()))], used), sentences


def _normalise_batch(layers: Tensor) -> Tensor:
    """AllenNLP's norm: one mean and one deviation for a whole layer, boundaries included."""
    mean = layers.mean((1, 2), keepdim=True)
    variance = (layers - mean).square().mean((1, 2), keepdim=True)
    return (layers - mean) / (variance + EPSILON).sqrt()


def _bad_argument(name: str, found: object, expected: str) -> ElmoError:
    return ElmoError(Errors.E094.format(name=name, found=found, expected=expected))
