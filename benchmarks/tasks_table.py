"""The table of `tasks.py`, and its section of docs/results.md."""

import os
import platform
import statistics
from importlib.metadata import version
from pathlib import Path
from typing import Any, Dict, List, Sequence

from tasks_data import TASKS

BEGIN, END = "<!-- tasks:start -->", "<!-- tasks:end -->"
ENCODERS = {
    "elmo": "ELMo + own embedding",
    "elmo_static": "the same + static vectors",
    "cnn": "CNN",
    "static": "CNN + static vectors",
}
WITH_ELMO = ("elmo", "elmo_static")
WITH_VECTORS = ("elmo_static", "static")


def table(records: Sequence[Dict[str, Any]]) -> str:
    """Markdown of all finished runs, a row for each task and encoder."""
    head = (
        "task",
        "encoder",
        "seeds",
        "steps",
        "test, mean ± s.d.",
        "each seed",
        "dev, mean",
        "encoding once, s",
        "training, s",
        "training, CPU s",
        "words/s",
    )
    lines = [row(head), row(["---", "---", *["---:"] * (len(head) - 2)])]
    for name, task in TASKS.items():
        for encoder, title in ENCODERS.items():
            runs = [r for r in records if (r.get("task"), r.get("encoder")) == (name, encoder)]
            runs.sort(key=lambda r: r["seed"])
            if not runs:
                continue
            lines.append(
                row(
                    [
                        task.title,
                        title,
                        len(runs),
                        " / ".join(str(s) for s in sorted({r["steps"] for r in runs})),
                        _spread([100 * r["test"] for r in runs]),
                        ", ".join(f"{100 * r['test']:.1f}" for r in runs),
                        f"{statistics.mean(100 * r['dev'] for r in runs):.1f}",
                        f"{runs[0]['encode_seconds']:.0f}" if encoder in WITH_ELMO else "",
                        f"{statistics.mean(r['train_seconds'] for r in runs):.0f}",
                        f"{statistics.mean(r['train_cpu_seconds'] for r in runs):.0f}",
                        f"{statistics.mean(r['words_per_second'] for r in runs):,.0f}",
                    ]
                )
            )
    return "\n".join(lines)


def row(cells: Sequence[Any]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _spread(values: List[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.2f}"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def mixes(records: Sequence[Dict[str, Any]]) -> str:
    """Learned shares of the layers by task, mean over the seeds."""
    found = []
    for name, task in TASKS.items():
        mine = [r for r in records if (r.get("task"), r.get("encoder")) == (name, "elmo")]
        runs = [r["mix"][0] for r in mine if r.get("mix")]
        if runs:
            *shares, gamma = (statistics.mean(column) for column in zip(*runs))
            listed = ", ".join(f"{share:.2f}" for share in shares)
            found.append(f"{task.title.rsplit(',', 1)[0]}: {listed}, gamma {gamma:.2f}")
    return "; ".join(found)


def machine() -> str:
    """Processor, cores and versions; nothing that tells one machine from its likes."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    packages = ", ".join(f"{name} {version(name)}" for name in ("spacy", "thinc", "torch"))
    return (
        f"{os.cpu_count()} cores of {model}, {platform.system()}, "
        f"Python {platform.python_version()}, {packages}"
    )


def write_section(path: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Put text between the markers, which are appended to the file if it has none yet."""
    old = path.read_text(encoding="utf-8") if path.exists() else "# Results\n"
    section = f"{begin}\n{text}\n{end}"
    if begin in old and end in old:
        before, rest = old.split(begin, 1)
        new = before + section + rest.split(end, 1)[1]
    else:
        new = f"{old.rstrip()}\n\n{section}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(new, encoding="utf-8")
    os.replace(unfinished, path)
