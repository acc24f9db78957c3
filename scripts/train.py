"""Train a task with several configs: `spacy train` for each, with the same data and steps."""

import time
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional

import srsly
import typer
from spacy.cli.train import train
from wasabi import msg

from spacy_elmo.cli._app import reports_errors

HISTORY = "mixes.jsonl"
RUN = "run.json"


@reports_errors
def main(
    corpus: Annotated[Path, typer.Argument(help="Folder that convert.py wrote")],
    output: Annotated[Path, typer.Argument(help="Models go to OUTPUT/CONFIG-NAME/model-best")],
    task: Annotated[str, typer.Argument(help="ner or tagger")],
    configs: Annotated[List[Path], typer.Argument(help="Training configs")],
    max_steps: Annotated[int, typer.Option(help="Steps of each training")] = 600,
    eval_every: Annotated[int, typer.Option(help="Steps between evaluations")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of each training")] = 0,
    weights: Annotated[
        Optional[List[str]],
        typer.Option(help="biLM instead of the config's; twice for an options and a weights file"),
    ] = None,
    gpu_id: Annotated[int, typer.Option(help="GPU, -1 for CPU")] = -1,
) -> None:
    """Train a task with several configs on the same data, with the same number of steps."""
    if not (corpus / f"{task}-train.spacy").exists():
        msg.info(f"{corpus} has no data for {task}: nothing to train")
        return
    for config in configs:
        folder = output / config.stem
        overrides: Dict[str, Any] = {
            "paths.train": str(corpus / f"{task}-train.spacy"),
            "paths.dev": str(corpus / f"{task}-dev.spacy"),
            "system.seed": seed,
            "training.max_steps": max_steps,
            # Otherwise short trainings would end before the first evaluation.
            "training.eval_frequency": min(eval_every, max_steps),
        }
        if has_elmo := "[components.elmo]" in config.read_text(encoding="utf-8"):
            overrides["training.logger.@loggers"] = "spacy-elmo.MixLogger.v1"
            overrides["training.logger.path"] = str(folder / HISTORY)
            if weights:
                overrides["components.elmo.weights"] = (
                    weights[0] if len(weights) == 1 else list(weights)
                )
        start = time.perf_counter()
        train(config, folder, use_gpu=gpu_id, overrides=overrides)
        seconds = time.perf_counter() - start
        facts = {"task": task, "elmo": has_elmo, "steps": max_steps, "seconds": seconds}
        srsly.write_json(folder / RUN, facts)


if __name__ == "__main__":
    typer.run(main)
