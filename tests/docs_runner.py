"""Code blocks of a Markdown page: found, prepared for, run."""

import contextlib
import io
import lzma
import re
import shlex
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

import pytest
import spacy
from spacy.tokens import Doc, DocBin

from .bilm.writers import write_bilm_folder, write_many_langs_folder
from .util import ROOT

#: Stands before a block of commands that would take too long, or needs what is not there. Such
#: commands are checked against their options, but not run.
SHOWN = "<!-- not run:"
FENCE = re.compile(r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]*)\")?\s*$")
#: Programs that may stand in blocks of commands beside `python`, and are not run.
OTHER_PROGRAMS = ("pip", "torchrun", "mkdocs")
#: What a command is given beside its words, so that it ends soon; and for `spacy train` what the
#: page says to write into the config.
SHORTENED = {
    "train": [
        "--training.max_steps=4",
        "--training.eval_frequency=2",
        "--training.logger.@loggers=spacy-elmo.MixLogger.v1",
        "--training.logger.path=output/mixes.jsonl",
    ],
    "pretrain": [
        "--training.max_steps=3",
        "--training.eval_tokens=50",
        "--training.n_negatives=20",
    ],
}
SENTENCES = [
    "The bank lends money .",
    "She sat down on the bank of the river .",
    "He took the money to the bank .",
    "The bank of the river was green .",
    "My bank raised the interest on the loan .",
    "They walked along the bank and looked at the water .",
]
IOB = [
    "Maria|B-PER works|O for|O Acme|B-ORG in|O Berlin|B-LOC .|O",
    "John|B-PER lives|O in|O Paris|B-LOC .|O",
    "Globex|B-ORG hired|O Anna|I-PER .|O",
]
OPTIONS: Dict[str, Any] = {
    "lstm": {
        "dim": 20,
        "projection_dim": 16,
        "n_layers": 2,
        "cell_clip": 3,
        "proj_clip": 3,
        "use_skip_connections": True,
    },
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 8]],
        "max_characters_per_token": 50,
        "n_characters": 262,
        "n_highway": 1,
    },
}


class Block(NamedTuple):
    """A fenced block.

    :param line: Line of its fence, from 1.
    :param language: "python", "bash", "text", "ini", ...
    :param title: Of the fence, "" for none.
    :param shown: Whether a comment says that it is not run.
    :param code: What is in it.
    """

    line: int
    language: str
    title: str
    shown: bool
    code: str


def blocks_of(text: str) -> List[Block]:
    """All fenced blocks of a page, in order."""
    found: List[Block] = []
    lines = text.splitlines(keepends=True)
    i = 0
    while i < len(lines):
        fence = FENCE.match(lines[i])
        if fence is None:
            assert not lines[i].startswith("```"), f"line {i + 1}: {lines[i]}"
            i += 1
            continue
        end = next(k for k in range(i + 1, len(lines)) if lines[k].rstrip() == "```")
        shown = i > 0 and lines[i - 1].startswith(SHOWN)
        code = "".join(lines[i + 1 : end])
        found.append(Block(i + 1, fence["language"], fence["title"] or "", shown, code))
        i = end + 1
    return found


def commands_of(block: Block) -> List[List[str]]:
    """Commands of a block, each as its words; comments left out."""
    lines = block.code.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [found for found in words if found]


def prepare(folder: Path) -> None:
    """Small files under the names that the pages use."""
    names = ("sentences.txt", "heldout.txt", "domain/a.txt", "domain/b.txt", "tweets/a.txt")
    for name in (*names, "tweets-train.txt", "tweets-dev.txt"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    for name in ("train.iob", "dev.iob"):
        (folder / name).write_text("\n".join(IOB) + "\n", encoding="utf-8")
    (folder / "corpus").mkdir()
    for name in ("corpus/a.txt.xz", "heldout.txt.xz"):
        with lzma.open(folder / name, "wt", encoding="utf-8") as file:
            file.write("\n".join(SENTENCES * 40) + "\n")
    # Enough to hold every hundredth sentence out.
    (folder / "tweets" / "b.txt").write_text("\n".join(SENTENCES * 40) + "\n", encoding="utf-8")
    for part in ("configs", "spacy_elmo"):
        (folder / part).symlink_to(ROOT / part, target_is_directory=True)
    for name in ("train", "dev"):
        docs = DocBin(docs=[_annotated(line) for line in IOB])
        docs.to_disk(folder / f"{name}.spacy")
    write_bilm_folder(folder / "elmo", OPTIONS, names=("options.json", "weights.hdf5"))
    write_many_langs_folder(folder / "zh.model")


def _annotated(line: str) -> Doc:
    """A doc with the entities of a line, and with made-up tags."""
    words, entities = zip(*(token.split("|") for token in line.split()))
    tags = ["X" if tag == "O" else "N" for tag in entities]
    vocab = spacy.blank("en").vocab
    return Doc(vocab, words=list(words), tags=tags, pos=["X"] * len(words), ents=list(entities))


def run_page(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a page's blocks in a folder, the Python ones in one namespace.

    :returns: How many outputs were compared.
    """
    monkeypatch.chdir(folder)
    blocks = blocks_of(path.read_text(encoding="utf-8"))
    namespace: Dict[str, Any] = {"__name__": "page"}
    compared = 0
    for block, following in zip(blocks, [*blocks[1:], None]):
        where = f"{path.name}:{block.line}"
        if block.language == "python":
            code = compile("\n" * block.line + block.code, str(path), "exec")
            if block.title.startswith("Before") or block.shown:
                continue
            with captured() as printed:
                exec(code, namespace)
            if following is not None and following.language == "text" and not following.title:
                assert printed() == following.code, where
                compared += 1
        elif block.language == "bash" and not block.shown:
            for words in commands_of(block):
                if words[0] not in OTHER_PROGRAMS:
                    assert words[:3] == ["python", "-m", "spacy"], f"{where}: {words}"
                    run_command(words[3:], where)
    return compared


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """Standard output and error into memory; gives the function that reads them."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")

    def read() -> str:
        stream.flush()
        return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]

    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield read


def spacy_command() -> Any:
    """`python -m spacy` as a Click command, ours among its commands."""
    import typer
    from spacy.cli._util import app

    import spacy_elmo.cli  # noqa: F401

    return typer.main.get_command(app)


def run_command(words: List[str], where: str) -> None:
    """Run what stands behind `python -m spacy`, in this process."""
    name = words[1] if words[0] == "elmo" else words[0]
    # A run that goes on has its settings already.
    arguments = words if "--resume" in words else [*words, *SHORTENED.get(name, [])]
    with captured() as printed:
        try:
            code = spacy_command().main(arguments, prog_name="spacy", standalone_mode=False)
        except SystemExit as err:
            code = err.code
    assert not code, f"{where}: {' '.join(words)}\n{printed()[-2000:]}"


def check_command(words: List[str], where: str) -> None:
    """Check that a command exists and has the options that it is given."""
    command, names = spacy_command(), list(words)
    while hasattr(command, "commands"):
        assert names and names[0] in command.commands, f"{where}: no command {names[:1]}"
        command = command.commands[names.pop(0)]
    settings = dict(command.context_settings)
    free = bool(settings.get("ignore_unknown_options"))
    context = command.context_class(command, info_name=command.name, **settings)
    # Raises for an unknown option, and for one without its value. Uses up the list it is given.
    command.make_parser(context).parse_args(list(names))
    if free:
        for option in _settings(names):
            if command.name == "pretrain":
                _check_setting(option, where)
            else:
                known = {name for p in command.params for name in p.opts}
                assert "." in option or option in known, f"{where}: {option}"


def _settings(words: List[str]) -> Iterator[str]:
    for word in words:
        if word.startswith("--"):
            yield word.partition("=")[0]


def _check_setting(option: str, where: str) -> None:
    from dataclasses import fields

    from spacy_elmo.bilm.config import CharCNNConfig, LSTMConfig
    from spacy_elmo.training.config import TrainingConfig

    sections: Dict[str, Optional[Any]] = {
        "training": TrainingConfig,
        "model.char_cnn": CharCNNConfig,
        "model.lstm": LSTMConfig,
    }
    section, dot, name = option[2:].rpartition(".")
    if dot:
        assert section in sections, f"{where}: {option}"
        assert name in {f.name for f in fields(sections[section])}, f"{where}: {option}"
    else:
        known = {
            o for p in spacy_command().commands["elmo"].commands["pretrain"].params for o in p.opts
        }
        assert option in known, f"{where}: {option}"
