"""Evaluate all models of a folder on the test set, and draw what they take from which layer."""

import shutil
from pathlib import Path
from typing import Annotated

import spacy
import srsly
import typer
from spacy.cli.evaluate import evaluate
from train import HISTORY, RUN
from wasabi import msg

from spacy_elmo.cli._app import reports_errors
from spacy_elmo.pipeline.logger import read_history
from spacy_elmo.pipeline.mix_plots import mix_title, plot_history, plot_mixes
from spacy_elmo.pipeline.mixes import pipeline_mixes


@reports_errors
def main(
    corpus: Annotated[Path, typer.Argument(help="Folder that convert.py wrote")],
    models: Annotated[Path, typer.Argument(help="Folder that train.py wrote")],
    output: Annotated[Path, typer.Argument(help="Folder to write; replaced if it exists")],
    gpu_id: Annotated[int, typer.Option(help="GPU, -1 for CPU")] = -1,
) -> None:
    """Score models on the test set as spacy evaluate does; draw the mixes that they learned."""
    work = output.with_name(f"{output.name}.tmp")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    panels = []
    for facts_path in sorted(models.glob(f"*/{RUN}")):
        facts = srsly.read_json(facts_path)
        folder = facts_path.parent
        test = corpus / f"{facts['task']}-test.spacy"
        scores = evaluate(str(folder / "model-best"), test, use_gpu=gpu_id)
        srsly.write_json(work / f"{folder.name}.json", {**facts, "scores": scores})
        msg.good(f"Evaluated {folder.name}")
        if facts["elmo"]:
            mixes = pipeline_mixes(spacy.load(folder / "model-best"))
            panels += [(mix_title(mix.component, mix.position), mix) for mix in mixes]
            plot_history(read_history(folder / HISTORY), work / f"{folder.name}-moved.png")
    if panels:
        plot_mixes(panels, work / "mixes.png")
    shutil.rmtree(output, ignore_errors=True)
    work.rename(output)


if __name__ == "__main__":
    typer.run(main)
