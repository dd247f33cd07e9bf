"""The benchmark of light commands: processor seconds of each, its imports included.

Wall-clock time says little on a busy machine; user and system time of a process of its own, with
one thread, say what a command computes. Every claim is a line "reached" or "MISSED" at the end, and
the exit code counts the missed.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from corpora import sentences
from made_results import small_run

from lmexposure.audit import MeasureSettings
from lmexposure.cli.console import say

# What may be typed (in the directory of the files that `made` leaves) and its processor seconds.
_IMPORT = "import lmexposure"  # what every notebook and script begins with
_COMMANDS = (
    (_IMPORT, 0.1),
    ("--help", 0.5),
    ("formats", 1.0),
    ("insert corpus.txt --out text", 1.0),
    ("insert corpus.jsonl --format ssn --format api_key --out jsonl", 1.0),
    ("verify text/corpus/corpus.txt text/manifest.json", 1.0),
    ("verify jsonl/corpus/corpus.jsonl jsonl/manifest.json", 1.0),
    ("remove text/corpus/corpus.txt text/manifest.json --file again.txt", 1.0),
    ("remove jsonl/corpus/corpus.jsonl jsonl/manifest.json --file again.jsonl", 1.0),
    ("check run", 0.5),
    ("epsilon run/scores.parquet", 2.0),
    ("report run", 4.0),
)
_LEAK = 1  # what `check` says of a run that memorised


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as made_here:
        here = Path(made_here)
        made(here, arguments.documents)
        seconds: dict[str, list[float]] = {words: [] for words, _ in _COMMANDS}
        for number in range(arguments.rounds):
            for words in seconds:
                seconds[words].append(taken(words, here, number))
    claims = [(words, median(seconds[words]), most) for words, most in _COMMANDS]
    return sum(not told(*claim) for claim in claims)


def made(here: Path, documents: int) -> None:
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


def taken(words: str, here: Path, number: int) -> float:
    """User and system seconds of a command in a process of its own; each round has its own --out.

    Raises:
        SystemExit: the command failed.
    """
    words = words.replace("text/", f"text{number}/").replace("jsonl/", f"jsonl{number}/")
    words += str(number) if words.startswith("insert") else ""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    typed = ["-c", words] if words == _IMPORT else ["-m", "lmexposure", *words.split()]
    done = subprocess.run(
        [sys.executable, *typed],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != (_LEAK if words.startswith("check") else 0):
        sys.exit(f"lmexposure {words} ended with {done.returncode}: {done.stderr}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def told(words: str, seconds: float, most: float) -> bool:
    reached = seconds < most
    say(f"{'reached' if reached else 'MISSED '}  {words}: {seconds:.2f} s < {most:g} s")
    return reached


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="Where temporary files go.")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
