"""Item i is line i, whatever is in the lines and however the work is cut."""

from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_elmo import read_embeddings
from spacy_elmo.bilm import BiLM
from spacy_elmo.embedding import EmbedOptions, embed_corpus
from spacy_elmo.embedding.selection import Selection

from .corpus import LINES, OUTPUTS, contents, direct, embed, lines, write_lines


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("kind", ["all", "average"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_format(name: str, kind: str, dtype: str, bilm: BiLM, tmp_path: Path) -> None:
    content = lines(40)
    source = write_lines(tmp_path / "in.txt", content)
    compress = "safetensors" not in name and dtype == "float16"
    found = embed(
        bilm, source, tmp_path / name, kind, dtype=dtype, compress=compress, part_tokens=60
    )
    assert len(found) == len(content)
    for number, (line, expected, item) in enumerate(zip(content, direct(bilm, content), found)):
        assert item.index == number and item.tokens == line.split()
        assert item.vectors.dtype == dtype
        expected = expected if kind == "all" else expected.mean(axis=0)
        assert item.vectors.shape == expected.shape
        np.testing.assert_allclose(
            item.vectors, expected, atol=1e-5 if dtype == "float32" else 2e-3
        )
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(
    "other",
    [{"batch_size": 1}, {"batch_size": 7, "batch_tokens": 20}, {"part_tokens": 1}],
    ids=str,
)
def test_results_do_not_depend_on_how_the_work_is_cut(
    other: Dict[str, Any], bilm: BiLM, tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "in.txt", lines(60))
    one = embed(bilm, source, tmp_path / "a.npz")
    two = embed(bilm, source, tmp_path / "b.npz", **other)
    for a, b in zip(one, two):
        np.testing.assert_allclose(a.vectors, b.vectors, atol=1e-5)


def test_duplicates_are_equal_to_the_bit(bilm: BiLM, tmp_path: Path) -> None:
    found = embed(bilm, write_lines(tmp_path / "in.txt", LINES), tmp_path / "a.npz", batch_size=2)
    np.testing.assert_array_equal(found[1].vectors, found[5].vectors)
    np.testing.assert_array_equal(found[1].vectors, found[2].vectors)


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_same_input_gives_the_same_bytes(name: str, bilm: BiLM, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", lines(30))
    suffix = Path(name).suffix
    for other in ("a", "b"):
        embed(bilm, source, tmp_path / f"{other}{suffix}", part_tokens=50).close()
    assert contents(tmp_path / f"a{suffix}") == contents(tmp_path / f"b{suffix}")


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("content", [[], [""], ["", "", ""]], ids=str)
def test_nothing_but_blank_lines(name: str, content: List[str], bilm: BiLM, tmp_path: Path) -> None:
    found = embed(bilm, write_lines(tmp_path / "in.txt", content), tmp_path / name)
    assert [item.vectors.shape for item in found] == [(3, 0, 16)] * len(content)


def test_a_last_line_without_an_end_is_a_line(bilm: BiLM, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"\xef\xbb\xbfa b\r\n\r\nc")
    found = embed(bilm, tmp_path / "in.txt", tmp_path / "a.npz")
    assert [item.tokens for item in found] == [["a", "b"], [], ["c"]]


TOKEN = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=6)
SHARDED = st.lists(st.lists(st.sampled_from("ab") | TOKEN, max_size=4), max_size=12)


@settings(max_examples=15, deadline=None)
@given(SHARDED, st.integers(1, 4), st.sampled_from(OUTPUTS))
def test_shards_partition_the_input(text: List[List[str]], n: int, name: str) -> None:
    import tempfile

    from spacy_elmo.embedding.sharding import Shard

    from .corpus import model

    bilm = _MODEL.setdefault("it", model())
    with tempfile.TemporaryDirectory() as folder:
        source = write_lines(Path(folder, "in.txt"), [" ".join(tokens) for tokens in text])
        output = Path(folder, name)
        seen: List[int] = []
        for number in range(1, n + 1):
            options = EmbedOptions(Selection("top"), shard=Shard(number, n), part_tokens=3)
            plan = embed_corpus(bilm, source, output, options)
            with read_embeddings(plan.output) as shard:
                assert plan.counts.n_items == len(shard) and plan.counts.n_total == len(text)
                seen += [item.index for item in shard]
        assert sorted(seen) == list(range(len(text)))
        with read_embeddings(output) as found:
            expected = [" ".join(tokens).split() for tokens in text]
            assert [item.tokens for item in found] == expected
            assert [item.index for item in found] == list(range(len(text)))
            for item, tokens in zip(found, expected):
                alone = bilm.embed([tokens])[0][-1]
                np.testing.assert_allclose(item.vectors, alone, atol=1e-5)


_MODEL: Dict[str, BiLM] = {}
