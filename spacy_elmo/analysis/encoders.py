"""The biLM that an analysis looks into, and its views of a token: layers and mixes."""

from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import numpy as np

from ..bilm.encoder import BiLM
from ..bilm.io.detect import builtin_models
from ..errors import ElmoError, Errors

MixFunctionT = Callable[[np.ndarray], np.ndarray]


class Encoder:
    """A biLM with named views of its output.

    A view is ``"0"`` to ``"L"`` for a layer, ``"mix"`` for the component's own mix (the plain
    mean for weights without a pipeline), or the name of a component that listens, for the mix
    that it learned.

    :param bilm: The biLM.
    :param mixes: Functions from all layers ``(L + 1, n, width)`` to vectors ``(n, width)``.
    """

    def __init__(self, bilm: BiLM, mixes: Optional[Dict[str, MixFunctionT]] = None) -> None:
        self.bilm = bilm
        self.mixes: Dict[str, MixFunctionT] = {"mix": _mean} if mixes is None else mixes

    @property
    def views(self) -> List[str]:
        """Names of all views, layers first."""
        return [*map(str, range(self.bilm.n_layers)), *self.mixes]

    def check_views(self, names: Sequence[str]) -> List[str]:
        """The views that were asked for; all if none was.

        :raises ElmoError: E144 for a name that is no view.
        """
        for name in names:
            if name not in self.views:
                expected = "one of " + ", ".join(self.views)
                raise ElmoError(Errors.E144.format(name="layer", found=name, expected=expected))
        return list(dict.fromkeys(names)) or self.views

    def view(self, layers: np.ndarray, name: str) -> np.ndarray:
        """One view of tokens. *Shape:* ``(L + 1, n, width)`` to ``(n, width)``"""
        vectors = self.mixes[name](layers) if name in self.mixes else layers[int(name)]
        return np.ascontiguousarray(vectors, dtype=np.float32)


def _mean(layers: np.ndarray) -> np.ndarray:
    mean: np.ndarray = layers.mean(axis=0)
    return mean


def load_encoder(name: Union[str, Path]) -> Encoder:
    """Load a spaCy pipeline with a component ``elmo``, or weights of any supported format.

    :param name: Folder or installed package of a pipeline, built-in name, or path of weights.
    :raises ElmoError: E148 if the pipeline has no ``elmo``, and what :meth:`BiLM.load` raises.
    """
    path = Path(name)
    if (path / "config.cfg").exists() and (path / "meta.json").exists():
        return _of_pipeline(name)
    if not path.exists() and str(name) not in builtin_models():
        from spacy.util import is_package

        if is_package(str(name)):
            return _of_pipeline(name)
    return Encoder(BiLM.load(name))


def _of_pipeline(name: Union[str, Path]) -> Encoder:
    import spacy

    from ..layers.annotations import mixed
    from ..pipeline.component import Elmo

    nlp = spacy.load(name)
    elmo = next((pipe for _, pipe in nlp.pipeline if isinstance(pipe, Elmo)), None)
    if elmo is None:
        found = ", ".join(nlp.pipe_names) or "nothing"
        raise ElmoError(Errors.E148.format(name=str(name), found=found))
    weights = elmo.mix_weights()
    mixes: Dict[str, MixFunctionT] = {"mix": lambda layers: mixed(layers, weights)}
    for component, listeners in elmo.listener_map.items():
        pipe: Any = nlp.get_pipe(component)
        node = _scalar_mix(pipe.model, listeners)
        if node is not None and component not in mixes:
            mixes[component] = _predicts(node)
    return Encoder(elmo.bilm, mixes)


def _scalar_mix(model: Any, listeners: Sequence[Any]) -> Optional[Any]:
    """The scalar mix of a component's model that stands behind one of the listeners."""
    from ..layers.listener import JOIN_NAME
    from ..layers.scalar_mix import MIX_NAME

    for node in model.walk():
        if node.name == JOIN_NAME and any(node.layers[0] is m for m in listeners):
            for inner in node.walk():
                if inner.name == MIX_NAME and inner.has_param("w"):
                    return inner
    return None


def _predicts(node: Any) -> MixFunctionT:
    def mix(layers: np.ndarray) -> np.ndarray:
        (vectors,) = node.predict([node.ops.asarray3f(layers)])
        array: np.ndarray = node.ops.to_numpy(vectors)
        return array

    return mix
