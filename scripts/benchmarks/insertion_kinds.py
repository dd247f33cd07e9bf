"""The insertion benchmark of kinds: each that needs no base, next to uniform fills.

All insert as many canaries into one corpus, in turn, round by round; a ratio is of medians. A kind
that takes more than 1.3 times as long as uniform fills is a line "MISSED" at the end, and the exit
code counts these.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from lmexposure.audit import RunSettings, insert_corpus
from lmexposure.canaries import KINDS, UNIFORM
from lmexposure.cli.console import say

_MOST = 1.3  # times the seconds of uniform fills
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        here = Path(name)
        corpus, other = here / "corpus.txt", here / "other.txt"
        write_corpus(corpus, arguments.megabytes, seed=0)
        write_corpus(other, 0.2, seed=1)
        seconds = timed(here, corpus, other, arguments.rounds)
    medians = {kind: median(those) for kind, those in seconds.items()}
    for kind, those in seconds.items():
        rounds = ", ".join(f"{spent:.2f}" for spent in those)
        say(f"{kind:16} {medians[kind]:7.2f} s   by round: {rounds}")
    return sum(not told(kind, medians) for kind in medians if kind != UNIFORM)


def timed(here: Path, corpus: Path, other: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of each kind in each round, after a first insertion that pays for the imports."""
    few = here / "few.txt"
    write_corpus(few, 0.1, seed=2)
    inserted(few, here / "out", UNIFORM, other)
    kinds = [name for name, kind in KINDS.items() if not kind.needs_base]
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, spent in seconds.items():
            spent.append(inserted(corpus, here / "out", kind, other))
    return seconds


def inserted(corpus: Path, out: Path, kind: str, other: Path) -> float:
    """Seconds of one insertion of 50 canaries, once, 4 and 16 times each, and 10 controls."""
    shutil.rmtree(out, ignore_errors=True)
    settings = RunSettings(
        kinds=(kind,),
        canaries=50,
        repetitions=(1, 4, 16),
        controls=10,
        seed=0,
        other_text=str(other) if KINDS[kind].needs_other else None,
    )
    start = time.perf_counter()
    insert_corpus([corpus], out=out, settings=settings)
    return time.perf_counter() - start


def write_corpus(path: Path, megabytes: float, *, seed: int) -> None:
    """Lines of made-up words, a few of them frequent and many rare; the same each time."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(_SYLLABLES, k=3)) for _ in range(50_000)]
    block = [
        " ".join(words[int(len(words) * draw.random() ** 4)] for _ in range(draw.randint(8, 30)))
        for _ in range(20_000)
    ]
    with open(path, "w", encoding="utf-8") as stream:
        while stream.tell() < megabytes * 1e6:
            stream.writelines(line + "\n" for line in block)


def told(kind: str, medians: dict[str, float]) -> bool:
    ratio = medians[kind] / medians[UNIFORM]
    reached = ratio <= _MOST
    say(f"{'reached' if reached else 'MISSED '}  {kind}: {ratio:.2f} times uniform, <= {_MOST}")
    return reached


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
