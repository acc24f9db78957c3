"""The spaCy component; importing this module registers the factory ``elmo``."""

from .component import Elmo
from .factory import make_elmo

__all__ = ["Elmo", "make_elmo"]
