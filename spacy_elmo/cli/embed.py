"""``python -m spacy elmo embed``"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, List, Optional, Tuple

import typer
from wasabi import msg

from ._app import elmo_cli, reports_errors

if TYPE_CHECKING:
    from ..bilm import BiLM
    from ..embedding import Plan, Progress
    from ..embedding.selection import Selection


@elmo_cli.command("embed")
@reports_errors
def embed_cli(
    input: Annotated[
        Path, typer.Argument(metavar="INPUT", help="Sentences, raw text, JSONL or DocBin")
    ],
    output: Annotated[
        Path,
        typer.Argument(metavar="OUTPUT", help=".hdf5, .npz, .parquet, or a folder .safetensors"),
    ],
    all_layers: Annotated[
        bool, typer.Option("--all", help="Keep all layers: (L+1, tokens, width) a line")
    ] = False,
    top: Annotated[
        bool, typer.Option("--top", help="Keep the top layer: (tokens, width) a line")
    ] = False,
    average: Annotated[bool, typer.Option("--average", help="Keep the mean of all layers")] = False,
    mix: Annotated[
        Optional[str],
        typer.Option(
            "--mix",
            metavar="MIX",
            help="Keep a weighted sum: 0.2,0.5,0.3, or a task's own by PIPELINE[:COMPONENT]",
        ),
    ] = None,
    weights: Annotated[
        Optional[str],
        typer.Option(
            "--weights", "-w", help="biLM: built-in name or path [en_mini, or that of --mix]"
        ),
    ] = None,
    weights_file: Annotated[
        Optional[Path],
        typer.Option("--weights-file", help="hdf5 file, if --weights is an options.json"),
    ] = None,
    initial_state: Annotated[
        Optional[str],
        typer.Option("--initial-state", help="How sentences begin: zero or primed (model's own)"),
    ] = None,
    lang: Annotated[
        Optional[str], typer.Option("--lang", "-l", help="Language whose tokenizer cuts raw text")
    ] = None,
    model: Annotated[
        Optional[str], typer.Option("--model", "-m", help="spaCy pipeline that cuts raw text")
    ] = None,
    segmenter: Annotated[
        str,
        typer.Option(
            "--segmenter",
            help="Sentences of raw text and docs: punct, whole, or sents (as --model or the DocBin "
            "has them). A line of tokens is always one",
        ),
    ] = "punct",
    dtype: Annotated[str, typer.Option("--dtype", help="float32, or float16: half the size")] = (
        "float32"
    ),
    compress: Annotated[
        bool, typer.Option("--compress", help="Compress hdf5, npz or Parquet")
    ] = False,
    format: Annotated[
        Optional[str],
        typer.Option("--format", help="hdf5, npz, safetensors or parquet [by OUTPUT's ending]"),
    ] = None,
    forget_sentences: Annotated[
        bool, typer.Option("--forget-sentences", help="Do not store tokens and texts")
    ] = False,
    shard: Annotated[
        Optional[str],
        typer.Option("--shard", metavar="I/N", help="Embed the I-th of N shares, I from 1"),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", help="Lines at a time; does not change results")
    ] = 512,
    batch_tokens: Annotated[
        int, typer.Option("--batch-tokens", help="Tokens at a time; bounds memory, not results")
    ] = 4096,
    part_tokens: Annotated[
        int,
        typer.Option(
            "--part-tokens", help="Tokens after which what is done is safe [0: about 128 MiB]"
        ),
    ] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace OUTPUT, or an unfinished run of other kind")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count, forecast the size, and write nothing")
    ] = False,
    gpu_id: Annotated[int, typer.Option("--gpu-id", "-g", help="GPU to use, -1 for CPU")] = -1,
) -> None:
    """
    Write the vectors of a corpus.

    INPUT has a sentence a line with whitespace between the tokens (also as .gz or .xz). With --lang
    or --model the lines are raw text, which is tokenised and cut to sentences as the component
    does. A .jsonl has {"tokens": [...]} or {"text": ...} a line, a .spacy is a DocBin (loaded
    whole, while all others are streamed). Line i becomes item i: blank lines and duplicates stay,
    and the vectors of a sentence depend on nothing but the sentence. Rows of whitespace tokens are
    zero.

    OUTPUT as .hdf5 is what `allennlp elmo` wrote: a dataset for each line, named by its number from
    0, and sentence_to_index. spacy_elmo.read_embeddings(OUTPUT) reads every format.

    A run that was killed goes on where it was when the same command is given again. The output
    appears when it is whole. For several machines give each --shard 1/N to N/N with the same
    OUTPUT; read_embeddings(OUTPUT) puts the shards together.
    """
    import torch

    from ..embedding import EmbedOptions, embed_corpus
    from ..embedding.sharding import parse_shard
    from ..errors import ElmoError, Errors

    share = parse_shard(shard)
    selection, bilm = _what(all_layers, top, average, mix, weights, weights_file, initial_state)
    options = EmbedOptions(
        selection,
        dtype=dtype,
        lang=lang,
        model=model,
        segmenter=segmenter,
        shard=share,
        format=format,
        compress=compress,
        forget_sentences=forget_sentences,
        batch_size=batch_size,
        batch_tokens=batch_tokens,
        part_tokens=part_tokens,
        overwrite=overwrite,
    )
    if gpu_id >= 0:
        n_gpus = torch.cuda.device_count()
        if gpu_id >= n_gpus:
            raise ElmoError(Errors.E081.format(number=gpu_id, n_gpus=n_gpus))
        bilm = bilm.to(f"cuda:{gpu_id}")
    bar = _Bar()

    def announce(plan: "Plan") -> None:
        # Or its line would be written on.
        bar.close()
        _announce(plan, dtype)

    try:
        plan = embed_corpus(
            bilm,
            input,
            output,
            options,
            announce=announce,
            progress=bar,
            dry_run=dry_run,
        )
    finally:
        bar.close()
    if not dry_run:
        msg.good(f"Vectors of {plan.counts.n_tokens:,} tokens: {plan.output}")


def _what(
    all_layers: bool,
    top: bool,
    average: bool,
    mix: Optional[str],
    weights: Optional[str],
    weights_file: Optional[Path],
    initial_state: Optional[str],
) -> "Tuple[Selection, BiLM]":
    """What to keep of which model's layers."""
    from ..bilm import BiLM
    from ..embedding.learned import learned_mix
    from ..embedding.selection import Selection, explicit_mix
    from ..errors import ElmoError, Errors

    kinds: List[Tuple[str, Any]] = [("all", all_layers), ("top", top), ("average", average)]
    given = [kind for kind, is_given in [*kinds, ("mix", mix is not None)] if is_given]
    if len(given) != 1:
        found = ", ".join(f"--{kind}" for kind in given) or "none of them"
        raise ElmoError(Errors.E131.format(n=len(given), found=found))
    selection: Optional[Selection] = None
    bilm: Optional[BiLM] = None
    if mix is None:
        selection = Selection(given[0])
    else:
        selection = explicit_mix(mix)
        if selection is None:
            selection, bilm = learned_mix(mix)
    if weights is not None or bilm is None:
        bilm = BiLM.load(weights or "en_mini", weights_file, initial_state=initial_state)
    elif initial_state is not None:
        bilm = BiLM.from_files(bilm.to_files(), initial_state=initial_state)
    return selection, bilm


class _Bar:
    """Progress bar of the phase that a run is in; that of the embedding stays on the screen."""

    def __init__(self) -> None:
        self._phase = ""
        self._bar: Any = None

    def __call__(self, progress: "Progress") -> None:
        from tqdm import tqdm

        if progress.phase != self._phase:
            self.close()
            self._phase = progress.phase
            what, unit = _PHASES[progress.phase]
            self._bar = tqdm(
                desc=what,
                total=progress.total,
                initial=progress.done,
                unit=unit,
                unit_scale=True,
                leave=progress.phase == "embed",
            )
        self._bar.update(progress.done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


#: What the bar says in each phase.
_PHASES = {
    "count": ("Counting", " lines"),
    "embed": ("Embedding", " words"),
    "assemble": ("Assembling", " lines"),
}


def _announce(plan: "Plan", dtype: str) -> None:
    from ..embedding.forecast import show_bytes

    counts, sizes = plan.counts, plan.forecast
    of = "" if counts.n_items == counts.n_total else f" of {counts.n_total:,}"
    msg.info(f"{counts.n_items:,} lines{of}, {counts.n_tokens:,} tokens")
    text = f"Needs about {show_bytes(sizes.output)} ({plan.format}, {dtype}, uncompressed)"
    if sizes.while_running > sizes.output:
        text += f", {show_bytes(sizes.while_running)} while it is written"
    msg.info(text)
    if plan.items_done:
        msg.info(f"Goes on behind {plan.items_done:,} lines that were done before")
