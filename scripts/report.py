"""Print the scores that evaluate.py wrote as a table. Loads nothing heavy."""

from pathlib import Path
from typing import Annotated, Any, Dict, List, Tuple

import srsly
import typer
from wasabi import msg

#: Main score of each task: its key in spaCy's scores, and what it is called.
MEASURES = {"ner": ("ents_f", "NER, F"), "tagger": ("tag_acc", "tagging, accuracy")}


def rows_of(results: List[Dict[str, Any]]) -> List[Tuple[str, ...]]:
    """Rows of the table: for each task first the models without ELMo.

    results (List[Dict]): What evaluate.py wrote for each model.
    """
    rows = []
    for task in sorted({result["task"] for result in results}):
        models = [result for result in results if result["task"] == task]
        key, name = MEASURES[task]
        baseline = next((m["scores"][key] for m in models if not m["elmo"]), None)
        for model in sorted(models, key=lambda m: m["elmo"]):
            score = model["scores"][key]
            gain = f"{100 * (score - baseline):+.1f}" if model["elmo"] and baseline else ""
            rows.append(
                (
                    name,
                    "own embedding + ELMo" if model["elmo"] else "own embedding",
                    f"{100 * score:.1f}",
                    gain,
                    f"{model['seconds']:.0f} s",
                    f"{model['scores']['speed']:,.0f}",
                )
            )
    return rows


def main(metrics: Annotated[Path, typer.Argument(help="Folder that evaluate.py wrote")]) -> None:
    """Print the scores on the test set, and where the figures are."""
    results = [srsly.read_json(path) for path in sorted(metrics.glob("*.json"))]
    header = ("task", "input", "test", "gain", "training", "words/s")
    aligns = ("l", "l", "r", "r", "r", "r")
    msg.table(rows_of(results), header=header, divider=True, aligns=aligns)
    for path in sorted(metrics.glob("*.png")):
        msg.text(f"Figure: {path}")


if __name__ == "__main__":
    typer.run(main)
