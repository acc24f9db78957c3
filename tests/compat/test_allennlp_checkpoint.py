"""Checkpoints of models that were trained with AllenNLP's module."""

from typing import Dict

import numpy as np
import pytest
import torch

from spacy_elmo.bilm import BiLM
from spacy_elmo.compat.allennlp import Elmo, batch_to_ids

from ..bilm.models import make
from ..bilm.writers import OPTIONS, Arrays, bilm_arrays, write_bilm_folder

BATCH = [["The", "bank"], []]


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    return {name: array * np.float32(0.4) for name, array in bilm_arrays(OPTIONS).items()}


@pytest.fixture(scope="module")
def bilm(tmp_path_factory: pytest.TempPathFactory, arrays: Arrays) -> BiLM:
    folder = write_bilm_folder(tmp_path_factory.mktemp("model"), OPTIONS, arrays)
    return BiLM.load(folder, initial_state="zero")


def make_other(bilm: BiLM) -> BiLM:
    return BiLM.from_files(make(bilm.config, seed=5))


def allennlp_state(arrays: Arrays, n_mixes: int) -> Dict[str, torch.Tensor]:
    """What AllenNLP's module holds after it has loaded these arrays."""
    state: Dict[str, np.ndarray] = {}
    token = "_elmo_lstm._token_embedder"
    table = arrays["char_embed"]
    state[f"{token}._char_embedding_weights"] = np.concatenate([0 * table[:1], table])
    for i in range(2):
        kernel = arrays[f"CNN/W_cnn_{i}"][0]
        state[f"{token}.char_conv_{i}.weight"] = kernel.transpose(2, 1, 0)
        state[f"{token}.char_conv_{i}.bias"] = arrays[f"CNN/b_cnn_{i}"]
    for k in range(2):
        name = f"{token}._highways._layers.{k}"
        for part, letter in (("weight", "W"), ("bias", "b")):
            transform = arrays[f"CNN_high_{k}/{letter}_transform"].T
            carry = -arrays[f"CNN_high_{k}/{letter}_carry"].T
            state[f"{name}.{part}"] = np.concatenate([transform, carry])
    state[f"{token}._projection.weight"] = arrays["CNN_proj/W_proj"].T
    state[f"{token}._projection.bias"] = arrays["CNN_proj/b_proj"]
    for d, direction in enumerate(("forward", "backward")):
        for layer in range(2):
            cell = f"RNN_{d}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            name = f"_elmo_lstm._elmo_lstm.{direction}_layer_{layer}"
            kernel = arrays[f"{cell}/W_0"]
            stacked = np.concatenate([kernel, arrays[f"{cell}/B"][None]])
            i_gate, j_gate, f_gate, o_gate = np.split(stacked, 4, axis=1)
            f_gate = f_gate.copy()
            f_gate[-1] += 1.0
            both = np.concatenate([i_gate, f_gate, j_gate, o_gate], axis=1).T
            p = kernel.shape[0] // 2
            state[f"{name}.input_linearity.weight"] = both[:, :p]
            state[f"{name}.state_linearity.weight"] = both[:, p:-1]
            state[f"{name}.state_linearity.bias"] = both[:, -1]
            state[f"{name}.state_projection.weight"] = arrays[f"{cell}/W_P_0"].T
    for k in range(n_mixes):
        for layer in range(3):
            value = np.array([k + 0.5 * layer], np.float32)
            state[f"scalar_mix_{k}.scalar_parameters.{layer}"] = value
        state[f"scalar_mix_{k}.gamma"] = np.array([2.0 + k], np.float32)
    return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in state.items()}


def test_checkpoints_of_allennlp_load(arrays: Arrays, bilm: BiLM) -> None:
    """Into a module of the same shape with other weights, inside of a bigger model, strictly."""

    class Task(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.elmo = Elmo(None, None, 2, dropout=0.0, module=make_other(bilm))
            self.head = torch.nn.Linear(8, 2)

    task = Task()
    state = {f"elmo.{name}": value for name, value in allennlp_state(arrays, 2).items()}
    state.update({"head.weight": torch.ones(2, 8), "head.bias": torch.ones(2)})
    state["elmo._elmo_lstm._word_embedding.weight"] = torch.ones(5, 4)
    names = set(state)
    task.load_state_dict(state)
    assert set(state) == names
    result = task.elmo(batch_to_ids(BATCH[:1]))["elmo_representations"]
    layers = bilm.embed(BATCH[:1])[0]
    for k, found in enumerate(result):
        weights = np.exp([0.0, 0.5, 1.0]) / np.exp([0.0, 0.5, 1.0]).sum()
        expected = (2.0 + k) * np.tensordot(weights, layers, 1)
        np.testing.assert_allclose(found[0].detach().numpy(), expected, rtol=0, atol=1e-5)
    # Our own checkpoints load as ever.
    other = Task()
    other.load_state_dict(task.state_dict())
    torch.testing.assert_close(
        other.elmo(batch_to_ids(BATCH))["elmo_representations"],
        task.elmo(batch_to_ids(BATCH))["elmo_representations"],
    )
    assert set(task.state_dict()) == set(other.state_dict())


@pytest.mark.parametrize(
    "name", ["scalar_mix_1.gamma", "_elmo_lstm._elmo_lstm.forward_layer_1.state_linearity.bias"]
)
def test_incomplete_checkpoints_do_not_load(arrays: Arrays, bilm: BiLM, name: str) -> None:
    state = allennlp_state(arrays, 2)
    del state[name]
    module = Elmo(None, None, 2, module=make_other(bilm))
    with pytest.raises(RuntimeError, match="Missing key"):
        module.load_state_dict(state)
