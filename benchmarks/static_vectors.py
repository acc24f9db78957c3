"""Static word vectors from the text of the built-in model, for `tasks.py --vectors`.

    pip install gensim
    python benchmarks/static_vectors.py "corpus/train-*.txt.xz" runs/static

word2vec's skip-gram with negative sampling, by gensim; then `spacy init vectors`. What a pipeline
gets that has one vector for a word where ELMo has one for an occurrence.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Iterator, List

from spacy_elmo.training.readers import expand_inputs, read_documents


class Sentences:
    """Sentences of some files, as often as they are asked for."""

    def __init__(self, paths: List[Path]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[List[str]]:
        return (list(sentence.tokens) for sentence in read_documents(self.paths))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", nargs="+")
    parser.add_argument("output", type=Path, help="folder of a spaCy pipeline with the vectors")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--min-count", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    try:
        from gensim.models import Word2Vec
    except ImportError:
        sys.exit("gensim is not installed: pip install gensim")
    start = time.perf_counter()
    model = Word2Vec(
        Sentences(expand_inputs(args.text)),
        vector_size=args.width,
        sg=1,
        window=5,
        negative=5,
        min_count=args.min_count,
        epochs=args.epochs,
        workers=args.workers,
    )
    print(f"{len(model.wv):,} words, {time.perf_counter() - start:.0f} s")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "vectors.txt")
        model.wv.save_word2vec_format(path)
        command = [sys.executable, "-m", "spacy", "init", "vectors", "en", path, str(args.output)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
