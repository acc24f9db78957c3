"""One biLM in memory for all pipelines of a process that read it from the same files."""

import os
import threading
from pathlib import Path
from typing import Optional, Tuple, Union
from weakref import WeakValueDictionary

from ..bilm.encoder import BiLM
from ..bilm.io import locate

SourceT = Union[str, Tuple[str, str]]
#: Path, device, inode, time and size of each file.
IdentityT = Tuple[Tuple[str, int, int, int, int], ...]

_models: "WeakValueDictionary[IdentityT, BiLM]" = WeakValueDictionary()
_lock = threading.Lock()


def load_shared(source: SourceT) -> BiLM:
    """Load a model, or give the one that was loaded from the same, unchanged files.

    Who wants to change the weights has to take a copy first.

    source (SourceT): Built-in name, path, or the two paths of options and weights.
    RETURNS (BiLM): The model.
    """
    first, second = (source, None) if isinstance(source, str) else source
    location = locate(first, second)
    identity = _identity(location.path, location.weights)
    with _lock:
        found = _models.get(identity)
        if found is None:
            found = _models[identity] = BiLM.load(first, second)
        return found


def _identity(path: Path, weights: Optional[Path]) -> IdentityT:
    files = [path] if weights is None else [path, weights]
    if path.is_dir():
        files = [*sorted(p for p in path.iterdir() if p.is_file()), *files[1:]]
    facts = []
    for file in files:
        stat = os.stat(file)
        name = os.path.realpath(file)
        facts.append((name, stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(facts)
