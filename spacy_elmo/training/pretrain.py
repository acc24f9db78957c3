"""Put a run together: prepare the text, count the vocabulary, build the model, train."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np
import torch

from ..bilm.allocator import keep_freed_memory
from ..bilm.encoder import BiLM
from ..bilm.io import builtin_models, read_model
from ..bilm.io.atomic import remove_leftovers, replace_file
from ..bilm.io.origin import facts_begun_from
from ..bilm.lm import Softmax, init_bilm, init_softmax
from ..bilm.scoring import Perplexity
from ..errors import ElmoError, ElmoWarning, Errors, Warnings
from .checkpoint import CHECKPOINT_NAME, checkpoint_path, load_checkpoint
from .config import PretrainConfig
from .corpus import PreparedCorpus, input_fingerprints, open_prepared, prepare
from .distributed import Group
from .forecast import Forecast
from .loop import BEST_NAME, LAST_NAME, LOG_NAME, Progress, Trainer
from .readers import expand_inputs
from .run_folder import locked, meet
from .step import seeded
from .vocabulary import Vocabulary, coverage

#: Purposes of random numbers at the start of a run.
_INIT_ENCODER, _INIT_SOFTMAX = 11, 12
DATA_NAME, RUN_NAME, VOCABULARY_NAME = "data", "run.json", "vocabulary.txt"
#: What a run replaces in its folder; people may have other commands write there meanwhile.
OWN_NAMES = (CHECKPOINT_NAME, RUN_NAME, VOCABULARY_NAME, BEST_NAME, LAST_NAME)
PathLike = Union[str, Path]


def pretrain(
    inputs: Sequence[PathLike],
    output: PathLike,
    config: Optional[PretrainConfig] = None,
    *,
    heldout: Sequence[PathLike] = (),
    vocabulary: Optional[PathLike] = None,
    init: Optional[PathLike] = None,
    init_weights: Optional[PathLike] = None,
    lang: Optional[str] = None,
    model: Optional[str] = None,
    resume: bool = False,
    allow_changed_corpus: bool = False,
    group: Group = Group(),
    threads: int = 0,
    announce: Optional[Callable[[str], None]] = None,
    report: Optional[Callable[[Progress], None]] = None,
) -> Optional[Perplexity]:
    """Train a biLM from raw text, or go on with a run.

    The output folder holds ``model-best`` and ``model-last`` (native format, with softmax),
    ``checkpoint.safetensors``, ``log.jsonl``, ``vocabulary.txt``, ``run.json`` and the prepared
    text in ``data``. All processes must see it; no other run can use it meanwhile.

    :param inputs: Text files or patterns; may be empty on `resume`.
    :param output: Folder of the run.
    :param config: Shape and settings; those of the run on `resume`.
    :param heldout: Text to measure perplexity on; without it 1 % of the sentences, at most
        10,000, are held out of the input.
    :param vocabulary: Vocabulary file to use instead of counting one.
    :param init: A model of any format to start from; its shape replaces the configured one.
    :param init_weights: hdf5 file, where `init` is an options.json.
    :param lang: Language whose tokenizer cuts raw text.
    :param model: spaCy pipeline that cuts raw text.
    :param resume: Go on from the checkpoint in `output`.
    :param allow_changed_corpus: Resume though the input files changed (with the prepared text).
    :param group: This process among all.
    :param threads: Cores that this process uses, 0 for all or, of several processes on a machine,
        an equal share.
    :param announce: Called with messages for people.
    :param report: Called after every step.
    :returns: Held-out perplexity at the end.
    :raises ElmoError: for bad input and settings, found before the first step, E054 if training
        diverges, E175 if another run is in the folder, E176 if a process does not see it.
    """
    out = Path(output)
    say = announce if announce is not None and group.is_first else (lambda _: None)
    if resume and group.is_first:
        checkpoint_path(out)  # before a folder that is no run's gets a lock
    with locked(out, group) as lock:
        if resume:
            meet(out, lock, group)
            settings, run = _resumed(out, inputs, config, allow_changed_corpus)
            init, init_weights = run["init"], run["init_weights"]
        else:
            settings = config or PretrainConfig()
            if group.is_first:
                _start(
                    out, inputs, settings, heldout, vocabulary, lang, model, init, init_weights, say
                )
            meet(out, lock, group)
        corpus = open_prepared(out / DATA_NAME / "train")
        held = open_prepared(out / DATA_NAME / "heldout")
        words = Vocabulary.load(out / VOCABULARY_NAME)
        if resume and settings.model.char_cnn.unit == "byte":
            # The checkpoint has all that is needed; the model that was begun with may be gone.
            init = init_weights = None
        bilm, settings = build_model(settings, words, init, init_weights, fresh=not resume)
        bilm.to(group.device)
        keep_freed_memory()
        limit = settings.model.char_cnn.max_characters
        report_ = coverage(corpus.counts(), words, limit, n_tokens=corpus.n_tokens)
        say(Forecast(corpus, report_, settings, bilm).text())
        trainer = Trainer(
            bilm,
            words,
            corpus,
            held.sentences(np.arange(held.n_sentences)),
            settings,
            out,
            fingerprint=corpus.fingerprint,
            group=group,
            threads=threads,
            report=report if group.is_first else None,
        )
        try:
            if group.is_first:
                remove_leftovers(out, OWN_NAMES)
            if resume:
                trainer.resume()
                say(f"Resumed at step {trainer.step:,}")
            return trainer.run()
        finally:
            trainer.close()


def build_model(
    config: PretrainConfig,
    vocabulary: Vocabulary,
    init: Optional[PathLike] = None,
    init_weights: Optional[PathLike] = None,
    fresh: bool = True,
) -> Tuple[BiLM, PretrainConfig]:
    """Make the model that is to be trained, and the configuration with its real shape.

    :param config: Shape (unless `init` is given) and seed.
    :param vocabulary: Words of the softmax.
    :param init: Model to start from. Its softmax is taken over where its vocabulary is the
        same; rows of words that both have are taken over where it is not. What its `meta` says
        of it goes under ``begun_from``.
    :param fresh: False where a checkpoint will overwrite the weights anyway.
    :raises ElmoError: E051 for a shape that only an existing model can have.
    """
    entries = list(zip(vocabulary.words, (int(c) for c in vocabulary.counts)))
    counts = torch.from_numpy(vocabulary.counts)
    seed = config.training.seed
    # A model remembers how its sentences began in training: streams carry states on, and the
    # fixed primed state is what comes near to that at inference.
    state = "zero" if config.training.unit == "sentence" else "primed"
    if init is None:
        cnn = config.model.char_cnn
        if cnn.unit != "byte" or cnn.word_dim:
            problem = "model.char_cnn asks for dictionaries, which only a model given as init has"
            raise ElmoError(Errors.E051.format(problems=problem))
        shape = replace(config.model, initial_state=state)
        config = PretrainConfig(shape, config.training)
        model = BiLM(shape, vocabulary=entries)
        if fresh:
            init_bilm(model, shape, seeded(seed, 0, _INIT_ENCODER))
            assert model.softmax is not None
            init_softmax(model.softmax, counts, seeded(seed, 0, _INIT_SOFTMAX))
        return model, config
    files = read_model(init, init_weights, softmax=True)
    old = files.tensors.pop("softmax.weight", None)
    old_bias = files.tensors.pop("softmax.bias", None)
    old_words, files.vocabulary = files.vocabulary, None
    model = BiLM.from_files(files)
    # The files are mapped into memory; training must not write into them.
    for p in model.parameters():
        p.data = p.data.float().clone()
    softmax = Softmax(len(entries), model.config.lstm.projection_dim)
    init_softmax(softmax, counts, seeded(seed, 0, _INIT_SOFTMAX))
    if old is not None and old_bias is not None and old_words is not None:
        number = {word: k for k, (word, _) in enumerate(old_words)}
        pairs = [(k, number[w]) for k, (w, _) in enumerate(entries) if w in number]
        rows = torch.tensor(pairs, dtype=torch.int64, device=old.device).view(-1, 2)
        new_rows, old_rows = rows.unbind(1)
        with torch.no_grad():
            softmax.weight[new_rows] = old[old_rows].float()
            softmax.bias[new_rows] = old_bias[old_rows].float()
    model.softmax, model.vocabulary = softmax, entries
    meta = facts_begun_from(model.config.meta, Path(init).resolve().name)
    trained = replace(model.config, initial_state=state, meta=meta)
    model.config = trained
    return model, PretrainConfig(trained, config.training)


def _start(
    out: Path,
    inputs: Sequence[PathLike],
    config: PretrainConfig,
    heldout: Sequence[PathLike],
    vocabulary: Optional[PathLike],
    lang: Optional[str],
    model: Optional[str],
    init: Optional[PathLike],
    init_weights: Optional[PathLike],
    say: Callable[[str], None],
) -> None:
    if (out / CHECKPOINT_NAME).exists():
        raise ElmoError(Errors.E055.format(path=out))
    # Before the text, which may take long.
    given = None if vocabulary is None else Vocabulary.load(vocabulary)
    if init is not None:
        read_model(init, init_weights)
    say("Reading and checking the text")
    limit = config.training.max_sentence_length
    data = out / DATA_NAME
    options: Dict[str, Any] = {"lang": lang, "model": model, "max_sentence_length": limit}
    if heldout:
        prepare(heldout, data / "heldout", **options)
        corpus = prepare(inputs, data / "train", **options)
    else:
        corpus = _split(inputs, data, options)
    t = config.training
    if given is not None:
        words = given
        if not words.has_counts:
            words = words.with_counts(
                corpus.counts(), n_sentences=corpus.n_sentences, n_tokens=corpus.n_tokens
            )
    else:
        words = Vocabulary.from_counts(
            corpus.counts(),
            t.vocabulary_size,
            t.min_count,
            n_sentences=corpus.n_sentences,
            n_tokens=corpus.n_tokens,
        )
    words.save(out / VOCABULARY_NAME)
    run = {
        "config": config.to_dict(),
        "inputs": [str(p) for p in inputs],
        "input_fingerprints": input_fingerprints(expand_inputs(inputs)),
        "init": _absolute(init),
        "init_weights": _absolute(init_weights),
        "fingerprint": corpus.fingerprint,
    }
    with replace_file(out / RUN_NAME) as temporary:
        temporary.write_text(json.dumps(run, indent=2), encoding="utf-8")
    (out / LOG_NAME).unlink(missing_ok=True)


def _absolute(path: Optional[PathLike]) -> Optional[str]:
    """A path that holds wherever the run is resumed; names of built-in models stay."""
    if path is None or not Path(path).exists() or path in builtin_models():
        return None if path is None else str(path)
    return str(Path(path).resolve())


#: Every so many sentences one is held out where no held-out text is given, and at most so many.
_HELD_OUT_EVERY, _HELD_OUT_MOST = 100, 10_000


def _split(inputs: Sequence[PathLike], data: Path, options: Dict[str, Any]) -> PreparedCorpus:
    """Hold every 100th sentence out of the input, the first 10,000 of these.

    :raises ElmoError: E082 if the input has fewer than 100 sentences.
    """
    last = 0

    def in_training(number: int) -> bool:
        nonlocal last
        last = number
        return not held(number)

    def held(number: int) -> bool:
        return number % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1 and (
            number < _HELD_OUT_EVERY * _HELD_OUT_MOST
        )

    corpus = prepare(inputs, data / "train", keep=in_training, **options)
    if last + 1 < _HELD_OUT_EVERY:
        raise ElmoError(Errors.E082.format(n=last + 1, every=_HELD_OUT_EVERY))
    prepare(inputs, data / "heldout", keep=held, **options)
    return corpus


def _resumed(
    out: Path,
    inputs: Sequence[PathLike],
    config: Optional[PretrainConfig],
    allow_changed_corpus: bool,
) -> Tuple[PretrainConfig, Dict[str, Any]]:
    """The settings of the run that goes on, after a check that its text is the same."""
    facts = load_checkpoint(out).facts
    try:
        run: Dict[str, Any] = json.loads((out / RUN_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise ElmoError(Errors.E053.format(path=out / RUN_NAME, problem=err)) from err
    settings = PretrainConfig.from_dict(facts["config"])
    # Compared with what was asked for: the shape may since have become that of `init`.
    asked = PretrainConfig.from_dict(run.get("config", facts["config"]))
    if config is not None and config.to_dict() != asked.to_dict():
        raise ElmoError(Errors.E056.format(differences=_differences(config, asked)))
    corpus = open_prepared(out / DATA_NAME / "train")
    problems: List[str] = []
    if corpus.fingerprint != facts["fingerprint"]:
        problems.append("the prepared text in the output folder is another one")
    files = [str(p) for p in (inputs or run["inputs"])]
    found: Optional[List[Dict[str, Any]]] = None
    try:
        found = input_fingerprints(expand_inputs(files))
    except ElmoError:
        # The prepared text is all that is needed; the inputs may be gone.
        found = [] if inputs else None
    if found is not None and found != run["input_fingerprints"]:
        problems.append("the input files are not those that the run began with")
    if problems and (not allow_changed_corpus or corpus.fingerprint != facts["fingerprint"]):
        raise ElmoError(Errors.E057.format(problems="; ".join(problems)))
    for problem in problems:
        warnings.warn(ElmoWarning(Warnings.W050.format(problem=problem)), stacklevel=3)
    return settings, run


def _differences(new: PretrainConfig, old: PretrainConfig) -> str:
    a, b = (_flat("", c.to_dict()) for c in (new, old))
    return "; ".join(
        f"{k} is {a.get(k)!r}, the run has {b.get(k)!r}"
        for k in sorted({*a, *b})
        if a.get(k) != b.get(k)
    )


def _flat(prefix: str, data: Dict[str, Any]) -> Dict[str, Any]:
    flat: Dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            flat.update(_flat(f"{prefix}{key}.", value))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
