"""Write the sentences of assets/ambiguous from their templates.

    python scripts/make_ambiguous.py

The sentences are synthetic. Their forms are ambiguous and the context decides: Washington is a
person, a place or a team, a bank lends money or borders a river, "may" is a verb, a month or a
name. Each set has templates of its own, so that no context of the test set was seen in training.
The output follows from the templates and the seed alone.
"""

import os
import random
import re
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

FOLDER = Path(__file__).parents[1] / "assets" / "ambiguous"
#: Sentences that a template gives at most; one without anything to choose gives one.
PER_TEMPLATE = {"train": 8, "dev": 4, "test": 4}
SLOT = re.compile(r"\{(\w+)\}")


class Slot(NamedTuple):
    """Names that can stand in a place, and the label that they have there."""

    label: str
    names: List[str]


class Template(NamedTuple):
    """A line of a template file and where it stands."""

    where: str
    text: str


def read_lexicon(path: Path) -> Dict[str, str]:
    """Part of speech of each word that has only one."""
    tags: Dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        tag, words = line.split(":", 1)
        for word in words.split():
            if tags.setdefault(word, tag) != tag:
                raise SystemExit(
                    f"{path.name}: {word!r} is {tags[word]} and {tag}. Take it out, and give its "
                    f"part of speech in the templates: {word}/{tag}."
                )
    return tags


def read_templates(path: Path) -> Tuple[Dict[str, Slot], List[Template]]:
    """Slots and templates of a set."""
    slots, templates = {}, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("@"):
            name, label, names = re.fullmatch(r"@(\w+) (\w+): (.+)", line).groups()
            slots[name] = Slot(label, names.split())
        else:
            templates.append(Template(f"{path.name}, line {number}", line))
    return slots, templates


def untagged_words(template: Template) -> Iterator[str]:
    """Words whose part of speech a template leaves to the lexicon."""
    for part in template.text.split():
        for choice in part.partition("@")[0].split("|"):
            if "/" not in choice and not SLOT.search(choice):
                yield choice.lower()


class Writer:
    """Makes sentences of templates.

    lexicon (Dict[str, str]): Parts of speech.
    slots (Dict[str, Slot]): Names.
    seed (str): Start of the random choices.
    """

    def __init__(self, lexicon: Dict[str, str], slots: Dict[str, Slot], seed: str) -> None:
        self.lexicon, self.slots = lexicon, slots
        self.random = random.Random(seed)

    def sentences(self, template: Template, n: int) -> Iterator[str]:
        """Up to n different sentences; no two tokens of one have the same name."""
        seen: Dict[str, None] = {}
        for _ in range(10 * n):
            line = self._sentence(template)
            if line is not None:
                seen.setdefault(line)
            if len(seen) == n:
                break
        yield from seen

    def _sentence(self, template: Template) -> Optional[str]:
        words: List[str] = []
        names: List[str] = []
        for part in template.text.split():
            choices, _, label = part.partition("@")
            choice, _, tag = self.random.choice(choices.split("|")).partition("/")
            for slot in SLOT.findall(choice):
                name = self.random.choice(self.slots[slot].names)
                if name in names:
                    return None
                names.append(name)
                label, tag = label or self.slots[slot].label, tag or "PROPN"
                choice = choice.replace(f"{{{slot}}}", name, 1)
            # An ambiguous noun is not in the lexicon: its label says what it means here.
            tag = tag or ("NOUN" if label else "")
            # A name of several words is written with underscores.
            for i, word in enumerate(choice.split("_")):
                iob = f"{'I' if i else 'B'}-{label}" if label else "O"
                words.append(f"{word}|{tag or self._tag(word, template)}|{iob}")
        return " ".join(words)

    def _tag(self, word: str, template: Template) -> str:
        key = word.lower()
        if key not in self.lexicon:
            raise SystemExit(
                f"{template.where}: {word!r} is not in the lexicon. Give its part of speech "
                f"there, or here as {word}/TAG if it can have several."
            )
        return self.lexicon[key]


def make(folder: Path = FOLDER) -> Dict[str, str]:
    """Text of each file by its name: a sentence a line, tokens as word|part of speech|entity."""
    lexicon = read_lexicon(folder / "lexicon.txt")
    files: Dict[str, str] = {}
    used: Set[str] = set()
    for name, n in PER_TEMPLATE.items():
        slots, templates = read_templates(folder / "templates" / f"{name}.txt")
        writer = Writer(lexicon, slots, f"ambiguous {name}")
        lines = [line for template in templates for line in writer.sentences(template, n)]
        writer.random.shuffle(lines)
        files[f"ambiguous-{name}.iob"] = "\n".join(lines) + "\n"
        used |= {word for template in templates for word in untagged_words(template)}
    if unused := sorted(set(lexicon) - used):
        raise SystemExit(f"lexicon.txt has words that no template has: {', '.join(unused)}.")
    return files


if __name__ == "__main__":
    for file_name, text in make().items():
        path = FOLDER / file_name
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(text, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
        print(f"{path.name}: {text.count(chr(10))} sentences")
