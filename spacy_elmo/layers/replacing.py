"""What stands in a listener's place after `nlp.replace_listeners`: two hooks that spaCy calls.

For each path that it was given, spaCy asks for a config and puts it there; which path that is, and
of which component, it does not say. Then it asks for the node in place of each listener. So where
the configs went is looked up when the first node is asked for, while the model is still whole: a
wrong path is refused then, and the config is put right.
"""

import copy
import weakref
from typing import Any, Dict, Iterator, List, Optional, Tuple

from spacy.language import Language
from thinc.api import Model

from ..errors import ElmoError, Errors
from .segmenters import NAMED, segmenter_name
from .settings import EncoderSettings
from .types import EncoderT

CONFIG_HOOK, NODE_HOOK = "replace_listener_cfg", "replace_listener"
LISTENER_NAME = "spacy-elmo.ElmoListener.v1"
#: The section that spaCy shows the hook.
_ROOT = "model.tok2vec"
#: Arguments of a listener that are not about its mix.
_OF_LISTENER = ("@architectures", "width", "upstream")
#: Keys from the section at `_ROOT` down.
PathT = Tuple[str, ...]
_MISSING = object()


class ListenerReplacement:
    """The hooks of an encoder.

    settings (EncoderSettings): The encoder's.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        self.settings = settings
        self._segmenter: Any = None
        self._pipeline: Optional["weakref.ref[Language]"] = None
        self._run: Optional[_Run] = None

    def install(self, encoder: EncoderT) -> None:
        """Put the hooks where spaCy looks for them."""
        encoder.attrs[CONFIG_HOOK] = self.config
        encoder.attrs[NODE_HOOK] = self.node

    # -- the segmenter's config ----------------------------------------------------------

    def watch(self, nlp: Language) -> None:
        """Tell whose config says what the segmenter was made of, once the component is in there."""
        self._pipeline = weakref.ref(nlp)

    def remember_segmenter(self, component: Any) -> None:
        """Take the segmenter's block from the config, since the pipeline need not live on.

        component (Elmo): The component with the encoder.
        """
        nlp = self._pipeline() if self._pipeline is not None else None
        if self._segmenter is None and nlp is not None:
            for name, known in nlp.components:
                if known is component:
                    self._segmenter = copy.deepcopy(nlp.get_pipe_config(name).get("segmenter"))

    def _segmenter_config(self) -> Optional[Dict[str, str]]:
        """The block for the config; None for the default.

        :raises ElmoError: E187 if the function is a user's own and comes from no block.
        """
        function = self.settings.segmenter
        name = None if function is None else segmenter_name(function)
        if function is None or name is not None:
            return None if name is None else {"@misc": name}
        block = self._segmenter
        if not (isinstance(block, dict) and any(key.startswith("@") for key in block)):
            shown = getattr(function, "__qualname__", repr(function))
            raise ElmoError(Errors.E187.format(found=shown, known=", ".join(NAMED)))
        return copy.deepcopy(block)

    # -- hooks ---------------------------------------------------------------------------

    def config(self, encoder: Dict[str, Any], tok2vec: Dict[str, Any]) -> Dict[str, Any]:
        """A config for one path.

        encoder (Dict[str, Any]): Config of the encoder.
        tok2vec (Dict[str, Any]): Config of the listening component's tok2vec.
        RETURNS (Dict[str, Any]): What spaCy puts at the path, as it will be unless `node` finds
            that it went elsewhere.
        :raises ElmoError: E186 if there is no listener in `tok2vec`, E187 for the segmenter.
        """
        run = self._run
        if run is None or not run.is_about(tok2vec):
            if next(_listeners(tok2vec), None) is None:
                is_section = isinstance(tok2vec, dict)
                found = tok2vec.get("@architectures") if is_section else tok2vec
                raise ElmoError(Errors.E186.format(found=found))
            encoder_config = {
                "@architectures": "spacy-elmo.ElmoTok2Vec.v1",
                **self.settings.to_config(),
                "precision": encoder.get("precision", "float32"),
                "segmenter": self._segmenter_config(),
            }
            run = self._run = _Run(tok2vec, encoder_config)
        return run.give()

    def node(self, encoder: EncoderT, listener: Model, component: Any) -> EncoderT:
        """The node in a listener's place.

        encoder (Model): A copy of the component's encoder.
        listener (Model): What it replaces.
        component (Elmo): The component with the encoder.
        :raises ElmoError: E185 if a path was not that of a listener; then nothing has changed.
        """
        run, self._run = self._run, None
        if run is not None:
            name, n_listeners = next(
                (name, len(nodes))
                for name, nodes in component.listener_map.items()
                if any(node is listener for node in nodes)
            )
            run.settle(name, component.name, n_listeners)
        for hook in (CONFIG_HOOK, NODE_HOOK):
            encoder.attrs.pop(hook, None)
        return encoder

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_pipeline": None, "_run": None}


def replacement_of(encoder: EncoderT) -> ListenerReplacement:
    """The hooks of a component's encoder."""
    hooks: ListenerReplacement = encoder.attrs[CONFIG_HOOK].__self__
    return hooks


class _Run:
    """One call of `nlp.replace_listeners`.

    section (Dict[str, Any]): Config of the listening component's tok2vec, which spaCy changes.
    encoder (Dict[str, Any]): Config of what comes in, without the mix.
    """

    def __init__(self, section: Dict[str, Any], encoder: Dict[str, Any]) -> None:
        self.section, self.encoder = section, encoder
        self.original = copy.deepcopy(section)
        self.given: List[Dict[str, Any]] = []

    def is_about(self, section: Dict[str, Any]) -> bool:
        """Whether this is the same section, or what stands in its place by now."""
        return any(section is known for known in (self.section, *self.given))

    def give(self) -> Dict[str, Any]:
        """A config for one path.

        One that went to the section itself is not found in it. So it is what is right there: the
        section as it was, unless that is a listener.
        """
        is_listener = _hears(self.original)
        new = self._replaced(self.original) if is_listener else copy.deepcopy(self.original)
        self.given.append(new)
        return new

    def settle(self, name: str, upstream: str, n_listeners: int) -> None:
        """Look where the configs went: complete them, or put all back and raise.

        name (str): The listening component.
        upstream (str): The component that it listens to.
        n_listeners (int): How many paths spaCy was given; more may have been asked for by a call
            that it broke off.
        """
        given = self.given[-n_listeners:]
        paths = sorted((_path_of(new, self.section) or () for new in given), key=len)
        befores = [_at(self.original, path) for path in paths]
        if len(set(paths)) == len(paths) and all(_hears(b, upstream) for b in befores):
            for path, before in zip(paths, befores):
                self._put(path, self._replaced(before))
            return
        for path, before in zip(paths, befores):
            if before is not _MISSING:
                self._put(path, copy.deepcopy(before))
        expected = [path for path, found in _listeners(self.original) if _hears(found, upstream)]
        raise ElmoError(
            Errors.E185.format(
                name=name,
                upstream=upstream,
                found=", ".join(map(_dotted, paths)),
                expected=", ".join(map(_dotted, expected)) or "none that is known",
            )
        )

    def _replaced(self, listener: Dict[str, Any]) -> Dict[str, Any]:
        mix = {key: value for key, value in listener.items() if key not in _OF_LISTENER}
        return {**copy.deepcopy(self.encoder), **mix}

    def _put(self, path: PathT, value: Any) -> None:
        if path:
            _at(self.section, path[:-1])[path[-1]] = value
        else:
            for new in self.given:
                new.clear()
                new.update(value)


def _listeners(section: Any, path: PathT = ()) -> Iterator[Tuple[PathT, Dict[str, Any]]]:
    """The sections of listeners in a section, itself included, with their paths."""
    if isinstance(section, dict):
        if section.get("@architectures") == LISTENER_NAME:
            yield path, section
        for key, part in section.items():
            yield from _listeners(part, (*path, key))


def _hears(section: Any, upstream: Optional[str] = None) -> bool:
    """Whether a section is that of a listener, and one that may hear this component."""
    if not isinstance(section, dict) or section.get("@architectures") != LISTENER_NAME:
        return False
    wanted = section.get("upstream", "*")
    # A variable of the config could be any.
    return upstream is None or wanted in ("*", upstream) or wanted.startswith("$")


def _path_of(wanted: Dict[str, Any], section: Any, path: PathT = ()) -> Optional[PathT]:
    """Where an object is in a section, None if it is not there."""
    if section is wanted:
        return path
    if not isinstance(section, dict):
        return None
    places = (_path_of(wanted, part, (*path, key)) for key, part in section.items())
    return next((place for place in places if place is not None), None)


def _at(section: Any, path: PathT) -> Any:
    """What is at a path; `_MISSING` in what was only put there."""
    for key in path:
        if not isinstance(section, dict) or key not in section:
            return _MISSING
        section = section[key]
    return section


def _dotted(path: PathT) -> str:
    return ".".join((_ROOT, *path))
