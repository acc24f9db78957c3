"""The biLM: sentences of tokens in, all layers for every token out.

The vectors of a sentence depend on that sentence alone, whatever it is batched with and
whatever was encoded before (the published implementations carry states from call to call).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union, cast

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import ElmoError, Errors
from .char_cnn import CharCNN, chunk_words
from .characters import (
    PAD_CHARACTER,
    ByteCharacters,
    CharacterIds,
    DictionaryCharacters,
)
from .config import BiLMConfig
from .engine import Engine
from .inference import make_engine
from .io import ModelFiles, read_model, write_model
from .kernels import check_precision
from .lm import Softmax
from .lstm import LSTMState, LSTMWeights, run_layer
from .packing import Packing, pack
from .parameters import empty_parameter
from .sentences import batches_by_length, check_sentences
from .states import CarriedStates, FinalStates, InitialStates, repeat_states, zero_states

#: Empty sentences that make the fixed state of `initial_state = "primed"`.
N_PRIMING_SENTENCES = 4
#: Indices of the boundaries in every list of words (see `characters`).
BOS_INDEX, EOS_INDEX = 0, 1


class LSTMLayer(nn.Module):
    """Parameters of one layer in one direction; `lstm.run_layer` computes with them."""

    def __init__(self, config: BiLMConfig, device: Optional[torch.device] = None) -> None:
        super().__init__()
        c, p = config.lstm.cell_dim, config.lstm.projection_dim
        self.input_weight = empty_parameter(4 * c, p, device=device)
        self.recurrent_weight = empty_parameter(4 * c, p, device=device)
        self.bias = empty_parameter(4 * c, device=device)
        self.projection_weight: Optional[nn.Parameter] = None
        if config.lstm.has_projection:
            self.projection_weight = empty_parameter(p, c, device=device)

    @property
    def weights(self) -> LSTMWeights:
        """The parameters in the order that `lstm.run_layer` takes."""
        return LSTMWeights(
            self.input_weight, self.recurrent_weight, self.bias, self.projection_weight
        )


class BiLM(nn.Module):
    """Bidirectional LSTM language model over character-based words (Peters et al. 2018).

    Construct with :meth:`load`. The constructor alone makes parameters without values.

    :param config: Shape and numerics.
    :param characters: Turns words into characters; the byte alphabet if not given.
    :param pad: Id of the pad character.
    :param vocabulary: Words of the softmax with their counts, for models that have one.
    :param device: Where to make the parameters, the CPU if not given; "meta" for none at all.
    """

    def __init__(
        self,
        config: BiLMConfig,
        *,
        characters: Union[ByteCharacters, DictionaryCharacters, None] = None,
        pad: int = PAD_CHARACTER,
        vocabulary: Optional[Sequence[Tuple[str, int]]] = None,
        device: Optional[torch.device] = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.characters = characters or ByteCharacters(config.char_cnn.max_characters)
        self.pad = pad
        self.vocabulary = None if vocabulary is None else list(vocabulary)
        self.token_encoder = CharCNN(config, device)
        layers = range(config.lstm.n_layers)
        self.forward_lstm = nn.ModuleList(LSTMLayer(config, device) for _ in layers)
        self.backward_lstm = nn.ModuleList(LSTMLayer(config, device) for _ in layers)
        self.softmax: Optional[Softmax] = None
        if vocabulary is not None:
            self.softmax = Softmax(len(vocabulary), config.lstm.projection_dim, device)
        self._files: Optional[ModelFiles] = None
        self._engines: Dict[Tuple[str, bool], Engine] = {}
        self._engines_of: Tuple[Tuple[int, int], ...] = ()
        self._primed: Optional[FinalStates] = None
        self._primed_with: Tuple[Tuple[int, int], ...] = ()
        self._carried = CarriedStates()

    # -- files ---------------------------------------------------------------------------

    @classmethod
    def load(
        cls,
        path: Union[str, Path],
        weights: Union[str, Path, None] = None,
        *,
        softmax: bool = False,
        initial_state: Optional[str] = None,
    ) -> "BiLM":
        """Load a built-in model by name, or a model of any supported format.

        :param path: Built-in name ("en_mini"), native folder, bilm-tf directory or zip,
            options.json (then `weights` is the hdf5 file), or ELMoForManyLangs directory.
        :param weights: hdf5 file that belongs to an options.json.
        :param softmax: Load the language-model head as well, if the model has one.
        :param initial_state: Override what the model was trained for: "zero", "primed", "carry".
        :raises ElmoError: for missing, foreign, truncated or mismatching files.
        """
        files = read_model(path, weights, softmax=softmax)
        return cls.from_files(files, initial_state=initial_state)

    @classmethod
    def from_files(cls, files: ModelFiles, *, initial_state: Optional[str] = None) -> "BiLM":
        """Make a model of what a reader found, without copying or initialising weights."""
        config = files.config
        if initial_state is not None:
            config = replace(config, initial_state=initial_state).validate()
        characters: Union[ByteCharacters, DictionaryCharacters, None] = None
        pad = PAD_CHARACTER
        if files.characters is not None:
            characters = DictionaryCharacters(
                files.characters, files.words, config.char_cnn.max_characters
            )
            pad = files.characters["<pad>"]
        has_softmax = "softmax.weight" in files.tensors and files.vocabulary is not None
        model = cls(
            config,
            characters=characters,
            pad=pad,
            vocabulary=files.vocabulary if has_softmax else None,
            device=torch.device("meta"),
        )
        model.load_state_dict(files.tensors, strict=True, assign=True)
        # Without the tensors: they are the model's own now and may be replaced.
        model._files = replace(files, tensors={})
        return model.eval()

    def to_files(self) -> ModelFiles:
        """The model as a writer takes it; tensors are shared, not copied."""
        source = self._files
        return ModelFiles(
            config=self.config,
            tensors={name: p.detach() for name, p in self.state_dict().items()},
            vocabulary=self.vocabulary,
            characters=source.characters if source else None,
            words=source.words if source else None,
            extra_files=dict(source.extra_files) if source else {},
        )

    def save(self, path: Union[str, Path], **kwargs: Any) -> None:
        """Write the model, by default as a native folder (see `io.write_model`)."""
        write_model(self.to_files(), path, **kwargs)

    @property
    def directions(self) -> Tuple[Sequence[LSTMLayer], Sequence[LSTMLayer]]:
        """Layers of the forward and of the backward direction."""
        return cast(
            Tuple[Sequence[LSTMLayer], Sequence[LSTMLayer]],
            (self.forward_lstm, self.backward_lstm),
        )

    # -- encoding ------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Width of every layer's vectors."""
        return self.config.width

    @property
    def n_layers(self) -> int:
        """Layers given for each token: the token layer and L LSTM layers."""
        return self.config.n_layers

    def embed(
        self,
        sentences: Sequence[Sequence[str]],
        *,
        batch_tokens: int = 4096,
        boundaries: bool = False,
        precision: str = "float32",
    ) -> List[np.ndarray]:
        """Give all layers for every token of every sentence.

        The result for a sentence does not depend on the other sentences or on earlier calls
        (but for ``initial_state = "carry"``, where a call is one batch and its row ``k`` goes
        on from row ``k`` of the call before).

        :param sentences: Tokenised sentences; empty ones are allowed.
        :param batch_tokens: Tokens that are encoded at a time; bounds memory, not results.
        :param boundaries: Give the vectors of the two sentence boundaries as well, first and
            last.
        :param precision: "float32", or "float16" or "int8" for rounded weights (see `kernels`).
        :returns: One array a sentence in the precision of the weights, layer 0 first.
            *Shape:* ``(L + 1, n_tokens, 2P)``, with `boundaries` ``(L + 1, n_tokens + 2, 2P)``
        :raises ElmoError: E001, E002, E003 if the input is not a list of lists of strings, E160,
            E161 for a precision that is unknown or not available.
        """
        check_sentences(sentences)
        if precision != "float32" or self.suits_engine:
            engine = self.engine(precision)
            return engine.embed(sentences, batch_tokens=batch_tokens, boundaries=boundaries)
        return self._embed_plain(sentences, batch_tokens, boundaries)

    def engine(self, precision: str = "float32", *, plain: bool = False) -> Engine:
        """The inference engine over the present weights, made once and again when they change.

        :param precision: "float32", "float16" or "int8".
        :param plain: Do without PyTorch's packed kernels, for comparison.
        :raises ElmoError: E160 for an unknown precision, E161 for weights it cannot work with.
        """
        check_precision(precision)
        if not self.suits_engine:
            p = self.token_encoder.char_embedding
            state = self.config.initial_state
            found = f"{str(p.dtype)[6:]} on {p.device}, initial state {state}"
            raise ElmoError(Errors.E161.format(found=found, precision=precision))
        weights, key = self._weights_key(), (precision, plain)
        if weights != self._engines_of:
            self._engines, self._engines_of = {}, weights
        if key not in self._engines:
            self._engines[key] = make_engine(self, precision, plain)
        return self._engines[key]

    @property
    def suits_engine(self) -> bool:
        """Whether the engine can be used: float32 weights on the CPU, no carried states."""
        p = self.token_encoder.char_embedding
        on_cpu = p.dtype == torch.float32 and p.device.type == "cpu"
        return on_cpu and self.config.initial_state != "carry"

    def _embed_plain(
        self, sentences: Sequence[Sequence[str]], batch_tokens: int, boundaries: bool
    ) -> List[np.ndarray]:
        """By the path that training takes, for what the engine does not do."""
        results: List[Optional[np.ndarray]] = [None] * len(sentences)
        if self.config.initial_state == "carry":
            groups: Iterator[List[int]] = iter([list(range(len(sentences)))] if sentences else [])
        else:
            groups = batches_by_length(sentences, batch_tokens)
        cut = slice(None) if boundaries else slice(1, -1)
        with torch.no_grad():
            for group in groups:
                batch = [sentences[i] for i in group]
                flat = self(batch).cpu().numpy()
                start = 0
                for i, sentence in zip(group, batch):
                    stop = start + len(sentence) + 2
                    results[i] = np.ascontiguousarray(flat[:, start:stop][:, cut])
                    start = stop
        return [r for r in results if r is not None]

    def forward(
        self, sentences: Sequence[Sequence[str]], matmul_dtype: Optional[torch.dtype] = None
    ) -> Tensor:
        """All layers of a batch of sentences as one tensor, differentiable in the weights.

        :param sentences: Tokenised sentences.
        :param matmul_dtype: Precision of the matrix products, if not the weights' own.
        :returns: Sentences one after another, each with its two boundaries.
            *Shape:* ``(L + 1, Σ(n_tokens + 2), 2P)``
        :raises ElmoError: E001, E002, E003 if the input is not a list of lists of strings.
        """
        check_sentences(sentences)
        index: Dict[str, int] = {}
        rows: List[np.ndarray] = []
        for sentence in sentences:
            inner = [index.setdefault(word, len(index) + 2) for word in sentence]
            rows.append(np.array([BOS_INDEX, *inner, EOS_INDEX], np.int64))
        return self.encode(self.characters.encode(list(index)), rows, matmul_dtype)

    def encode(
        self,
        characters: CharacterIds,
        sentences: Sequence[np.ndarray],
        matmul_dtype: Optional[torch.dtype] = None,
    ) -> Tensor:
        """As :meth:`forward`, from the characters of the distinct words.

        :param characters: Characters of the distinct words, the boundaries first.
        :param sentences: For each sentence the indices of its words in `characters`, boundaries
            included.
        """
        vectors = self.encode_words(characters, matmul_dtype)
        if not sentences:
            return vectors.new_zeros(self.n_layers, 0, self.width)
        packing = pack([len(s) for s in sentences])
        device = vectors.device
        flat = torch.from_numpy(np.concatenate(sentences)).to(device)
        x = vectors[flat]
        initial = self._initial_states(packing)
        outputs, finals = [], []
        for k, (layers, places) in enumerate(zip(self.directions, packing[2:])):
            where = torch.from_numpy(places).to(device)
            packed = torch.empty_like(x).index_copy(0, where, x)
            out, final = self._run(layers, packed, packing, initial[k], matmul_dtype)
            outputs.append([layer[where] for layer in out])
            finals.append(final)
        if self.config.initial_state == "carry":
            self._carried.keep(finals, packing)
        stacked = [torch.cat([x, x], dim=1)]
        stacked += [torch.cat(pair, dim=1) for pair in zip(*outputs)]
        return torch.stack(stacked)

    def encode_words(
        self, characters: CharacterIds, matmul_dtype: Optional[torch.dtype] = None
    ) -> Tensor:
        """Vectors of distinct words, layer 0 before doubling. *Shape:* ``(n_words, P)``."""
        device = self.token_encoder.char_embedding.device
        chunks = chunk_words(
            torch.from_numpy(characters.ids).to(device),
            torch.from_numpy(characters.lengths).to(device),
            self.config.char_cnn,
            self.pad,
            None if characters.words is None else torch.from_numpy(characters.words).to(device),
        )
        return self.token_encoder.encode(chunks, matmul_dtype)

    def _run(
        self,
        layers: Sequence[LSTMLayer],
        packed: Tensor,
        packing: Packing,
        initial: Sequence[Optional[LSTMState]],
        matmul_dtype: Optional[torch.dtype],
    ) -> Tuple[List[Tensor], List[LSTMState]]:
        """One direction through all layers; packed outputs and final states of each."""
        outputs, finals = [], []
        for number, layer in enumerate(layers):
            out, final = run_layer(
                packed,
                layer.weights,
                packing.batch_sizes,
                self.config.lstm,
                initial[number],
                matmul_dtype,
            )
            # The residual is added behind the cell: recurrence and state do not see it.
            if number > 0 and self.config.lstm.skip_connections:
                out = out + packed
            packed = out
            outputs.append(out)
            finals.append(final)
        return outputs, finals

    # -- initial states ------------------------------------------------------------------

    def reset_states(self) -> None:
        """Forget carried states, so that the next call starts from zeros, and the primed one.

        The primed state and the engine's own layout of the weights are made again by themselves
        when torch sees that weights have changed; call this after writing to them through
        ``.data`` or a shared buffer.
        """
        self._primed = None
        self._engines = {}
        self._carried.clear()

    def forget_words(self) -> None:
        """Empty the engines' caches of word vectors; the weights stay laid out."""
        for engine in self._engines.values():
            engine.forget_words()

    def __getstate__(self) -> Dict[str, Any]:
        # For copies and pickles: weights laid out for this process are no part of the model.
        return {**self.__dict__, "_engines": {}, "_engines_of": ()}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "BiLM":
        # What `to`, `double`, `cuda` and so on end in: kept states would not fit any more.
        self.reset_states()
        super()._apply(fn, recurse)
        return self

    def _initial_states(self, packing: Packing) -> InitialStates:
        if self.config.initial_state == "carry":
            return self._carried.initial(packing, self.config.lstm.n_layers)
        if self.config.initial_state == "primed":
            return repeat_states(self.primed_states(), len(packing.order))
        return zero_states(self.config.lstm.n_layers)

    def _weights_key(self) -> Tuple[Tuple[int, int], ...]:
        """Changes when torch sees that a parameter was replaced or written to."""
        return tuple((id(p), 0 if p.is_inference() else p._version) for p in self.parameters())

    def primed_states(self) -> FinalStates:
        """The fixed state, computed once and again only when the weights have changed."""
        weights = self._weights_key()
        if self._primed is None or weights != self._primed_with:
            # Outside of inference mode, since training may want the result later.
            with torch.inference_mode(False), torch.no_grad():
                self._primed, self._primed_with = self._prime(), weights
        return self._primed

    def _prime(self) -> FinalStates:
        """State after a few empty sentences: near what carried states look like, yet fixed."""
        vectors = self.encode_words(self.characters.encode([]))
        packing = pack([2 * N_PRIMING_SENTENCES])
        pairs = ((BOS_INDEX, EOS_INDEX), (EOS_INDEX, BOS_INDEX))
        states = []
        for layers, pair, zeros in zip(self.directions, pairs, zero_states(len(self.forward_lstm))):
            packed = vectors[list(pair) * N_PRIMING_SENTENCES]
            states.append(self._run(layers, packed, packing, zeros, None)[1])
        return states
