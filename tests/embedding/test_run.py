"""A run around its work: forecast, outputs that exist, unfinished runs, full disks."""

import json
import os
import shutil
from pathlib import Path
from typing import Any, Iterator, List, Optional, Tuple

import numpy as np
import pytest

from spacy_elmo import read_embeddings
from spacy_elmo.bilm import BiLM
from spacy_elmo.embedding import EmbedOptions, Plan, Progress, embed_corpus
from spacy_elmo.embedding import items as items_module
from spacy_elmo.embedding.journal import Journal
from spacy_elmo.embedding.selection import Selection
from spacy_elmo.embedding.sharding import Shard, parse_shard
from spacy_elmo.errors import ElmoError, ElmoWarning

from .corpus import LINES, OUTPUTS, contents, embed, lines, write_lines

SMALL_PARTS = EmbedOptions(part_tokens=30)


class Interrupted(Exception):
    pass


def interrupt(bilm: BiLM, source: Path, output: Path, options: EmbedOptions = SMALL_PARTS) -> None:
    """A run that ends in the middle."""
    n_calls = 0

    def told(progress: Progress) -> None:
        nonlocal n_calls
        n_calls += progress.phase == "embed" and progress.done > 0
        if n_calls == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        embed_corpus(bilm, source, output, options, progress=told)
    assert output.with_name(output.name + ".partial").is_dir() and not output.exists()


def names(folder: Path) -> List[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_phase_is_told_from_beginning_to_end(name: str, bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", lines(300))
    reports: List[Progress] = []
    plan = embed_corpus(bilm, source, tmp_path / name, SMALL_PARTS, progress=reports.append)
    assert list(dict.fromkeys(r.phase for r in reports)) == ["count", "embed", "assemble"]
    n_tokens = plan.counts.n_tokens
    for phase, last, total in (
        ("count", 300, None),
        ("embed", n_tokens, n_tokens),
        ("assemble", 300, 300),
    ):
        done = [r.done for r in reports if r.phase == phase]
        assert {r.total for r in reports if r.phase == phase} == {total}
        assert done[0] == 0 and done[-1] == last and done == sorted(done)
        assert len(set(done)) > 4
    # What an earlier run has done is not begun at zero, nor counted again.
    interrupt(bilm, source, tmp_path / f"again-{name}")
    reports.clear()
    plan = embed_corpus(
        bilm, source, tmp_path / f"again-{name}", SMALL_PARTS, progress=reports.append
    )
    assert reports[0] == Progress("embed", plan.tokens_done, n_tokens) and plan.tokens_done > 0
    # Counting alone takes as long, and says so.
    reports.clear()
    embed_corpus(bilm, source, tmp_path / "new.npz", progress=reports.append, dry_run=True)
    assert reports[0].done == 0 and reports[-1] == Progress("count", 300, None)


@pytest.mark.parametrize("lang", [None, "en"])
def test_the_text_is_streamed(
    lang: Optional[str], bilm: BiLM, tmp_path: Path, monkeypatch: Any
) -> None:
    """Lines read ahead of what is counted, embedded, or safe in a part are few."""
    # Of five tokens, so that a part has ten; none twice, so that each is encoded.
    content = [f"the cat sees dog{i} ." for i in range(120)]
    source, output = write_lines(tmp_path / "in.txt", content), tmp_path / "a.npz"
    options = EmbedOptions(lang=lang, part_tokens=50, batch_size=4)
    # Raw text is cut some lines at a time.
    monkeypatch.setattr(items_module, "BATCH", 3)
    cut = 0 if lang is None else 3
    read, encoded = 0, 0
    ahead: List[Tuple[int, int]] = []
    ahead_of_count: List[int] = []
    read_lines, encode = items_module.read_lines, BiLM.embed

    def reading(path: Path, max_bytes: int) -> Iterator[Tuple[int, bytes]]:
        nonlocal read
        read = 0
        for line in read_lines(path, max_bytes):
            read += 1
            yield line

    def encoding(self: BiLM, sentences: Any, **settings: Any) -> Any:
        nonlocal encoded
        entries = (tmp_path / "a.npz.partial" / "journal.jsonl").read_text().splitlines()[1:]
        safe = sum(json.loads(entry)["n_items"] for entry in entries)
        ahead.append((read - encoded, read - safe))
        encoded += len(sentences)
        return encode(self, sentences, **settings)

    def told(progress: Progress) -> None:
        if progress.phase == "count":
            ahead_of_count.append(read - progress.done)

    monkeypatch.setattr(items_module, "read_lines", reading)
    monkeypatch.setattr(BiLM, "embed", encoding)
    embed_corpus(bilm, source, output, options, progress=told)
    assert read == encoded == len(content) and len(ahead) >= 120 / 4
    assert max(of_encoded for of_encoded, _ in ahead) <= 4 + cut
    assert max(of_safe for _, of_safe in ahead) <= 10 + 4 + cut
    assert len(ahead_of_count) > 2 and max(ahead_of_count) <= 1 + cut


@pytest.mark.parametrize(
    "kind, dtype",
    [("all", "float32"), ("all", "float16"), ("top", "float32"), ("average", "float16")],
)
@pytest.mark.parametrize("name", OUTPUTS)
def test_the_forecast_is_near_the_truth(
    name: str, kind: str, dtype: str, bilm: BiLM, tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "in.txt", lines(300))
    events: List[Any] = []
    options = EmbedOptions(Selection(kind), dtype=dtype)
    embed_corpus(
        bilm, source, tmp_path / name, options, announce=events.append, progress=events.append
    )
    (plan,) = (event for event in events if isinstance(event, Plan))
    # In time to stop the run before its work.
    phases = [event.phase for event in events[: events.index(plan)]]
    assert set(phases) == {"count"} and events[events.index(plan) + 1].phase == "embed"
    data = contents(tmp_path / name)
    size = len(data) if isinstance(data, bytes) else sum(map(len, data.values()))
    assert size <= plan.forecast.output <= 1.5 * size
    assert plan.counts.n_tokens == sum(len(line.split()) for line in lines(300))
    in_place = name.endswith(".safetensors")
    assert (plan.forecast.while_running == plan.forecast.output) == in_place


def test_a_dry_run_writes_nothing(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    plan = embed_corpus(bilm, source, tmp_path / "new" / "a.npz", dry_run=True)
    assert plan.counts.n_items == len(LINES) and names(tmp_path) == ["in.txt"]


def test_a_disk_without_room(bilm: BiLM, tmp_path: Path, monkeypatch: Any) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.warns(ElmoWarning, match="W130.*KiB.*1000 bytes"):
        embed_corpus(bilm, source, tmp_path / "a.npz")
    assert len(read_embeddings(tmp_path / "a.npz")) == len(LINES)


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_full_disk_is_said_plainly_and_the_run_goes_on(
    name: str, bilm: BiLM, tmp_path: Path
) -> None:
    resource = pytest.importorskip("resource")
    source = write_lines(tmp_path / "in.txt", lines(60))
    whole = embed(bilm, source, tmp_path / f"whole{Path(name).suffix}", part_tokens=30)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Less than a part; and for those that are assembled, more than a part but less than all.
    limits = [1000] if name.endswith("safetensors") else [1000, 30_000]
    for limit in limits:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            with pytest.raises(ElmoError, match="E039.*(File too large|errno 27)"):
                embed_corpus(bilm, source, tmp_path / name, SMALL_PARTS)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert not (tmp_path / name).exists()
    plan = embed_corpus(bilm, source, tmp_path / name, SMALL_PARTS)
    assert (plan.items_done == 60) == (len(limits) == 2)
    assert contents(tmp_path / name) == contents(tmp_path / f"whole{Path(name).suffix}")
    whole.close()


def test_places_that_cannot_be_written(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    with pytest.raises(ElmoError, match="E039.*Not a directory"):
        embed_corpus(bilm, source, source / "a.npz")


def test_an_output_that_exists_is_kept(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    for name in ("a.npz", "a.safetensors"):
        embed_corpus(bilm, source, tmp_path / name)
        before = contents(tmp_path / name)
        with pytest.raises(ElmoError, match="E134"):
            embed_corpus(bilm, source, tmp_path / name)
        assert contents(tmp_path / name) == before
        options = EmbedOptions(Selection("top"), overwrite=True)
        embed_corpus(bilm, source, tmp_path / name, options)
        assert read_embeddings(tmp_path / name)[1].vectors.shape == (6, 16)
    # Not what somebody else has put there, not even with --overwrite.
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("\\end")
    options = EmbedOptions(format="safetensors", overwrite=True)
    for name in ("mine", "a.npz"):
        with pytest.raises(ElmoError, match="E134"):
            embed_corpus(bilm, source, tmp_path / name, options)
    assert names(tmp_path) == ["a.npz", "a.safetensors", "in.txt", "mine"]


@pytest.mark.parametrize("name", OUTPUTS)
def test_links_stay_and_what_they_lead_to_is_written(name: str, bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    (tmp_path / name).symlink_to(Path("disk") / "vectors")
    for kind in ("all", "top"):
        options = EmbedOptions(Selection(kind), overwrite=kind == "top")
        embed_corpus(bilm, source, tmp_path / name, options)
        embed_corpus(bilm, source, tmp_path / f"{kind}-{name}", options)
        assert contents(tmp_path / "disk" / "vectors") == contents(tmp_path / f"{kind}-{name}")
        assert (tmp_path / name).is_symlink() and names(tmp_path / "disk") == ["vectors"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_not_replaced(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(ElmoError, match="E134.*a pipe, socket or device"):
        embed_corpus(bilm, source, tmp_path / "a.npz", EmbedOptions(overwrite=True))
    assert (tmp_path / "a.npz").is_fifo() and names(tmp_path) == ["a.npz", "in.txt"]


def test_a_run_goes_on_only_with_the_same(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", lines(60))
    output = tmp_path / "a.npz"
    embed_corpus(bilm, source, tmp_path / "whole.npz", SMALL_PARTS)
    interrupt(bilm, source, output)
    other = BiLM.from_files(bilm.to_files(), initial_state="primed")
    write_lines(tmp_path / "other.txt", lines(61))
    for model, text, options, problem in (
        (other, "in.txt", SMALL_PARTS, "the biLM was another"),
        (bilm, "other.txt", SMALL_PARTS, "the input had other content"),
        (bilm, "in.txt", EmbedOptions(part_tokens=31), "part_tokens was 30, not 31"),
        (bilm, "in.txt", EmbedOptions(Selection("top"), part_tokens=30), "selection was"),
    ):
        with pytest.raises(ElmoError, match=f"E135.*{problem}"):
            embed_corpus(model, tmp_path / text, output, options)
    plan = embed_corpus(bilm, source, output, SMALL_PARTS)
    assert 0 < plan.items_done < 60 and 30 <= plan.tokens_done < plan.counts.n_tokens
    assert contents(output) == contents(tmp_path / "whole.npz")
    assert names(tmp_path) == ["a.npz", "in.txt", "other.txt", "whole.npz"]


def test_an_unfinished_run_can_be_given_up(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", lines(60))
    interrupt(bilm, source, tmp_path / "a.npz")
    options = EmbedOptions(Selection("top"), overwrite=True)
    plan = embed_corpus(bilm, source, tmp_path / "a.npz", options)
    assert plan.items_done == 0 and names(tmp_path) == ["a.npz", "in.txt"]
    assert read_embeddings(tmp_path / "a.npz")[1].vectors.ndim == 2


def test_a_batch_size_may_change_on_the_way(bilm: BiLM, tmp_path: Path) -> None:
    """The way out when a run was killed for its memory."""
    source = write_lines(tmp_path / "in.txt", lines(60))
    interrupt(bilm, source, tmp_path / "a.npz")
    found = embed(bilm, source, tmp_path / "a.npz", part_tokens=30, batch_size=1)
    for item, line in zip(found, lines(60)):
        np.testing.assert_allclose(item.vectors, bilm.embed([line.split()])[0], atol=1e-5)


def test_parts_that_are_missing_are_noticed(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", lines(60))
    interrupt(bilm, source, tmp_path / "a.npz")
    part = next((tmp_path / "a.npz.partial").glob("part-*"))
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(ElmoError, match=f"E135.*{part.name} is missing or not"):
        embed_corpus(bilm, source, tmp_path / "a.npz", SMALL_PARTS)


def test_two_processes_do_not_write_the_same(bilm: BiLM, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    source = write_lines(tmp_path / "in.txt", LINES)
    with Journal(tmp_path / "a.npz.partial"):
        with pytest.raises(ElmoError, match="E136"):
            embed_corpus(bilm, source, tmp_path / "a.npz")


def test_a_foreign_folder_is_not_taken_for_an_unfinished_run(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    (tmp_path / "a.npz.partial").mkdir()
    (tmp_path / "a.npz.partial" / "thesis.tex").write_text("\\end")
    with pytest.raises(ElmoError, match="E135.*thesis.tex"):
        embed_corpus(bilm, source, tmp_path / "a.npz", EmbedOptions(overwrite=True))
    assert (tmp_path / "a.npz.partial" / "thesis.tex").exists()


def test_bad_input_leaves_nothing_behind(bilm: BiLM, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes("für\n".encode("latin-1"))
    with pytest.raises(ElmoError, match="E064"):
        embed_corpus(bilm, tmp_path / "in.txt", tmp_path / "a.npz")
    with pytest.raises(ElmoError, match="E060"):
        embed_corpus(bilm, tmp_path / "none.txt", tmp_path / "a.npz")
    assert names(tmp_path) == ["in.txt"]


def test_options_that_make_no_sense(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    for name, options, code in (
        ("a.bin", {}, "E130"),
        ("a", {}, "E130"),
        ("a.npz", {"format": "csv"}, "E130"),
        ("a.npz", {"dtype": "float64"}, "E035"),
        ("a.npz", {"batch_size": 0}, "E094"),
        ("a.safetensors", {"compress": True}, "E094"),
    ):
        with pytest.raises(ElmoError, match=code):
            embed_corpus(bilm, source, tmp_path / name, EmbedOptions(**options))
    carrying = BiLM.from_files(bilm.to_files(), initial_state="carry")
    with pytest.raises(ElmoError, match="E094.*carry"):
        embed_corpus(carrying, source, tmp_path / "a.npz")
    for spec in ("0/2", "3/2", "1", "1/0", "a/b", "-1/2", "1/2/3", ""):
        with pytest.raises(ElmoError, match="E133"):
            parse_shard(spec)
    assert parse_shard("2/4") == Shard(2, 4) and parse_shard(None) == Shard(1, 1)


def test_a_format_may_be_named(bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", LINES)
    found = embed(bilm, source, tmp_path / "vectors", format="hdf5")
    assert found["x"].index == 9
