"""The mix that a task of a trained pipeline has learned, with the biLM that it was trained on."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from ..errors import ElmoError, Errors
from .selection import Selection

if TYPE_CHECKING:
    from ..bilm import BiLM


def learned_mix(spec: str) -> Tuple[Selection, "BiLM"]:
    """Read the mix of a component.

    :param spec: Name or path of a pipeline, with ``:COMPONENT`` if more than one of its components
        has a mix. If ELMo is joined to input and output of a task, its mix at the input is
        meant. The component "elmo" itself has one as well: its setting `mix`.
    :returns: The mix, and the biLM whose layers it mixes.
    :raises ElmoError: E132 if there is no such pipeline, component or mix, or more than one.
    """
    import spacy

    name, component = _split(spec)
    try:
        nlp = spacy.load(name)
    except (OSError, ImportError, ValueError) as err:
        problem = f"the pipeline {name!r} cannot be loaded ({err})"
        raise ElmoError(Errors.E132.format(spec=spec, problem=problem)) from err
    mixes = _mixes(nlp)
    if component is None:
        if len(mixes) != 1:
            found = ", ".join(mixes) or "none"
            problem = f"{len(mixes)} components of the pipeline have a trained mix: {found}"
            raise ElmoError(Errors.E132.format(spec=spec, problem=problem))
        component = next(iter(mixes))
    if component in mixes:
        return _selection(mixes[component], spec), _bilm(nlp, component, spec)
    pipe: Any = nlp.get_pipe(component) if component in nlp.component_names else None
    if pipe is not None and hasattr(pipe, "mix_weights"):
        weights = tuple(float(w) for w in pipe.mix_weights())
        return Selection("mix", weights, source=spec), pipe.bilm
    found = ", ".join(mixes) or "none"
    problem = f"the pipeline has no component {component!r} with a mix (those with one: {found})"
    raise ElmoError(Errors.E132.format(spec=spec, problem=problem))


def _split(spec: str) -> Tuple[str, Optional[str]]:
    # A path may contain a colon itself.
    name, colon, component = spec.rpartition(":")
    if not colon or Path(spec).exists():
        return spec, None
    return name, component


def _mixes(nlp: Any) -> Dict[str, Any]:
    """The scalar mix of each component that has one; the one at its input if it has two."""
    from thinc.api import Model

    from ..layers.concat import find_mixes

    found: Dict[str, Any] = {}
    for name, pipe in nlp.pipeline:
        model = getattr(pipe, "model", None)
        mixes = find_mixes(model) if isinstance(model, Model) else []
        if mixes:
            # "input" comes before "output".
            found[name] = min(mixes, key=lambda mix: mix[0])[1]
    return found


def _selection(node: Any, spec: str) -> Selection:
    from ..layers.scalar_mix import shares

    def numbers(name: str) -> Optional[Tuple[float, ...]]:
        if not node.attrs["layer_norm"]:
            return None
        return tuple(float(x) for x in node.ops.to_numpy(node.get_param(name)))

    return Selection(
        "mix",
        tuple(float(s) for s in node.ops.to_numpy(shares(node))),
        float(node.get_param("gamma")[0]),
        numbers("G"),
        numbers("b"),
        source=spec,
    )


def _bilm(nlp: Any, component: str, spec: str) -> "BiLM":
    """The biLM of the component itself, else of the one that it listens to."""
    from ..layers.encoder import shim_of
    from ..layers.listener import state_of

    pipe: Any = nlp.get_pipe(component)
    for node in pipe.model.walk():
        if node.name == "elmo_encoder":
            return shim_of(node).bilm
        state = state_of(node)
        if state is not None and state.linked_to in nlp.component_names:
            bilm: "BiLM" = nlp.get_pipe(state.linked_to).bilm
            return bilm
    problem = f"the component {component!r} is linked to no biLM"
    raise ElmoError(Errors.E132.format(spec=spec, problem=problem))
