"""Processor seconds of the commands that load no model, their imports included.

Wall-clock time says little on a busy machine; user and system time of a process of its own, with
one thread, say what a command computes.
"""

import json
import tempfile
from pathlib import Path
from statistics import median

from corpora import sentences
from harness import Claims, Namespace, spent
from made_results import small_run

from lmexposure.audit import MeasureSettings

ARGUMENTS = {"documents": 1000, "rounds": 3}
# What may be typed in the directory of the files that `made` leaves, its processor seconds at most,
# and its exit code: `check` says that the run leaks.
_COMMANDS = (
    ("--help", 0.5, 0),
    ("formats", 1.0, 0),
    ("insert corpus.txt --out text", 1.0, 0),
    ("insert corpus.jsonl --format ssn --format api_key --out jsonl", 1.0, 0),
    ("verify text/corpus/corpus.txt text/manifest.json", 1.0, 0),
    ("verify jsonl/corpus/corpus.jsonl jsonl/manifest.json", 1.0, 0),
    ("remove text/corpus/corpus.txt text/manifest.json --file again.txt", 1.0, 0),
    ("remove jsonl/corpus/corpus.jsonl jsonl/manifest.json --file again.jsonl", 1.0, 0),
    ("check run", 0.5, 1),
    ("epsilon run/scores.parquet", 2.0, 0),
    ("report run", 4.0, 0),
)
_IMPORT, _MOST_IMPORT = "import lmexposure", 0.1  # what every notebook and script begins with


def commands(given: Namespace) -> Claims:
    """Each command once a round, in a directory of the round."""
    taken: dict[str, list[float]] = {words: [] for words, *_ in _COMMANDS}
    imported = []
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as made_here:
            here = made(Path(made_here), given.documents)
            imported.append(spent("-c", _IMPORT, directory=here).processor)
            for words, _, code in _COMMANDS:
                typed = spent("-m", "lmexposure", *words.split(), directory=here, code=code)
                taken[words].append(typed.processor)
    seconds = median(imported)
    yield seconds < _MOST_IMPORT, f"{_IMPORT}: {seconds:.2f} s < {_MOST_IMPORT:g} s"
    for words, most, _ in _COMMANDS:
        seconds = median(taken[words])
        yield seconds < most, f"{words}: {seconds:.2f} s < {most:g} s"


def made(here: Path, documents: int) -> Path:
    """A corpus as text and as JSONL, and a run with as many canaries as the demo has."""
    lines = sentences(documents)
    (here / "corpus.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = "".join(json.dumps({"text": line}) + "\n" for line in lines)
    (here / "corpus.jsonl").write_text(rows, encoding="utf-8")
    small_run(
        here / "run",
        canaries=10,
        controls=32,
        repetitions=(1, 4, 16),
        references=10_000,
        memorised=((4, 12.0), (16, 40.0)),
        measure=MeasureSettings(),
    )
    return here


PARTS = {"commands": commands}
