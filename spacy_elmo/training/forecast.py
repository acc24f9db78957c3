"""What can be told of a run before its first step: text, coverage, memory, number of steps."""

from ..bilm.encoder import BiLM
from .config import PretrainConfig
from .corpus import PreparedCorpus
from .vocabulary import CoverageReport


class Forecast:
    """What is known before the first step.

    :param corpus: The prepared text.
    :param report: OOV rate and words over the character limit.
    :param config: Settings of the run.
    :param model: The model, for its size.
    """

    def __init__(
        self, corpus: PreparedCorpus, report: CoverageReport, config: PretrainConfig, model: BiLM
    ) -> None:
        self.corpus, self.report, self.config = corpus, report, config
        t = config.training
        assert model.softmax is not None
        softmax = model.softmax.weight.numel() + model.softmax.bias.numel()
        total = sum(p.numel() for p in model.parameters())
        slots = 2 if t.optimizer == "adagrad" else 3
        self.encoder_parameters = total - softmax
        #: Bytes of the softmax: weights and the optimiser's moments.
        self.softmax_bytes = 4 * softmax * slots
        #: The same of the encoder, with its gradients.
        self.encoder_bytes = 4 * (total - softmax) * (slots + 1)
        self.predictions = (corpus.n_tokens + corpus.n_sentences) * t.epochs
        #: Predictions of one direction in a step.
        self.step_predictions = t.batch_tokens * t.accumulate
        steps = -(-self.predictions // self.step_predictions)
        self.steps = min(steps, t.max_steps) if t.max_steps else steps

    def text(self) -> str:
        """Lines for people."""
        mib = 2**20
        return "\n".join(
            [
                f"Text: {self.corpus.n_sentences:,} sentences, {self.corpus.n_tokens:,} tokens",
                self.report.text(),
                f"Encoder: {self.encoder_parameters:,} parameters, "
                f"{self.encoder_bytes / mib:,.0f} MiB with gradients and optimiser",
                f"Softmax: {self.softmax_bytes / mib:,.0f} MiB with optimiser",
                f"About {self.steps:,} steps of {self.step_predictions:,} predictions "
                "in each direction",
            ]
        )
