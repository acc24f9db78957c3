"""The biLM: sentences of tokens in, all layers for every token out.

The vectors of a sentence depend on that sentence alone, whatever it is batched with and
whatever was encoded before (the published implementations carry states from call to call).
"""

from pathlib import Path
from typing import Any, Iterator, List, Optional, Sequence, Tuple, Union

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
from .io import ModelFiles, read_model, write_model
from .lm import Softmax
from .lstm import LSTMState, LSTMWeights, run_layer
from .packing import Packing, pack

#: Empty sentences that make the fixed state of `initial_state = "primed"`.
N_PRIMING_SENTENCES = 4
#: Indices of the boundaries in every list of words (see `characters`).
BOS_INDEX, EOS_INDEX = 0, 1


class LSTMLayer(nn.Module):
    """Parameters of one layer in one direction; `lstm.run_layer` computes with them."""

    def __init__(self, config: BiLMConfig, device: Optional[torch.device] = None) -> None:
        super().__init__()
        c, p = config.lstm.cell_dim, config.lstm.projection_dim
        self.input_weight = nn.Parameter(torch.empty(4 * c, p, device=device))
        self.recurrent_weight = nn.Parameter(torch.empty(4 * c, p, device=device))
        self.bias = nn.Parameter(torch.empty(4 * c, device=device))
        self.projection_weight: Optional[nn.Parameter] = None
        if config.lstm.has_projection:
            self.projection_weight = nn.Parameter(torch.empty(p, c, device=device))

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
    :param device: Where to make the parameters; "meta" for none at all.
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
        self._primed: Optional[List[List[LSTMState]]] = None
        self._carried: Optional[List[List[LSTMState]]] = None

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
            config = BiLMConfig(config.char_cnn, config.lstm, initial_state, config.meta)
            config.validate()
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
        model.files = files
        return model.eval()

    def to_files(self) -> ModelFiles:
        """The model as a writer takes it; tensors are shared, not copied."""
        source: Optional[ModelFiles] = getattr(self, "files", None)
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
    ) -> List[np.ndarray]:
        """Give all layers for every token of every sentence.

        The result for a sentence does not depend on the other sentences or on earlier calls
        (but for ``initial_state = "carry"``, where a call is one batch and its row ``k`` goes
        on from row ``k`` of the call before).

        :param sentences: Tokenised sentences; empty ones are allowed.
        :param batch_tokens: Tokens that are encoded at a time; bounds memory, not results.
        :param boundaries: Give the vectors of the two sentence boundaries as well, first and
            last.
        :returns: One float32 array a sentence, layer 0 first.
            *Shape:* ``(L + 1, n_tokens, 2P)``, with `boundaries` ``(L + 1, n_tokens + 2, 2P)``
        :raises ElmoError: E001, E002 if the input is not a list of lists of strings.
        """
        _check_sentences(sentences)
        results: List[Optional[np.ndarray]] = [None] * len(sentences)
        if self.config.initial_state == "carry":
            groups: Iterator[List[int]] = iter([list(range(len(sentences)))] if sentences else [])
        else:
            groups = _group(sentences, batch_tokens)
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
        """
        index: dict = {}
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
        initial = self._initial_states(packing, len(sentences))
        directions = (self.forward_lstm, self.backward_lstm)
        outputs, finals = [], []
        for k, (layers, places) in enumerate(zip(directions, packing[2:])):
            where = torch.from_numpy(places).to(device)
            packed = torch.empty_like(x).index_copy(0, where, x)
            out, final = self._run(layers, packed, packing, initial[k], matmul_dtype)
            outputs.append([layer[where] for layer in out])
            finals.append(final)
        if self.config.initial_state == "carry":
            self._keep(finals, packing)
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
        layers: nn.ModuleList,
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
        """Forget carried states and the primed state (call it after changing weights)."""
        self._primed = self._carried = None

    def _initial_states(
        self, packing: Packing, n_sentences: int
    ) -> List[List[Optional[LSTMState]]]:
        none: List[List[Optional[LSTMState]]] = [[None] * self.config.lstm.n_layers] * 2
        kind = self.config.initial_state
        if kind == "zero":
            return none
        if kind == "primed":
            if self._primed is None or self.training:
                self._primed = self._prime()
            return [
                [LSTMState(*(t.expand(n_sentences, -1) for t in state)) for state in direction]
                for direction in self._primed
            ]
        if self._carried is None:
            return none
        order = torch.from_numpy(packing.order)
        states: List[List[Optional[LSTMState]]] = []
        for direction in self._carried:
            states.append([])
            for state in direction:
                missing = n_sentences - state.hidden.shape[0]
                rows = [
                    torch.cat([t, t.new_zeros(missing, t.shape[1])]) if missing > 0 else t
                    for t in state
                ]
                states[-1].append(LSTMState(*(t[order.to(t.device)] for t in rows)))
        return states

    @torch.no_grad()
    def _prime(self) -> List[List[LSTMState]]:
        """State after a few empty sentences: near what carried states look like, yet fixed."""
        vectors = self.encode_words(self.characters.encode([]))
        packing = pack([2 * N_PRIMING_SENTENCES])
        states = []
        for layers, pair in (
            (self.forward_lstm, (BOS_INDEX, EOS_INDEX)),
            (self.backward_lstm, (EOS_INDEX, BOS_INDEX)),
        ):
            packed = vectors[list(pair) * N_PRIMING_SENTENCES]
            none = [None] * self.config.lstm.n_layers
            states.append(self._run(layers, packed, packing, none, None)[1])
        return states

    def _keep(self, finals: List[List[LSTMState]], packing: Packing) -> None:
        """Carry the final states of this call, by row in the order of the caller."""
        order = torch.from_numpy(packing.order)
        kept = []
        for k, direction in enumerate(finals):
            kept.append([])
            for number, state in enumerate(direction):
                rows = []
                for j, t in enumerate(state):
                    new = torch.empty_like(t)
                    new[order.to(t.device)] = t
                    if self._carried is not None:
                        new = torch.cat([new, self._carried[k][number][j][len(new) :]])
                    rows.append(new)
                kept[-1].append(LSTMState(*rows))
        self._carried = kept


def _check_sentences(sentences: Sequence[Sequence[str]]) -> None:
    if isinstance(sentences, str):
        raise ElmoError(Errors.E001.format(index=0, found=f"part of the string {sentences!r:.60}"))
    for i, sentence in enumerate(sentences):
        if isinstance(sentence, str) or not isinstance(sentence, Sequence):
            raise ElmoError(Errors.E001.format(index=i, found=f"{sentence!r:.60}"))
        for j, token in enumerate(sentence):
            if not isinstance(token, str):
                raise ElmoError(
                    Errors.E002.format(
                        sentence=i, token=j, found=f"{token!r:.60} ({type(token).__name__})"
                    )
                )


def _group(sentences: Sequence[Sequence[str]], batch_tokens: int) -> Iterator[List[int]]:
    """Indices of sentences in batches of similar length and of a bounded number of tokens."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]), reverse=True)
    group: List[int] = []
    tokens = 0
    for i in order:
        size = len(sentences[i]) + 2
        if group and tokens + size > batch_tokens:
            yield group
            group, tokens = [], 0
        group.append(i)
        tokens += size
    if group:
        yield group
