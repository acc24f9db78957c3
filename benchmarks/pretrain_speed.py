"""Speed of pre-training: ours against a plain implementation, in one run.

Prints tokens/s of both (interleaved, medians), where our time goes, and GFLOP/s against the peak
of a matrix product measured in the same run.

    python benchmarks/pretrain_speed.py TEXT... [--cell 512 --projection 128 --tokens 2560 ...]

The plain implementation is what one writes first in PyTorch: the characters of every token
convolved at full width, padded batches, a Python loop over single steps of both directions that
autograd follows, dense gradients of the softmax, Adam over all parameters.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from spacy_elmo.bilm.allocator import keep_freed_memory
from spacy_elmo.bilm.config import PRESETS, BiLMConfig, LSTMConfig
from spacy_elmo.bilm.encoder import BiLM
from spacy_elmo.bilm.lm import NegativeSampler, init_bilm, init_softmax
from spacy_elmo.training.batches import Position, make_batch, plan_window
from spacy_elmo.training.config import TrainingConfig
from spacy_elmo.training.corpus import prepare
from spacy_elmo.training.loop import available_cores
from spacy_elmo.training.optimizer import Optimizer
from spacy_elmo.training.step import TrainingStep, Workers, seeded
from spacy_elmo.training.vocabulary import Vocabulary


class Plain:
    """The straightforward trainer."""

    def __init__(self, model: BiLM, sampler: NegativeSampler, vocabulary: Vocabulary) -> None:
        self.model, self.sampler, self.vocabulary = model, sampler, vocabulary
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(self, sentences: List[List[str]], number: int) -> float:
        """One update; gives the mean loss."""
        model = self.model
        longest = max(map(len, sentences)) + 2
        characters = [model.characters.encode(s) for s in sentences]
        ids = np.full((len(sentences), longest, 50), model.pad, np.int64)
        for row, (c, sentence) in enumerate(zip(characters, sentences)):
            order = [0, *range(2, 2 + len(sentence)), 1]
            ids[row, : len(order), : c.ids.shape[1]] = c.ids[order]
        x = self._tokens(torch.from_numpy(ids))
        negatives = self.sampler.sample(seeded(0, number, 1))
        weight, bias = model.softmax.weight, model.softmax.bias
        total = x.new_zeros(())
        n = sum(map(len, sentences)) + len(sentences)
        for k, layers in enumerate((model.forward_lstm, model.backward_lstm)):
            h = self._lstm(x if k == 0 else self._reverse(x, sentences), layers)
            rows, targets = [], []
            for row, sentence in enumerate(sentences):
                words = self.vocabulary.ids(sentence).tolist()
                expected = [*words, 1] if k == 0 else [*reversed(words), 0]
                rows.append(h[row, : len(expected)])
                targets += expected
            hidden, target = torch.cat(rows), torch.tensor(targets)
            logits = hidden @ weight[negatives.ids].t() + bias[negatives.ids] - negatives.log_q
            own = (hidden * weight[target]).sum(1) + bias[target]
            hit = negatives.columns[target]
            places = (hit >= 0).nonzero()[:, 0]
            logits = logits.index_put((places, hit[places]), torch.tensor(float("-inf")))
            total = total + (torch.logsumexp(torch.cat([logits, own[:, None]], 1), 1) - own).sum()
        loss = total / (2 * n)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def _tokens(self, ids: Tensor) -> Tensor:
        encoder = self.model.token_encoder
        shape = ids.shape[:2]
        x = encoder.char_embedding[ids.flatten(0, 1)].transpose(1, 2)
        x = torch.cat(
            [functional.conv1d(x, c.weight, c.bias).amax(2).relu() for c in encoder.conv], 1
        )
        for layer in encoder.highway:
            x = layer(x)
        return encoder.projection(x).view(*shape, -1)

    @staticmethod
    def _reverse(x: Tensor, sentences: List[List[str]]) -> Tensor:
        rows = []
        for row, sentence in enumerate(sentences):
            n = len(sentence) + 2
            rows.append(torch.cat([x[row, :n].flip(0), x[row, n:]]))
        return torch.stack(rows)

    def _lstm(self, x: Tensor, layers: Any) -> Tensor:
        config = self.model.config.lstm
        for number, layer in enumerate(layers):
            w = layer.weights
            h = x.new_zeros(len(x), config.projection_dim)
            c = x.new_zeros(len(x), config.cell_dim)
            outputs = []
            for t in range(x.shape[1]):
                g = x[:, t] @ w.input_weight.t() + h @ w.recurrent_weight.t() + w.bias
                i, f, o, j = g.chunk(4, 1)
                c = torch.sigmoid(f + 1.0) * c + torch.sigmoid(i) * torch.tanh(j)
                c = c.clamp(-config.cell_clip, config.cell_clip)
                h = (torch.sigmoid(o) * torch.tanh(c)) @ w.projection_weight.t()
                h = h.clamp(-config.proj_clip, config.proj_clip)
                outputs.append(h)
            out = torch.stack(outputs, 1)
            x = out + x if number else out
        return x


def peak(threads: int) -> float:
    """GFLOP/s of a large matrix product on all cores."""
    torch.set_num_threads(threads)
    a, b = torch.randn(1536, 1536), torch.randn(1536, 1536)
    times = []
    for _ in range(12):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    return 2 * 1536**3 / statistics.median(times) / 1e9


def flops(config: BiLMConfig, n: int, n_words: int, positions: float, n_samples: int) -> float:
    """Multiply-adds of a step times two: forward pass, and twice that for the backward pass."""
    c, r = config.char_cnn, config.lstm
    conv = sum(width * c.embedding_dim * count for width, count in c.filters) * positions
    word = conv + 2 * c.n_highway * c.n_filters**2 + c.n_filters * r.projection_dim
    cell = 4 * r.cell_dim * 2 * r.projection_dim + r.cell_dim * r.projection_dim
    directions = 2 * (r.n_layers * cell + n_samples * r.projection_dim)
    return 3.0 * 2.0 * (n_words * word + n * directions)


def profile(step: TrainingStep, optimizer: Optimizer, batches: List[Any]) -> Dict[str, float]:
    """Share of CPU time of the parts of a step."""
    from spacy_elmo.bilm import char_cnn, lm, lstm

    spent_in: Dict[str, float] = {}
    saved = []
    for cls, label in (
        (char_cnn.ConvolveMax, "convolutions"),
        (lstm.ProjectedLSTM, "LSTM layers"),
        (lm.SampledSoftmaxLoss, "softmax"),
    ):
        for name in ("forward", "backward"):
            saved.append((cls, name, cls.__dict__[name]))
            inner = getattr(cls, name)

            def make(inner: Any = inner, label: str = label) -> Any:
                def timed_function(*args: Any) -> Any:
                    start = time.thread_time()
                    try:
                        return inner(*args)
                    finally:
                        spent = time.thread_time() - start
                        spent_in[label] = spent_in.get(label, 0.0) + spent

                return staticmethod(timed_function)

            setattr(cls, name, make())
    start = time.process_time()
    for number, batch in enumerate(batches):
        result = step(batch, number)
        rows = result.row_gradient
        before = time.process_time()
        optimizer.step(rows, optimizer.norm(rows), 1e-4)
        spent = time.process_time() - before
        spent_in["optimiser"] = spent_in.get("optimiser", 0.0) + spent
    total = time.process_time() - start
    for cls, name, original in saved:
        setattr(cls, name, original)
    shares = {label: seconds / total for label, seconds in spent_in.items()}
    shares["highway, projection, gathering, the rest"] = 1.0 - sum(shares.values())
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", nargs="+")
    parser.add_argument("--cell", type=int, default=512)
    parser.add_argument("--projection", type=int, default=128)
    parser.add_argument("--negatives", type=int, default=8192)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2560, 5120])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-plain", action="store_true", help="leave the plain trainer out")
    args = parser.parse_args()
    cores = available_cores()
    keep_freed_memory()
    base = PRESETS["mini"]
    config = BiLMConfig(base.char_cnn, LSTMConfig(args.cell, args.projection))
    with tempfile.TemporaryDirectory() as folder:
        corpus = prepare(args.text, Path(folder))
        vocabulary = Vocabulary.from_counts(
            corpus.counts(), 50_003, n_sentences=corpus.n_sentences, n_tokens=corpus.n_tokens
        )
        counts = torch.from_numpy(vocabulary.counts)
        entries = list(zip(vocabulary.words, vocabulary.counts.tolist()))
        sampler = NegativeSampler(counts, args.negatives)
        models = [BiLM(config, vocabulary=entries) for _ in range(2)]
        for model in models:
            init_bilm(model, config, seeded(0, 0, 1))
            init_softmax(model.softmax, counts, seeded(0, 0, 2))
        plain = Plain(models[1], sampler, vocabulary)
        workers = Workers(cores)
        step = TrainingStep(models[0], sampler, workers)
        optimizer = Optimizer(models[0], TrainingConfig(), workers)
        print(
            f"{args.cell} cells, {args.projection} projection, "
            f"{config.char_cnn.n_filters} filters, "
            f"{config.char_cnn.n_highway} highway, {args.negatives:,} negatives, "
            f"vocabulary {len(vocabulary):,}, {cores} cores"
        )
        for tokens in args.tokens:
            measure(args, corpus, vocabulary, plain, step, optimizer, config, tokens, cores)
        workers.close()


def measure(
    args: argparse.Namespace,
    corpus: Any,
    vocabulary: Vocabulary,
    plain: Plain,
    step: TrainingStep,
    optimizer: Optimizer,
    config: BiLMConfig,
    tokens: int,
    cores: int,
) -> None:
    """Print the figures for one size of batch."""
    plan = plan_window(corpus.lengths, 0, Position(), tokens)
    texts = [corpus.sentences(members) for members in plan[: args.rounds + 1]]
    batches = [make_batch(text, vocabulary) for text in texts]

    def ours(number: int) -> None:
        rows = step(batches[number], number).row_gradient
        optimizer.step(rows, optimizer.norm(rows), 1e-4)

    def theirs(number: int) -> None:
        torch.set_num_threads(cores)
        plain.step(texts[number], number)
        torch.set_num_threads(1)

    speeds: Dict[str, List[float]] = {"ours": [], "plain": []}
    rates, peaks = [], []
    for number in range(len(batches)):
        if not args.no_plain:
            start = time.perf_counter()
            theirs(number)
            speeds["plain"].append(batches[number].n_tokens / (time.perf_counter() - start))
        peaks.append(peak(cores))
        torch.set_num_threads(1)
        start = time.perf_counter()
        ours(number)
        seconds = time.perf_counter() - start
        batch = batches[number]
        speeds["ours"].append(batch.n_tokens / seconds)
        lengths = step.model.characters.encode(batch.words).lengths
        work = flops(
            config,
            batch.n_targets,
            len(batch.words) + 2,
            float(lengths.mean()) + 1,
            args.negatives,
        )
        rates.append(work / seconds / 1e9)
    # The first round warms up.
    ours_speed = statistics.median(speeds["ours"][1:])
    rate, top = statistics.median(rates[1:]), statistics.median(peaks[1:])
    words = statistics.mean(len(b.words) for b in batches)
    print(f"\nBatches of {tokens:,} predictions a direction, {words:,.0f} distinct words:")
    print(
        f"  ours   {ours_speed:8,.0f} tokens/s   {rate:6.0f} GFLOP/s, "
        f"{100 * rate / top:.0f} % of the matrix product's {top:.0f}"
    )
    if speeds["plain"]:
        plain_speed = statistics.median(speeds["plain"][1:])
        print(
            f"  plain  {plain_speed:8,.0f} tokens/s   "
            f"ours is {ours_speed / plain_speed:.1f} times as fast"
        )
    shares = profile(step, optimizer, batches[1:4])
    print(
        "  where our CPU time goes: "
        + ", ".join(
            f"{label} {100 * share:.0f} %"
            for label, share in sorted(shares.items(), key=lambda item: -item[1])
        )
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
