"""The biLM in plain float64 numpy, written from the description of the formats.

Independent of the package: the full width of characters, every position of every filter, no word
shared, sentence by sentence, step by step. Weights are taken as they lie in the files.
"""

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import numpy as np

Arrays = Mapping[str, np.ndarray]
Step = Callable[[np.ndarray, np.ndarray, np.ndarray], "tuple[np.ndarray, np.ndarray]"]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def clamp(x: np.ndarray, limit: Optional[float]) -> np.ndarray:
    return x if limit is None else np.clip(x, -limit, limit)


def convolve(embedded: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Maximum over all positions. `kernel` is (width, in, out)."""
    width = kernel.shape[0]
    values = []
    for position in range(embedded.shape[0] - width + 1):
        total = bias.copy()
        for k in range(width):
            total = total + embedded[position + k] @ kernel[k]
        values.append(total)
    return np.max(values, axis=0)


def run(inputs: Sequence[np.ndarray], step: Step, p: int, c: int) -> List[np.ndarray]:
    hidden, cell = np.zeros(p), np.zeros(c)
    outputs = []
    for x in inputs:
        hidden, cell = step(x, hidden, cell)
        outputs.append(hidden)
    return outputs


def all_layers(
    tokens: Sequence[np.ndarray],
    steps: Mapping["tuple[int, int]", Step],
    n_layers: int,
    p: int,
    c: int,
    residual: bool,
) -> np.ndarray:
    """All layers of one sentence, boundaries included, (L + 1, n + 2, 2P)."""
    directions = []
    for direction in (0, 1):
        x = list(tokens) if direction == 0 else list(tokens)[::-1]
        layers = []
        for layer in range(n_layers):
            y = run(x, steps[direction, layer], p, c)
            if layer > 0 and residual:
                y = [after + before for after, before in zip(y, x)]
            layers.append(y if direction == 0 else y[::-1])
            x = y
        directions.append(layers)
    result = [[np.concatenate([t, t]) for t in tokens]]
    for layer in range(n_layers):
        pairs = zip(directions[0][layer], directions[1][layer])
        result.append([np.concatenate(pair) for pair in pairs])
    return np.array(result)


# -- options.json + hdf5 ---------------------------------------------------------------------


def byte_ids(inner: Sequence[int], width: int) -> List[int]:
    """Ids as the prediction code of the original has them: one added, 0 is for masks."""
    values = [258, *inner, 259]
    return [v + 1 for v in values + [260] * (width - len(values))]


def bilm_token(options: Dict[str, Any], arrays: Arrays, inner: Sequence[int]) -> np.ndarray:
    cnn = options["char_cnn"]
    table = np.concatenate([np.zeros((1, arrays["char_embed"].shape[1])), arrays["char_embed"]])
    embedded = table[byte_ids(inner, cnn["max_characters_per_token"])]
    features = []
    for i in range(len(cnn["filters"])):
        features.append(convolve(embedded, arrays[f"CNN/W_cnn_{i}"][0], arrays[f"CNN/b_cnn_{i}"]))
    activation = relu if cnn["activation"] == "relu" else np.tanh
    x = activation(np.concatenate(features))
    for k in range(cnn.get("n_highway", 0)):
        name = f"CNN_high_{k}"
        gate = sigmoid(x @ arrays[f"{name}/W_carry"] + arrays[f"{name}/b_carry"])
        transformed = relu(x @ arrays[f"{name}/W_transform"] + arrays[f"{name}/b_transform"])
        x = gate * transformed + (1.0 - gate) * x
    if "CNN_proj/W_proj" in arrays:
        x = x @ arrays["CNN_proj/W_proj"] + arrays["CNN_proj/b_proj"]
    return x


def bilm_step(options: Dict[str, Any], arrays: Arrays, direction: int, layer: int) -> Step:
    name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
    lstm = options["lstm"]

    def step(x: np.ndarray, h: np.ndarray, c: np.ndarray) -> "tuple[np.ndarray, np.ndarray]":
        gates = np.concatenate([x, h]) @ arrays[f"{name}/W_0"] + arrays[f"{name}/B"]
        i, j, f, o = np.split(gates, 4)
        c = sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j)
        c = clamp(c, lstm.get("cell_clip"))
        h = sigmoid(o) * np.tanh(c)
        if f"{name}/W_P_0" in arrays:
            h = h @ arrays[f"{name}/W_P_0"]
        return clamp(h, lstm.get("proj_clip")), c

    return step


def bilm_layers(options: Dict[str, Any], arrays: Arrays, sentence: Sequence[str]) -> np.ndarray:
    """All layers of one sentence, boundaries included, (L + 1, n + 2, 2P)."""
    arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
    lstm = options["lstm"]
    limit = options["char_cnn"]["max_characters_per_token"] - 2
    inner = [[256], *(list(w.encode("utf-8", "ignore"))[:limit] for w in sentence), [257]]
    tokens = [bilm_token(options, arrays, chars) for chars in inner]
    n_layers = lstm["n_layers"]
    steps = {
        (d, layer): bilm_step(options, arrays, d, layer)
        for d in (0, 1)
        for layer in range(n_layers)
    }
    residual = lstm["use_skip_connections"]
    return all_layers(tokens, steps, n_layers, lstm["projection_dim"], lstm["dim"], residual)


# -- ELMoForManyLangs ------------------------------------------------------------------------


def many_langs_token(
    architecture: Dict[str, Any], state: Arrays, characters: Sequence[int], word: int
) -> np.ndarray:
    embedder = architecture["token_embedder"]
    embedded = state["char_emb_layer.embedding.weight"][list(characters)]
    features = []
    for i in range(len(embedder["filters"])):
        kernel = state[f"convolutions.{i}.weight"].transpose(2, 1, 0)
        features.append(convolve(embedded, kernel, state[f"convolutions.{i}.bias"]))
    activation = relu if embedder["activation"] == "relu" else np.tanh
    x = activation(np.concatenate(features))
    for k in range(embedder["n_highway"]):
        weight = state[f"highways._layers.{k}.weight"]
        both = weight @ x + state[f"highways._layers.{k}.bias"]
        transformed, gate = relu(both[: len(x)]), sigmoid(both[len(x) :])
        x = gate * x + (1.0 - gate) * transformed
    if "word_emb_layer.embedding.weight" in state:
        x = np.concatenate([state["word_emb_layer.embedding.weight"][word], x])
    return state["projection.weight"] @ x + state["projection.bias"]


def many_langs_step(architecture: Dict[str, Any], state: Arrays, d: int, layer: int) -> Step:
    name = f"{('forward', 'backward')[d]}_layer_{layer}"
    encoder = architecture["encoder"]

    def step(x: np.ndarray, h: np.ndarray, c: np.ndarray) -> "tuple[np.ndarray, np.ndarray]":
        gates = state[f"{name}.input_linearity.weight"] @ x
        gates = gates + state[f"{name}.state_linearity.weight"] @ h
        i, f, j, o = np.split(gates + state[f"{name}.state_linearity.bias"], 4)
        c = clamp(sigmoid(i) * np.tanh(j) + sigmoid(f) * c, encoder["cell_clip"])
        h = state[f"{name}.state_projection.weight"] @ (sigmoid(o) * np.tanh(c))
        return clamp(h, encoder["proj_clip"]), c

    return step


def many_langs_layers(
    architecture: Dict[str, Any],
    state: Arrays,
    characters: Mapping[str, int],
    words: Mapping[str, int],
    sentence: Sequence[str],
) -> np.ndarray:
    """All layers of one sentence, boundaries included, (L + 1, n + 2, 2P).

    :param state: Both state dicts in one.
    """
    state = {name: array.astype(np.float64) for name, array in state.items()}
    encoder = architecture["encoder"]
    width = architecture["token_embedder"]["max_characters_per_token"]

    def token(inner: Sequence[int], word: int) -> np.ndarray:
        # The marks are swapped on purpose.
        ids = [characters["<eow>"], *inner, characters["<bow>"]]
        ids += [characters["<pad>"]] * (width - len(ids))
        return many_langs_token(architecture, state, ids, word)

    unknown_character, unknown_word = characters["<oov>"], words["<oov>"]
    tokens = [token([characters["<bos>"]], words["<bos>"])]
    for text in sentence:
        inner = [characters.get(ch, unknown_character) for ch in text[: width - 2]]
        tokens.append(token(inner, words.get(text, unknown_word)))
    tokens.append(token([characters["<eos>"]], words["<eos>"]))
    n_layers = encoder["n_layers"]
    steps = {
        (d, layer): many_langs_step(architecture, state, d, layer)
        for d in (0, 1)
        for layer in range(n_layers)
    }
    return all_layers(tokens, steps, n_layers, encoder["projection_dim"], encoder["dim"], True)
