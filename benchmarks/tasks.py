"""What ELMo brings to a task: NER and tagging, against the same head on spaCy's CNN.

    python benchmarks/tasks.py [--only wnut17] [--seeds 3] [--steps N] [--data FOLDER]
        [--weights NAME_OR_PATH] [--vectors FOLDER] [--jobs N]

Each run trains with `spacy train`'s own machinery on the config of the task in `configs/`, takes
the checkpoint that was best on dev, and scores it on test. ELMo and CNN get the same number of
steps, each all of it. Runs are processes of one thread each; finished ones are kept in
`runs/tasks/results.jsonl` and not done again, so a benchmark that was killed goes on where it
was. A change of config, data, weights, steps or seed makes a new run. The frozen encoder's
outputs are computed once for each set of sentences, timed separately, and read by all seeds.
`--vectors` adds both once more with static word vectors in the embedding (`static_vectors.py` makes
some).

The table goes to the terminal and between its markers in `docs/results.md`.
"""

import argparse
import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, Optional

from tasks_data import TASKS, DataMissing, prepare
from tasks_table import ENCODERS, WITH_ELMO, WITH_VECTORS, machine, mixes, table, write_section

from spacy_elmo.errors import ElmoError
from spacy_elmo.layers.shim import BiLMShim

ROOT = Path(__file__).resolve().parents[1]


class Runs:
    """Finished runs, in a file that grows by a line at a time.

    path (Path): The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._records: Dict[str, Dict[str, Any]] = {}
        self._lock = threading.Lock()
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    record = json.loads(line)
                except ValueError:
                    continue  # The last line of a killed benchmark.
                self._records[record["key"]] = record

    def get(self, key: str) -> Optional[Dict[str, Any]]:
        """A finished run, None if it is not there."""
        return self._records.get(key)

    def add(self, record: Dict[str, Any]) -> None:
        """Keep a finished run."""
        self._records[record["key"]] = record
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            # A blank line first ends whatever a killed benchmark had begun.
            file.write("\n" + json.dumps(record) + "\n")


def key_of(facts: Dict[str, Any]) -> str:
    """What makes two runs the same."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def digest_of(vectors: Path) -> str:
    """What the vectors of a pipeline's folder are, without its path."""
    return hashlib.sha256((vectors / "vocab" / "vectors").read_bytes()).hexdigest()


def plan(args: argparse.Namespace, fingerprint: str, cache: Path) -> List[Dict[str, Any]]:
    """Settings of all runs: seeds outermost, so that half a table has all rows."""
    planned = []
    data = {name: prepare(TASKS[name], args.data, args.work / "data") for name in args.only}
    for seed in range(args.seeds):
        for name in args.only:
            task = TASKS[name]
            for encoder in ENCODERS:
                has_elmo, has_vectors = encoder in WITH_ELMO, encoder in WITH_VECTORS
                if has_vectors and args.vectors is None:
                    continue
                file = task.head if has_elmo else f"{task.head}_cnn"
                config = ROOT / "configs" / f"{file}.cfg"
                facts = {
                    "task": name,
                    "encoder": encoder,
                    "seed": seed,
                    "steps": args.steps or task.steps,
                    "evaluations": args.evaluations,
                    "config": hashlib.sha256(config.read_bytes()).hexdigest(),
                    # The folder is named after what is in it.
                    "data": data[name]["train"].parent.name,
                    "weights": fingerprint if has_elmo else None,
                }
                if has_vectors:
                    facts["vectors"] = digest_of(args.vectors)
                key = key_of(facts)
                planned.append(
                    {
                        **facts,
                        "kind": "train",
                        "key": key,
                        "config": str(config),
                        "data": {part: str(path) for part, path in data[name].items()},
                        "weights": args.weights,
                        "vectors": str(args.vectors) if has_vectors else None,
                        "head": task.head,
                        "score": task.score,
                        "cache": str(cache / f"{name}.sqlite"),
                        "output": str(args.work / "pipelines" / key),
                        "encode_key": key_of({"encode": facts["data"], "weights": fingerprint}),
                    }
                )
    return planned


def run(settings: Dict[str, Any], log: Path, scratch: Path) -> Dict[str, Any]:
    """Do one run in a process of its own, with one thread."""
    target = scratch / f"{settings['key']}.json"
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        code = subprocess.call(
            [
                sys.executable,
                str(Path(__file__).with_name("tasks_run.py")),
                json.dumps(settings),
                str(target),
            ],
            env={**os.environ, **threads, "PYTHONIOENCODING": "utf-8"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    if code:
        raise RuntimeError(f"a run failed with exit code {code}; see {log}")
    result: Dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    return result


def encode_first(
    planned: List[Dict[str, Any]], runs: Runs, args: argparse.Namespace, scratch: Path
) -> None:
    """Fill the caches of what is still to be trained, and keep how long that took."""
    for settings in planned:
        if settings["encoder"] not in WITH_ELMO or runs.get(settings["key"]):
            continue
        if Path(settings["cache"]).exists():
            continue
        key = settings["encode_key"]
        print(f"encoding {settings['task']} once", flush=True)
        wanted = {**settings, "kind": "encode", "key": key}
        result = run(wanted, args.work / "logs" / f"encode-{key}.txt", scratch)
        runs.add({"key": key, "kind": "encode", "jobs": args.jobs, **result})


def train_all(
    planned: List[Dict[str, Any]], runs: Runs, args: argparse.Namespace, scratch: Path
) -> None:
    """Do the runs that are not finished, `--jobs` at a time; each is kept once it is done."""
    todo = [settings for settings in planned if not runs.get(settings["key"])]

    def do(settings: Dict[str, Any]) -> None:
        name = f"{settings['task']}-{settings['encoder']}-{settings['seed']}"
        log = args.work / "logs" / f"{name}-{settings['key']}.txt"
        try:
            result = run(settings, log, scratch)
        finally:
            shutil.rmtree(settings["output"], ignore_errors=True)
        facts = {fact: settings[fact] for fact in ("key", "task", "encoder", "seed", "steps")}
        date = datetime.date.today().isoformat()
        runs.add({**facts, "jobs": args.jobs, "date": date, **result})
        print(
            f"{name}: dev {100 * result['dev']:.2f}, test {100 * result['test']:.2f}, "
            f"{result['train_seconds']:.0f} s",
            flush=True,
        )

    with ThreadPoolExecutor(args.jobs) as pool:
        futures = [pool.submit(do, settings) for settings in todo]
        for future in futures:
            try:
                future.result()
            except BaseException:
                # What runs is let finish; what waits is not begun.
                pool.shutdown(wait=True, cancel_futures=True)
                raise


def section(planned: List[Dict[str, Any]], runs: Runs, args: argparse.Namespace) -> str:
    """Text of the section in docs/results.md."""
    records = []
    for settings in planned:
        record = runs.get(settings["key"])
        encoded = runs.get(settings["encode_key"]) or {}
        if record is not None:
            records.append({**record, "encode_seconds": encoded.get("seconds", float("nan"))})
    dates = sorted({record["date"] for record in records})
    jobs = sorted({record["jobs"] for record in records})
    return "\n\n".join(
        (
            "## Tasks",
            f"`{command(args)}`, {' to '.join(sorted({dates[0], dates[-1]}))}, on {machine()}; "
            f"one thread a run, {' or '.join(map(str, jobs))} at a time.",
            table(records),
            f"Shares of the layers (0 is the character CNN) at the end: {mixes(records)}.",
        )
    )


def command(args: argparse.Namespace) -> str:
    """The command line, without paths of this machine."""
    words = ["python benchmarks/tasks.py"]
    if args.only != list(TASKS):
        words.append(f"--only {' '.join(args.only)}")
    words.append(f"--seeds {args.seeds}")
    if args.steps:
        words.append(f"--steps {args.steps}")
    words.append(f"--weights {Path(args.weights).name}")
    if args.vectors:
        words.append(f"--vectors {args.vectors.name}")
    words.append(f"--jobs {args.jobs}")
    return " ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 to N - 1")
    parser.add_argument("--steps", type=int, help="instead of each task's own budget")
    parser.add_argument("--evaluations", type=int, default=6, help="on dev, during each run")
    parser.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared" / "corpora" / "downstream"
    )
    parser.add_argument("--weights", default="en_mini", help="built-in name or path")
    parser.add_argument("--vectors", type=Path, help="what `spacy init vectors` wrote")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "tasks")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "results.md")
    args = parser.parse_args()
    if min(args.seeds, args.jobs, args.evaluations) < 1 or (args.steps or 1) < 1:
        parser.error("--seeds, --steps, --evaluations and --jobs are at least 1")
    runs = Runs(args.work / "results.jsonl")
    with tempfile.TemporaryDirectory(prefix="spacy-elmo-tasks-") as scratch:
        try:
            fingerprint = BiLMShim(args.weights).fingerprint()
            planned = plan(args, fingerprint, Path(scratch))
            encode_first(planned, runs, args, Path(scratch))
            train_all(planned, runs, args, Path(scratch))
        except (DataMissing, ElmoError, RuntimeError) as error:
            sys.exit(str(error))
    text = section(planned, runs, args)
    print(text)
    write_section(args.output, text)


if __name__ == "__main__":
    main()
