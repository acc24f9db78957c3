"""Shares of one corpus for several machines."""

import re
from pathlib import Path
from typing import NamedTuple, Optional

from ..errors import ElmoError, Errors

#: Name of a shard of OUTPUT.SUFFIX, as `Shard.path` makes it.
NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5,})-of-(?P<n>\d{5,})$")


class Shard(NamedTuple):
    """Items ``number − 1``, ``number − 1 + n``, ...: every n-th of the corpus.

    Taking turns rather than blocks, so that shards are equally long without counting first, and
    equally hard where a corpus is sorted by length.
    """

    number: int = 1
    n: int = 1

    def owns(self, index: int) -> bool:
        """Whether the item is in this shard."""
        return index % self.n == self.number - 1

    def item(self, position: int) -> int:
        """Number in the corpus of the shard's item at a position from 0."""
        return self.number - 1 + position * self.n

    def size(self, n_items: int) -> int:
        """How many of a corpus' items are in this shard."""
        return max(0, -(-(n_items - self.number + 1) // self.n))

    def path(self, output: Path) -> Path:
        """Name of this shard's output: OUTPUT itself if it is the only one."""
        if self.n == 1:
            return output
        return output.with_name(f"{output.stem}-{self.number:05d}-of-{self.n:05d}{output.suffix}")


def parse_shard(spec: Optional[str]) -> Shard:
    """Shard of "2/4"; the whole corpus for None.

    :raises ElmoError: E133 for anything else than i/n with 1 <= i <= n.
    """
    if spec is None:
        return Shard()
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", spec.strip())
    shard = Shard(*map(int, match.groups())) if match else Shard(0, 0)
    if not 1 <= shard.number <= shard.n:
        raise ElmoError(Errors.E133.format(found=spec))
    return shard
