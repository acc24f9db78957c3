"""``python -m spacy elmo pretrain``"""

from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional, Tuple

import typer
from wasabi import msg

from ._app import elmo_cli, reports_errors

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}


@elmo_cli.command("pretrain", context_settings=CONTEXT)
@reports_errors
def pretrain_cli(
    ctx: typer.Context,
    paths: Annotated[
        List[str],
        typer.Argument(
            metavar="INPUT... OUTPUT",
            help="Text files or patterns, then the run's folder (the folder alone to resume)",
        ),
    ],
    config: Annotated[
        Optional[Path],
        typer.Option("--config", "-c", help="Settings, as in configs/pretrain.cfg"),
    ] = None,
    preset: Annotated[
        Optional[str],
        typer.Option("--preset", "-p", help="Shape: mini, small, medium or original"),
    ] = None,
    heldout: Annotated[
        Optional[List[str]],
        typer.Option("--heldout", help="Text to measure perplexity on (repeatable)"),
    ] = None,
    vocabulary: Annotated[
        Optional[Path], typer.Option("--vocabulary", help="Vocabulary file instead of counting")
    ] = None,
    init: Annotated[
        Optional[str], typer.Option("--init", help="Model of any format to start from")
    ] = None,
    init_weights: Annotated[
        Optional[Path], typer.Option("--init-weights", help="hdf5 file, if --init is options.json")
    ] = None,
    lang: Annotated[
        Optional[str], typer.Option("--lang", "-l", help="Language whose tokenizer cuts raw text")
    ] = None,
    model: Annotated[
        Optional[str], typer.Option("--model", "-m", help="spaCy pipeline that cuts raw text")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", "-r", help="Go on from OUTPUT's checkpoint")
    ] = False,
    allow_changed_corpus: Annotated[
        bool, typer.Option("--allow-changed-corpus", help="Resume though input files changed")
    ] = False,
    gpu_id: Annotated[int, typer.Option("--gpu-id", "-g", help="GPU to use, -1 for CPU")] = -1,
    threads: Annotated[
        int,
        typer.Option(
            "--threads", help="Cores of each process, 0 for an equal share of the machine's"
        ),
    ] = 0,
) -> None:
    """
    Train a biLM of your own from raw text.

    INPUT is text with a pre-tokenised sentence a line (a blank line begins a new document), the
    same as .gz or .xz, raw text as spaCy's JSONL (then --lang or --model says how to tokenise
    it), or DocBins (.spacy). OUTPUT gets model-best and model-last, which `add_pipe("elmo")`
    and all other commands take, with checkpoints, a log and a curve of the perplexity. Under
    torchrun it must be a folder that all machines see.

    Every setting of the config can be given as an option, for example --training.epochs 3.
    """
    from ..training.distributed import join, leave
    from ..training.pretrain import pretrain

    group = join(gpu_id)
    (*inputs, output), overrides = _split_overrides([*paths, *ctx.args])
    settings = None
    if not resume or config is not None or preset is not None or overrides:
        settings = _settings(config, preset, overrides)
    bar = _Bar() if group.is_first else None
    try:
        result = pretrain(
            inputs,
            output,
            settings,
            heldout=heldout or (),
            vocabulary=vocabulary,
            init=init,
            init_weights=init_weights,
            lang=lang,
            model=model,
            resume=resume,
            allow_changed_corpus=allow_changed_corpus,
            group=group,
            threads=threads,
            announce=print,
            report=bar,
        )
    finally:
        if bar is not None:
            bar.close()
        leave()
    if not group.is_first:
        return
    if result is not None:
        _report(result.to_dict())
    _draw(Path(output))
    msg.good(f"Trained model: {Path(output) / 'model-last'}")


def _split_overrides(arguments: List[str]) -> Tuple[List[str], List[str]]:
    """Paths, and options of the form ``--section.key value`` or ``--section.key=value``.

    The list of paths takes unknown options in as well, so they are told apart here.
    """
    from ..errors import ElmoError, Errors

    paths: List[str] = []
    overrides: List[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--"):
            paths.append(argument)
        elif "." not in argument:
            problem = f"unknown option {argument} (settings are given as --section.key value)"
            raise ElmoError(Errors.E051.format(problems=problem))
        else:
            overrides.append(argument)
            if "=" not in argument and rest and not rest[0].startswith("--"):
                overrides.append(rest.pop(0))
    if not paths:
        raise ElmoError(Errors.E051.format(problems="the output folder is missing"))
    return paths, overrides


def _settings(config: Optional[Path], preset: Optional[str], overrides: List[str]) -> Any:
    from confection import Config
    from spacy.cli._util import parse_config_overrides

    from ..errors import ElmoError, Errors
    from ..training.config import PretrainConfig

    # Overrides in the environment are meant for the configurations of `spacy train`.
    changes = parse_config_overrides(overrides, env_var=None)
    values: Dict[str, Any] = {}
    if config is not None:
        if not config.is_file():
            raise ElmoError(Errors.E051.format(problems=f"the file {config} does not exist"))
        try:
            values = dict(Config().from_disk(config))
        except ValueError as err:
            raise ElmoError(Errors.E051.format(problems=f"{config}: {err}")) from err
    for name, value in changes.items():
        *sections, key = name.split(".")
        place = values
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ElmoError(Errors.E051.format(problems=f"{name} is no setting"))
        place[key] = value
    if preset is not None:
        values.setdefault("model", {})["preset"] = preset
    return PretrainConfig.from_dict(values)


class _Bar:
    """Progress bar over the whole run: share done, tokens/s, time left, perplexities."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __call__(self, progress: Any) -> None:
        from tqdm import tqdm

        share = 100 * progress.progress
        held = f", held-out ppl {progress.perplexity.average:.1f}" if progress.perplexity else ""
        text = (
            f"step {progress.step:,}, {progress.tokens_per_second:,.0f} tokens/s, "
            f"sampled ppl {progress.sampled_perplexity:.1f}{held}"
        )
        if self._bar is None:
            # The rate, and so the time left, counts from here and not from a resumed start.
            self._bar = tqdm(
                total=100.0, initial=share, unit="%", bar_format=_BAR_FORMAT, postfix=text
            )
            return
        self._bar.set_postfix_str(text, refresh=False)
        # Set rather than added up, which would end a little beside 100.
        self._bar.n = share
        self._bar.update(0)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


_BAR_FORMAT = "{l_bar}{bar}| {elapsed} elapsed, {remaining} left{postfix}"


def _report(values: Dict[str, float]) -> None:
    msg.divider("Held-out text, full softmax")
    msg.table(
        [
            ("Perplexity, forward", f"{values['forward']:.2f}"),
            ("Perplexity, backward", f"{values['backward']:.2f}"),
            ("Perplexity, average", f"{values['average']:.2f}"),
            ("Tokens", f"{int(values['n_tokens']):,}"),
            ("Out of vocabulary", f"{100 * values['oov_rate']:.2f} %"),
            ("Vocabulary", f"{int(values['n_words']):,}"),
        ]
    )


def _draw(output: Path) -> None:
    from ..training.curve import draw_curve

    if not (output / "log.jsonl").exists():
        return
    try:
        draw_curve(output / "log.jsonl", output / "perplexity.png")
    except ImportError:
        msg.info("No perplexity curve drawn: it needs matplotlib (pip install spacy-elmo[viz])")
