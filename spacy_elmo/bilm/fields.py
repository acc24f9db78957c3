"""Typed look-ups in parsed JSON that collect everything that is wrong."""

import math
from typing import Any, List, Mapping, Optional, Sequence, Tuple

_REQUIRED: Any = object()


class Fields:
    """A JSON object of a foreign configuration file.

    Look-ups give a harmless value of the right type where something is wrong and note the
    problem, so that one reading of the file finds all problems.

    :param values: The object.
    :param problems: Where problems are noted; shared with the sections of the object.
    :param prefix: Path of the object inside the file, for the messages.
    """

    def __init__(self, values: Mapping[str, Any], problems: List[str], prefix: str = "") -> None:
        self.values = values
        self.problems = problems
        self._prefix = prefix

    def section(self, name: str) -> "Fields":
        """An object inside this one."""
        value = self._get(name, _REQUIRED)
        if value is not None and not isinstance(value, Mapping):
            self._wrong(name, value, "an object")
            value = None
        # Where the whole section is missing, its members need not be listed as well.
        problems = self.problems if value is not None else []
        return Fields(value or {}, problems, f"{self._prefix}{name}.")

    def integer(self, name: str, default: Any = _REQUIRED) -> int:
        """A whole number; ``4096.0`` counts as one."""
        value = self._get(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if value is not None:
            self._wrong(name, value, "a whole number")
        return 1

    def number(self, name: str) -> Optional[float]:
        """A number, or None where it is null or absent."""
        value = self._get(name, None)
        if value is None or _is_number(value):
            return None if value is None else float(value)
        self._wrong(name, value, "a number")
        return None

    def text(self, name: str, choices: Sequence[str]) -> str:
        """One of several words, in any case."""
        value = self._get(name, _REQUIRED)
        if isinstance(value, str) and value.lower() in choices:
            return value.lower()
        if value is not None:
            self._wrong(name, value, f"one of {', '.join(choices)}")
        return choices[0]

    def flag(self, name: str, default: bool) -> bool:
        """A truth value."""
        value = self._get(name, default)
        if isinstance(value, bool):
            return value
        self._wrong(name, value, "true or false")
        return default

    def filters(self, name: str) -> Tuple[Tuple[int, int], ...]:
        """A list of ``[width, count]`` pairs."""
        value = self._get(name, _REQUIRED)
        if value is None:
            return ((1, 1),)
        pairs = value if isinstance(value, (list, tuple)) else [value]
        good = [
            isinstance(pair, (list, tuple))
            and len(pair) == 2
            and all(_is_number(n) and n == int(n) for n in pair)
            for pair in pairs
        ]
        if not pairs or not all(good):
            self._wrong(name, value, "a list of [width, count] pairs")
            return ((1, 1),)
        return tuple((int(width), int(count)) for width, count in pairs)

    def _get(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is None:
            if default is _REQUIRED:
                self.problems.append(f"{self._prefix}{name} is missing")
                return None
            return default
        return value

    def _wrong(self, name: str, value: Any, expected: str) -> None:
        shown = f"{value!r}"
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        self.problems.append(f"{self._prefix}{name} is {shown}, expected {expected}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
