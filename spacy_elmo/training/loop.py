"""The training loop: batches in, better weights out; logs, evaluations, checkpoints."""

import json
import math
import os
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ..bilm.encoder import BiLM
from ..bilm.io import write_model
from ..bilm.lm import NegativeSampler
from ..bilm.lstm import LSTMState
from ..bilm.scoring import Perplexity, perplexity
from ..errors import ElmoError, Errors
from .batches import Batch, Corpus, Position, ahead, sentence_batches
from .checkpoint import CHECKPOINT_NAME, load_checkpoint, save_checkpoint
from .config import PretrainConfig
from .distributed import Group, available_cores
from .optimizer import Optimizer
from .snapshot import restore, snapshot
from .step import RowGradient, StepResult, TrainingStep, Workers, nats_to_perplexity
from .streams import stream_batches
from .vocabulary import Vocabulary

LOG_NAME, BEST_NAME, LAST_NAME = "log.jsonl", "model-best", "model-last"
#: A step whose loss or gradient is so many times the recent mean is not taken.
EXPLODING_LOSS, EXPLODING_NORM = 2.0, 100.0
#: Steps before the recent mean is trusted, and its decay.
TRUST_AFTER, RECENT_DECAY = 20, 0.98
MAX_SKIPPED_IN_A_ROW = 50


class Progress(NamedTuple):
    """What is told to the caller after every step.

    :param step: Steps done.
    :param progress: Share of the run that is done, 0 to 1.
    :param tokens: Tokens seen.
    :param tokens_per_second: Speed since the run (or its resumption) began.
    :param sampled_perplexity: Smoothed, against the sample only; lower than the true one.
    :param perplexity: The last held-out perplexity, full softmax.
    """

    step: int
    progress: float
    tokens: int
    tokens_per_second: float
    sampled_perplexity: float
    perplexity: Optional[Perplexity]


class Trainer:
    """Trains one model on one corpus.

    :param model: A biLM with a softmax of the vocabulary's size.
    :param vocabulary: Words of the softmax, with counts.
    :param corpus: Training text.
    :param heldout: Sentences to measure perplexity on.
    :param config: Settings.
    :param directory: Where checkpoints, logs and models go.
    :param fingerprint: Identifies the training text; a resumed run must have the same.
    :param group: This process among all.
    :param threads: Cores that this process uses, 0 for its share of all.
    :param report: Called after every step.
    """

    def __init__(
        self,
        model: BiLM,
        vocabulary: Vocabulary,
        corpus: Corpus,
        heldout: Sequence[Sequence[str]],
        config: PretrainConfig,
        directory: Path,
        *,
        fingerprint: str = "",
        group: Group = Group(),
        threads: int = 0,
        report: Optional[Callable[[Progress], None]] = None,
    ) -> None:
        self.model, self.vocabulary, self.corpus = model, vocabulary, corpus
        self.heldout, self.config, self.directory = heldout, config, directory
        self.fingerprint, self.group, self.report = fingerprint, group, report
        settings = config.training
        threads = threads or available_cores()
        on_cpu = group.device.type == "cpu"
        self.workers = Workers(threads if on_cpu else 1)
        counts = torch.from_numpy(vocabulary.counts)
        self.step_function = TrainingStep(
            model,
            NegativeSampler(
                counts, settings.n_negatives or len(vocabulary), settings.sampling_power
            ),
            self.workers,
            dropout=settings.dropout,
            seed=settings.seed,
            matmul_dtype=torch.bfloat16 if settings.bf16 else None,
        )
        self.optimizer = Optimizer(model, settings, self.workers)
        self.total = int(corpus.lengths.sum(dtype="int64") + len(corpus.lengths)) * settings.epochs
        self.position: Any = Position() if settings.unit == "sentence" else None
        self.states: Optional[List[List[LSTMState]]] = None
        self.step = self.tokens = self.predictions = self.skipped = self.skipped_in_a_row = 0
        self.recent_loss = self.recent_norm = 0.0
        self.accepted = self.log_bytes = self.stale = 0
        self.best = math.inf
        self.seconds = 0.0
        self.last: Optional[Perplexity] = None
        #: Losses since the last line of the log, of the steps that were taken.
        self.window: List[float] = []
        self.finished = False

    # -- running -------------------------------------------------------------------------

    def run(self) -> Optional[Perplexity]:
        """Train to the end; gives the last held-out perplexity of the whole held-out text."""
        settings = self.config.training
        if self.finished:
            return self.last
        started, started_tokens, before = time.monotonic(), self.tokens, self.seconds
        for batches, position in ahead(self._updates()):
            if self._out_of_patience():  # resumed from a checkpoint of the last step
                break
            if settings.max_steps and self.step >= settings.max_steps:
                break
            if settings.max_minutes and self.seconds >= 60 * settings.max_minutes:
                break
            self._take(batches)
            self.position = position
            self.step += 1
            self.tokens += sum(batch.n_tokens for batch in batches)
            self.predictions += sum(batch.n_targets for batch in batches)
            self.seconds = before + time.monotonic() - started
            if settings.max_minutes:  # all processes go by the first one's clock
                clock = self.seconds if self.group.is_first else 0.0
                self.seconds = self.group.sum_values([clock])[0]
            speed = (self.tokens - started_tokens) / max(1e-9, time.monotonic() - started)
            if self.step % settings.log_every == 0:
                self._log_training(speed)
            stop = False
            if self.step % settings.eval_every == 0:
                stop = self._evaluate(settings.eval_tokens)
            if self.step % settings.checkpoint_every == 0:
                self.save()
            if self.report is not None:
                self.report(
                    Progress(
                        self.step,
                        self._progress(),
                        self.tokens,
                        speed,
                        nats_to_perplexity(self.recent_loss),
                        self.last,
                    )
                )
            if stop:
                break
        if self.step % settings.eval_every:
            self._evaluate(settings.eval_tokens)
        self._evaluate(0)
        self.finished = True
        self.save()
        return self.last

    def close(self) -> None:
        """End the threads."""
        self.workers.close()

    def _progress(self) -> float:
        done = self.predictions / max(1, self.total)
        if self.config.training.max_steps:
            done = max(done, self.step / self.config.training.max_steps)
        if self.config.training.max_minutes:
            done = max(done, self.seconds / (60 * self.config.training.max_minutes))
        return min(1.0, done)

    def _updates(self) -> Iterator[Tuple[List[Batch], Any]]:
        """The batches of each step, the last of which may have fewer, and the position behind."""
        batches = self._batches()
        while taken := list(islice(batches, self.config.training.accumulate)):
            yield [batch for batch, _ in taken], taken[-1][1]

    def _batches(self) -> Iterator[Tuple[Batch, Any]]:
        s = self.config.training
        common: Dict[str, Any] = {
            "seed": s.seed,
            "batch_tokens": s.batch_tokens,
            "epochs": s.epochs,
            "position": self.position,
            "rank": self.group.rank,
            "world_size": self.group.world_size,
        }
        if s.unit == "stream":
            return stream_batches(self.corpus, self.vocabulary, steps=s.stream_steps, **common)
        return sentence_batches(self.corpus, self.vocabulary, **common)

    def _take(self, batches: Sequence[Batch]) -> None:
        """One step, taken unless its loss or gradient is bad."""
        s = self.config.training
        train_encoder = self.step >= s.freeze_steps
        n_targets = sum(batch.n_targets for batch in batches)
        rows: Optional[RowGradient] = None
        losses = [0.0, 0.0]
        for number, batch in enumerate(batches):
            result: StepResult = self.step_function(
                batch,
                self.step,
                # The mean over the predictions of all batches, not of this one.
                scale=s.loss_scale * (batch.n_targets / n_targets),
                initial=self.states,
                train_encoder=train_encoder,
                number=number,
            )
            if s.unit == "stream":
                self.states = result.states
            rows = result.row_gradient if rows is None else rows.plus(result.row_gradient)
            losses = [total + loss for total, loss in zip(losses, result.losses)]
        assert rows is not None
        self.group.sum([rows.weight, rows.bias])
        if train_encoder:
            self.group.sum([self.optimizer.flat.grad])
        loss = sum(self.group.sum_values(losses)) / (2 * n_targets)
        norm = self.optimizer.norm(rows, train_encoder)
        if self._is_bad(loss, norm):
            self.skipped += 1
            self.skipped_in_a_row += 1
            self._log({"event": "skipped", "step": self.step, "loss": loss, "norm": norm})
            if self.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
                raise ElmoError(Errors.E054.format(n=self.skipped_in_a_row, step=self.step))
            if s.unit == "stream" and not math.isfinite(loss):
                self.states = None
            return
        self.skipped_in_a_row = 0
        self.accepted += 1
        decay = min(RECENT_DECAY, 1.0 - 1.0 / self.accepted)
        self.recent_loss = decay * self.recent_loss + (1.0 - decay) * loss
        self.recent_norm = decay * self.recent_norm + (1.0 - decay) * norm
        rate = s.learn_rate_at(self.step, self._progress())
        self.optimizer.step(rows, norm, rate, train_encoder)
        self.window.append(loss)

    def _is_bad(self, loss: float, norm: float) -> bool:
        if not (math.isfinite(loss) and math.isfinite(norm)):
            return True
        if self.accepted < TRUST_AFTER:
            return False
        return loss > EXPLODING_LOSS * self.recent_loss or norm > EXPLODING_NORM * self.recent_norm

    # -- evaluation ----------------------------------------------------------------------

    def _evaluate(self, n_tokens: int) -> bool:
        """Measure, keep the model if it is the best so far; True if it is time to stop."""
        if not self.heldout:
            if self.group.is_first:
                self._save_model(LAST_NAME)
            return False
        stop = False
        if self.group.is_first:
            self.model.reset_states()
            sentences = spread(self.heldout, n_tokens) if n_tokens else list(self.heldout)
            self.last = perplexity(self.model, sentences, executor=self.workers.executor)
            self._log(
                {
                    "event": "heldout",
                    "step": self.step,
                    "tokens": self.tokens,
                    "seconds": round(self.seconds, 1),
                    **self.last.to_dict(),
                }
            )
            if n_tokens == 0:
                self._save_model(LAST_NAME)
            elif self.last.average < self.best:
                self.best, self.stale = self.last.average, 0
                self._save_model(BEST_NAME)
            else:
                self.stale += 1
            stop = self._out_of_patience()
        return bool(self.group.sum_values([float(stop)])[0])

    def _out_of_patience(self) -> bool:
        patience = self.config.training.patience
        return 0 < patience <= self.stale

    def _save_model(self, name: str) -> None:
        files = self.model.to_files()
        # A configuration of its own: that of the model is the run's, and may be a preset.
        meta = {**files.config.meta, **self._training_facts()}
        files.config = replace(files.config, meta=meta)
        write_model(files, self.directory / name)

    def _training_facts(self) -> Dict[str, Any]:
        facts: Dict[str, Any] = {
            "steps": self.step,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 1),
            "settings": self.config.to_dict()["training"],
            "corpus_fingerprint": self.fingerprint,
        }
        if self.last is not None:
            facts["heldout"] = self.last.to_dict()
        return {"training": facts}

    # -- log and checkpoints -------------------------------------------------------------

    def _log_training(self, speed: float) -> None:
        # Nothing to average if every step since the last line was skipped.
        loss = sum(self.window) / len(self.window) if self.window else math.nan
        self.window = []
        self._log(
            {
                "event": "train",
                "step": self.step,
                "tokens": self.tokens,
                "progress": round(self._progress(), 6),
                "sampled_loss": loss,
                "sampled_perplexity": nats_to_perplexity(loss),
                "norm": self.recent_norm,
                "learn_rate": self.config.training.learn_rate_at(self.step, self._progress()),
                "skipped": self.skipped,
                "tokens_per_second": round(speed, 1),
            }
        )

    def _log(self, line: Dict[str, Any]) -> None:
        if not self.group.is_first:
            return
        # JSON has no NaN and no infinity; programs that read the log would stop there.
        line = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in line.items()
        }
        with open(self.directory / LOG_NAME, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            self.log_bytes = file.tell()

    def save(self) -> None:
        """Write a checkpoint. All processes must call this; the first one writes."""
        checkpoint = snapshot(self)
        if self.group.is_first:
            save_checkpoint(self.directory, checkpoint)

    def resume(self) -> None:
        """Go on from the checkpoint in the run's directory.

        :raises ElmoError: E052, E053 if there is no good checkpoint.
        """
        checkpoint = load_checkpoint(self.directory)
        try:
            restore(self, checkpoint)
        except (KeyError, TypeError, ValueError, RuntimeError) as err:
            # Another model's, or one of an unknown release: it is of the right kind otherwise.
            path = self.directory / CHECKPOINT_NAME
            problem = f"it does not fit the run ({type(err).__name__}: {err})"
            raise ElmoError(Errors.E053.format(path=path, problem=problem)) from err
        log = self.directory / LOG_NAME
        # Lines behind the checkpoint will be written again.
        if self.group.is_first and log.exists() and log.stat().st_size > self.log_bytes:
            os.truncate(log, self.log_bytes)


def spread(sentences: Sequence[Sequence[str]], n_tokens: int) -> List[Sequence[str]]:
    """About `n_tokens` tokens' worth of sentences, evenly from the whole text; one at least."""
    total = sum(len(s) for s in sentences)
    share = min(1.0, n_tokens / max(1, total))
    chosen = [s for i, s in enumerate(sentences) if int((i + 1) * share) > int(i * share)]
    return chosen or list(sentences[:1])
