"""Processor seconds of the commands that load no model, and how soon others say a word.

Wall-clock time says little on a busy machine; user and system time of a process of its own, with
one thread, say what a command computes.
"""

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

from corpora import sentences
from harness import Claims, Namespace, in_turn, medians, ratio, spent
from made_results import small_run

from lmexposure.audit import MeasureSettings

ARGUMENTS = {"documents": 1000, "rounds": 5}
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
_LOADED = Path(__file__).parents[2] / "tests" / "golden" / "data" / "measured" / "gpt2"
# Of commands that load a model: the first word within this many times the import.
_OF_MODELS = (
    f"measure {_LOADED / 'model'} {_LOADED / 'manifest.json'} --effort quick",
    f"verbatim {_LOADED / 'model'} corpus.txt",
    f"identifiers {_LOADED / 'model'} corpus.txt --format random_number",
    "run corpus.txt --effort quick",
    "train corpus.txt",
)
_LIBRARIES, _MOST_TIMES = "import torch, transformers; print()", 1.3


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


def first_words(given: Namespace) -> Claims:
    """Seconds until the first line on either stream, beside the import of two libraries."""
    with tempfile.TemporaryDirectory() as made_here:
        here = made(Path(made_here), given.documents)
        sides = {"import": partial(until_a_line, here, "-c", _LIBRARIES)}
        for words in _OF_MODELS:
            typed = ("-m", "lmexposure", *words.split(), "--out", "out")
            sides[words.split()[0]] = partial(until_a_line, here, *typed)
        seconds = in_turn(sides, given.rounds)
    medians(seconds)
    imports = seconds.pop("import")
    for name, taken in seconds.items():
        times = ratio(taken, imports)
        yield times <= _MOST_TIMES, f"{name}: first word {times:.2f} <= {_MOST_TIMES:g} imports"


def until_a_line(here: Path, *words: str) -> float:
    """Seconds until a fresh Python says its first line; it is ended then."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - begun
        process.kill()
    if b"error" in line:
        sys.exit(f"{' '.join(words)} said {line!r}")
    return seconds


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


PARTS = {"commands": commands, "first_words": first_words}
