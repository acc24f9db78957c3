"""Embed a corpus of many files on Ray Data: one biLM in each worker, one thread each.

    pip install "spacy-elmo[ray]"
    python examples/embed_with_ray.py "corpus/*.txt.gz" vectors.parquet --workers 7

The files have a pre-tokenised sentence a line. Row i of the result is line i of the files one
after another (sorted by name), blank lines included, and `spacy_elmo.read_embeddings` reads it:
the result is a folder of Parquet files with an index. On a cluster, call `ray.init` with its
address, and name files and folder on storage that all machines share.

Ray does what `spacy elmo embed` does by itself on one machine: it splits the work, and does again
what was lost with a worker. What is embedded and how it is stored is the same code.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from spacy_elmo.embedding import read_embeddings
from spacy_elmo.embedding.items import count_items, read_items
from spacy_elmo.embedding.parquet import to_table
from spacy_elmo.embedding.selection import Selection
from spacy_elmo.embedding.stored import FORMAT_NAME, FORMAT_VERSION, Stored
from spacy_elmo.training.readers import expand_inputs


def count(row: Dict[str, Any]) -> Dict[str, Any]:
    """Lines of a file: what the numbers of the next file's lines begin with."""
    return {**row, "n_items": count_items(row["path"])}


def read(row: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    """Lines of a file, one after another, so that no file has to fit in memory."""
    for item in read_items(row["path"]):
        yield {"index": row["start"] + item.index, "text": item.text}


class Embedder:
    """A worker's biLM. Ray makes one for each worker and gives it batch after batch.

    :param weights: Built-in name, or a path that the worker can read.
    :param manifest: Facts about the output.
    """

    def __init__(self, weights: str, manifest: Dict[str, Any]) -> None:
        import torch

        from spacy_elmo.bilm import BiLM

        # There are as many workers as cores; threads of their own would only be in the way.
        torch.set_num_threads(1)
        self.bilm = BiLM.load(weights)
        self.manifest = manifest
        self.selection = Selection(manifest["selection"]["kind"])

    def __call__(self, batch: Any) -> Any:
        """Arrow table in, Arrow table out."""
        rows = batch.to_pylist()
        sentences = [row["text"].split() for row in rows]
        items: List[Stored] = []
        for row, tokens, layers in zip(rows, sentences, self.bilm.embed(sentences)):
            vectors = self.selection.apply(layers).astype(self.manifest["dtype"])
            items.append(Stored(row["index"], vectors, tokens, row["text"]))
        return to_table(self.manifest, items)


def embed(
    inputs: List[str],
    output: Path,
    weights: str = "en_mini",
    kind: str = "average",
    dtype: str = "float32",
    workers: int = 1,
    batch_size: int = 256,
    cores: Optional[int] = None,
) -> int:
    """Embed files on the Ray cluster that is running, or on one of this machine.

    :param inputs: Files or patterns.
    :param output: Folder to make. It appears when all is done.
    :param kind: "all", "top" or "average".
    :param workers: Worker processes; each takes a core, and one core more reads and writes.
    :param batch_size: Sentences that a worker is given at a time.
    :param cores: Cores that a Ray started here takes; all if not given.
    :returns: The number of lines.
    """
    import ray

    from spacy_elmo.bilm import BiLM

    if output.exists():
        raise SystemExit(f"{output} exists already")
    if not ray.is_initialized():
        ray.init(num_cpus=cores, include_dashboard=False)
    n_cores = int(ray.cluster_resources().get("CPU", 0))
    if workers >= n_cores:
        # With all cores taken by workers, Ray would wait forever for one to read the files on.
        raise SystemExit(f"{workers} workers need {workers + 1} cores, and Ray has {n_cores}")
    files = [{"path": str(path.resolve())} for path in expand_inputs(inputs)]
    counted = ray.data.from_items(files).map(count).take_all()
    start = 0
    for row in sorted(counted, key=lambda row: str(row["path"])):
        row["start"] = start
        start += row["n_items"]

    bilm = BiLM.load(weights)
    manifest: Dict[str, Any] = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "container": "parquet",
        "selection": {"kind": kind},
        "dtype": dtype,
        "n_layers": bilm.n_layers,
        "width": bilm.width,
        "sentences": True,
        "shard": [1, 1],
        "n_items": start,
        "n_total": start,
        "files": [{"path": row["path"], "start": row["start"]} for row in counted],
    }
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    (
        # A file is read by one task; its lines then go out in blocks, so that all workers get
        # something to do even if there is but one file. A block becomes a file of the output.
        ray.data.from_items(counted)
        .flat_map(read)
        .repartition(target_num_rows_per_block=8 * batch_size)
        .map_batches(
            Embedder,
            fn_constructor_kwargs={"weights": weights, "manifest": manifest},
            batch_format="pyarrow",
            batch_size=batch_size,
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=1,
        )
        .write_parquet(str(partial))
    )
    (partial / "index.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="ascii")
    partial.rename(output)
    return start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("inputs", nargs="+", help="files or patterns, a sentence a line")
    parser.add_argument("output", type=Path, help="folder to make")
    parser.add_argument("--weights", default="en_mini", help="built-in name or path")
    parser.add_argument("--kind", default="average", choices=["all", "top", "average"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16"])
    parser.add_argument("--workers", type=int, default=1, help="a core each, and one to read")
    parser.add_argument("--batch-size", type=int, default=256, help="sentences at a time")
    parser.add_argument("--cores", type=int, help="cores for a Ray that is started here")
    arguments = parser.parse_args()
    n_items = embed(**vars(arguments))
    with read_embeddings(arguments.output) as found:
        tokens, vectors = found[0].tokens, found[0].vectors
        print(f"{n_items:,} lines: {arguments.output}. The first: {tokens}, {vectors.shape}")


if __name__ == "__main__":
    main()
