"""Embed a corpus: read, encode, keep finished parts, and put the whole output in place."""

import os
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, Hashable, Iterator, List, Optional, Sequence, Union

import numpy as np

from ..bilm import BiLM
from ..errors import ElmoError, Errors
from .facts import differences, hash_file, hash_model, say_os_error
from .forecast import Counts, count, forecast
from .formats import FOLDERS, IN_PLACE, assemble, check_format, format_of
from .items import Item, read_items
from .journal import Journal
from .options import EmbedOptions, Plan, Progress
from .parts import PART_ITEMS, Part, default_part_tokens
from .safetensors_folder import INDEX_NAME
from .stored import FORMAT_NAME, FORMAT_VERSION, Manifest
from .tokenizing import Tokenizer

#: Where a run keeps what is done: OUTPUT.partial.
PARTIAL_SUFFIX = ".partial"


#: Told of the plan before any sentence is encoded, and all the time of how far the run is.
Announce = Callable[[Plan], None]
Told = Callable[[Progress], object]


def embed_corpus(
    bilm: BiLM,
    input: Union[str, Path],
    output: Union[str, Path],
    options: Optional[EmbedOptions] = None,
    *,
    announce: Optional[Announce] = None,
    progress: Optional[Told] = None,
    dry_run: bool = False,
) -> Plan:
    """Write the vectors of all lines (or docs) of a file.

    Item i of the output is line i of the input, blank lines and duplicates included. The input is
    read twice: to count it and to embed it. Memory is bounded whatever its size (but for a
    DocBin, which is loaded whole). A run that is killed goes on where it was when it is started
    again, and ends with the same bytes as one that was not: OUTPUT.partial holds finished parts
    until the output is put in place as a whole.

    :param bilm: The model.
    :param input: What to embed, see `read_items`.
    :param output: File (HDF5, npz, Parquet) or folder (safetensors). With shards, the name of all
        of them; each gets its number.
    :param options: What to write and how.
    :param announce: Told of the plan once all is counted.
    :param progress: Told at the beginning of each phase, and often in it, how far the run is.
    :param dry_run: Count and announce only; nothing is written.
    :returns: The plan that was carried out.
    :raises ElmoError: E130 to E137 for options, outputs and unfinished runs that do not fit, E039
        if it cannot be written, E060 to E079, E100 and E162 for the input.
    """
    options = options or EmbedOptions()
    output = options.shard.path(Path(output))
    format = format_of(output, options.format)
    check_format(format, output, options.compress)
    if output.is_symlink():
        # A link stays one; the parts lie beside what it leads to, perhaps on another disk.
        output = Path(os.path.realpath(output))
    options.selection.check(bilm.n_layers, bilm.width)
    if bilm.config.initial_state == "carry":
        expected = "'zero' or 'primed', which keep sentences independent of their batch,"
        raise ElmoError(Errors.E094.format(name="initial_state", found="carry", expected=expected))
    job = _Job(bilm, Path(input), output, format, options, progress or (lambda progress: None))
    try:
        return job.run(announce, dry_run)
    except OSError as err:
        problem = say_os_error(err)
        raise ElmoError(Errors.E039.format(path=output, problem=problem)) from err


class _Job:
    """One run, with everything that was settled before it."""

    def __init__(
        self,
        bilm: BiLM,
        input: Path,
        output: Path,
        format: str,
        options: EmbedOptions,
        told: Told,
    ) -> None:
        self.bilm, self.input, self.output = bilm, input, output
        self.format, self.options, self.told = format, options, told
        self.tokenizer: Optional[Tokenizer] = None
        if options.lang or options.model or options.segmenter != "punct":
            self.tokenizer = Tokenizer(options.lang, options.model, options.segmenter)
        n_values = int(np.prod(options.selection.shape(bilm.n_layers, 1, bilm.width)))
        self.bytes_per_token = n_values * np.dtype(options.dtype).itemsize
        self.part_tokens = options.part_tokens or default_part_tokens(self.bytes_per_token)

    def items(self, done: int = 0, *, counting: bool = False) -> Iterator[Item]:
        """Items of the shard, without the first ones of it.

        :param counting: Their tokens alone are wanted, not the sentences.
        """
        shard = self.options.shard
        self.n_seen = 0

        def wanted(index: int) -> bool:
            self.n_seen = index + 1
            return shard.owns(index) and index // shard.n >= done

        tokenizer = self.tokenizer
        if tokenizer is not None and counting:
            tokenizer = tokenizer.for_counting()
        return read_items(self.input, tokenizer, wanted)

    def count(self) -> Counts:
        """Size of the shard; reads the input once."""
        self.told(Progress("count", 0, None))
        items = self.items(counting=True)
        counts = count(items, lambda n_items: self.told(Progress("count", n_items, None)))
        counts.n_total = self.n_seen
        return counts

    def run(self, announce: Optional[Announce], dry_run: bool) -> Plan:
        folder = self.output.with_name(self.output.name + PARTIAL_SUFFIX)
        # Says what is wrong with the path before anything is made.
        self.items()
        if dry_run:
            plan = self._plan(self.count(), 0, 0)
            if announce is not None:
                announce(plan)
            plan.forecast.check_room(self.output.parent)
            return plan
        self._check_output(folder)
        with Journal(folder) as journal:
            try:
                return self._run(journal, announce)
            finally:
                # Nothing was done: nothing stays behind.
                if journal.header is None and folder.exists():
                    journal.remove()

    def _run(self, journal: Journal, announce: Optional[Announce]) -> Plan:
        options, output = self.options, self.output
        facts = self._facts()
        if journal.header is not None and journal.header["run"] != facts:
            if not options.overwrite:
                found = differences(journal.header["run"], facts)
                raise ElmoError(Errors.E135.format(path=journal.folder, differences=found))
            journal.clear()
        placed = output.exists() and journal.placed(output)
        if journal.header is None:
            journal.begin({"run": facts, "counts": self.count().to_dict()})
        assert journal.header is not None
        counts = Counts(**journal.header["counts"])
        if not placed:
            journal.verify()
        done = [sum(part[name] for part in journal.parts) for name in ("n_items", "n_tokens")]
        plan = self._plan(counts, *done)
        if announce is not None:
            announce(plan)
        if not placed:
            plan.forecast.check_room(output.parent, sum(p["bytes"] for p in journal.parts))
            if plan.items_done < counts.n_items:
                self._embed(journal, plan)
            self._finish(journal, counts, facts)
        journal.remove()
        return plan

    def _check_output(self, folder: Path) -> None:
        """Refuse to replace what is not ours, unless a run was killed after placing it."""
        if not self.output.exists() or folder.exists() and self._was_placed(folder):
            return
        if not self.options.overwrite:
            raise ElmoError(Errors.E134.format(path=self.output, what=""))
        is_folder = self.output.is_dir()
        if not is_folder and not self.output.is_file():
            what = " and is a pipe, socket or device"
            raise ElmoError(Errors.E134.format(path=self.output, what=what))
        if is_folder != (self.format in FOLDERS):
            what = f" and is a {'folder' if is_folder else 'file'}, unlike a {self.format} output"
            raise ElmoError(Errors.E134.format(path=self.output, what=what))
        if is_folder and any(self.output.iterdir()):
            index = self.output / INDEX_NAME
            if not index.exists() or FORMAT_NAME not in index.read_text(encoding="utf-8"):
                what = " and holds something else"
                raise ElmoError(Errors.E134.format(path=self.output, what=what))

    def _was_placed(self, folder: Path) -> bool:
        with Journal(folder) as journal:
            return journal.placed(self.output)

    def _plan(self, counts: Counts, items_done: int, tokens_done: int) -> Plan:
        sizes = forecast(
            counts,
            self.bytes_per_token,
            self.bilm.n_layers if self.options.selection.kind == "all" else 1,
            self.format,
            not self.options.forget_sentences,
            self.format in IN_PLACE,
        )
        return Plan(self.output, self.format, counts, sizes, items_done, tokens_done)

    # -- work ----------------------------------------------------------------------------

    def _embed(self, journal: Journal, plan: Plan) -> None:
        options = self.options
        n_done, n_tokens = plan.tokens_done, plan.counts.n_tokens
        self.told(Progress("embed", n_done, n_tokens))
        part = Part(not options.forget_sentences)
        # The engine keeps words of earlier batches, whose last bits may depend on the batch that
        # they were in (they do not with the usual libraries, but nobody promises it). A part that
        # begins without them is the same whatever was done before it.
        self.bilm.forget_words()
        # Duplicates are common in corpora of short lines, and encoded once in a part.
        known: Dict[Hashable, np.ndarray] = {}
        batch: List[Item] = []
        pending = 0

        def flush() -> None:
            nonlocal batch, n_done
            distinct = {_key(item): item for item in batch if _key(item) not in known}
            known.update(zip(distinct, self._vectors(list(distinct.values()))))
            for item in batch:
                part.add(item, known[_key(item)])
            n_done += sum(len(item.tokens) for item in batch)
            self.told(Progress("embed", n_done, n_tokens))
            batch = []

        for item in self.items(plan.items_done):
            batch.append(item)
            pending += len(item.tokens)
            full = pending >= self.part_tokens or len(part) + len(batch) >= PART_ITEMS
            if full or len(batch) >= options.batch_size:
                flush()
            if full:
                part = part.write(journal)
                self.bilm.forget_words()
                known.clear()
                pending = 0
        flush()
        if len(part):
            part.write(journal)

    def _vectors(self, items: Sequence[Item]) -> List[np.ndarray]:
        """What is kept of each item, in the output's precision."""
        sentences = [
            [item.tokens[i] for i in places] for item in items for places in item.sentences
        ]
        embedded = iter(self.bilm.embed(sentences, batch_tokens=self.options.batch_tokens))
        result = []
        for item in items:
            if len(item.sentences) == 1 and len(item.sentences[0]) == len(item.tokens):
                layers = next(embedded)
            else:
                shape = (self.bilm.n_layers, len(item.tokens), self.bilm.width)
                layers = np.zeros(shape, np.float32)
                for places in item.sentences:
                    layers[:, places] = next(embedded)
            kept = self.options.selection.apply(layers)
            result.append(np.ascontiguousarray(kept, self.options.dtype))
        return result

    def _finish(self, journal: Journal, counts: Counts, facts: Dict[str, Any]) -> None:
        assembled = journal.folder / "assembled"
        if assembled.exists():
            shutil.rmtree(assembled) if assembled.is_dir() else assembled.unlink()
        parts = [(journal.folder / p["file"], p["n_items"]) for p in journal.parts]
        manifest = self._manifest(counts, facts)

        def told(share: float) -> None:
            n_items = counts.n_items
            self.told(Progress("assemble", round(share * n_items), n_items))

        told(0.0)
        assemble(self.format, assembled, manifest, parts, self.options.compress, told)
        _sync(assembled)
        journal.will_place(assembled)
        if self.output.is_dir():
            # A folder cannot be renamed over another one.
            aside = journal.folder / "replaced"
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(self.output, aside)
        os.replace(assembled, self.output)

    # -- facts ---------------------------------------------------------------------------

    def _facts(self) -> Dict[str, Any]:
        """What the content of the parts depends on; a run only goes on with the same."""
        options = self.options
        return {
            "version": FORMAT_VERSION,
            "input": hash_file(self.input),
            "biLM": hash_model(self.bilm),
            "selection": options.selection.to_dict(),
            "dtype": options.dtype,
            "lang": options.lang,
            "model": options.model,
            "segmenter": options.segmenter,
            "shard": list(options.shard),
            "sentences": not options.forget_sentences,
            "part_tokens": self.part_tokens,
        }

    def _manifest(self, counts: Counts, facts: Dict[str, Any]) -> Manifest:
        names = ("version", "selection", "dtype", "lang", "segmenter", "shard", "sentences")
        meta = self.bilm.config.meta
        return {
            "format": FORMAT_NAME,
            **{name: facts[name] for name in names},
            "pipeline": facts["model"],
            "model": {"name": meta.get("name"), "fingerprint": facts["biLM"]},
            "initial_state": self.bilm.config.initial_state,
            "n_layers": self.bilm.n_layers,
            "width": self.bilm.width,
            **counts.to_dict(),
        }


def _key(item: Item) -> Hashable:
    """What an item's vectors depend on."""
    return tuple(item.tokens), tuple(map(tuple, item.sentences))


def _sync(path: Path) -> None:
    """See to it that a file (or the names in a folder) are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
