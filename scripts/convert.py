"""Check the files of a data set and write them as DocBins: OUTPUT/TASK-SPLIT.spacy."""

import shutil
from pathlib import Path
from typing import Annotated

import typer
from checksums import load_checksums, verify
from datasets import SPLITS, files_of, find, read_bytes, read_sentences, to_doc
from spacy.tokens import DocBin
from spacy.vocab import Vocab
from wasabi import msg

from spacy_elmo.cli._app import reports_errors

PROJECT = Path(__file__).parents[1] / "project.yml"


@reports_errors
def main(
    data: Annotated[str, typer.Argument(help="Name of the data set")],
    source: Annotated[Path, typer.Argument(help="Folder with its files, plain or .xz")],
    output: Annotated[Path, typer.Argument(help="Folder to write; replaced if it exists")],
    project: Annotated[Path, typer.Option(help="File with the checksums")] = PROJECT,
) -> None:
    """Check the files of a data set and write them as spaCy's binary format."""
    checksums = load_checksums(project)
    work = output.with_name(f"{output.name}.tmp")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for task, names in files_of(data).items():
        for split, name in zip(SPLITS, names):
            path = find(name, source)
            content = read_bytes(path)
            checked = verify(name, path, content, checksums)
            vocab = Vocab()
            docs = [to_doc(vocab, sentence) for sentence in read_sentences(content, name)]
            DocBin(docs=docs).to_disk(work / f"{task}-{split}.spacy")
            counts = f"{len(docs):,} sentences, {sum(map(len, docs)):,} tokens"
            if task == "ner":
                counts += f", {sum(len(doc.ents) for doc in docs):,} entities"
            msg.text(f"{task} {split}: {counts}{'' if checked else ' (no checksum is known)'}")
    shutil.rmtree(output, ignore_errors=True)
    work.rename(output)
    msg.good(f"Data: {output}")


if __name__ == "__main__":
    typer.run(main)
