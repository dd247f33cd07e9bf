"""The insertion benchmark: speed beside cp, a plain hashing copy and orjson, and peak memory.

All are timed in turn, round by round, on one disk; a ratio is of medians. Every claim stands as a
line "reached" or "MISSED" at the end, and the exit code counts the missed.
"""

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from lmexposure.cli.console import say

_LEAST_SHARE, _MOST_MEGABYTES = 0.5, 200
_BLOCK = 1 << 20
_WORDS = (
    "the",
    "model",
    "learns",
    "from",
    "every",
    "line",
    "of",
    "its",
    "corpus",
    "while",
    "zürich",
)

# Each in a process of its own, so that its memory is its own, too; seconds are taken inside, so
# that nobody pays for imports.
_INSERT = """
import json, resource, sys, time
from lmexposure.canaries import Plan, insert_into_files, load_format, shape_named
source, out, layout, verify = sys.argv[1:5]
plan = Plan(formats=(load_format("random_number"),), canaries=50, repetitions=(1, 4, 16),
            controls=10, seed=0)
start = time.perf_counter()
insert_into_files([source], plan, out, shape=shape_named(layout), verify=verify == "True")
seconds = time.perf_counter() - start
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        claims = measured(Path(name), arguments.megabytes, arguments.rounds)
    return sum(not told(claim) for claim in claims)


def measured(here: Path, megabytes: int, rounds: int) -> list[tuple[str, bool]]:
    """Medians over rounds, each beside its claim."""
    text, records = write_corpora(here, megabytes)
    memory: list[float] = []

    def insertion(source: Path, layout: str, verify: bool) -> Callable[[], float]:
        def once() -> float:
            seconds, peak = inserted(source, here / "out", layout, verify)
            memory.append(peak)
            return seconds

        return once

    runs = {
        "cp": timed(lambda: subprocess.run(["cp", text, here / "copy"], check=True)),
        "counting and writing": insertion(text, "lines", False),
        "read, hash, write": timed(lambda: hashing_copy(text, here / "copy")),
        "with hashing and verification": insertion(text, "lines", True),
        "orjson lines": timed(lambda: orjson_copy(records, here / "copy")),
        "jsonl, with hashing and verification": insertion(records, "jsonl", True),
        "jsonl, counting and writing": insertion(records, "jsonl", False),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            clear(here)
            seconds[name].append(run())
    medians = {name: median(those) for name, those in seconds.items()}
    for name, those in seconds.items():
        rates = ", ".join(f"{megabytes / one:,.0f}" for one in those)
        say(f"{name:38} {medians[name]:7.2f} s   MB/s by round: {rates}")
    pairs = [
        ("counting and writing", "cp"),
        ("with hashing and verification", "read, hash, write"),
        ("jsonl, with hashing and verification", "orjson lines"),
    ]
    peak = max(memory)
    return [
        *(share(medians, ours, theirs) for ours, theirs in pairs),
        (f"peak memory: {peak:.0f} MB < {_MOST_MEGABYTES} MB", peak < _MOST_MEGABYTES),
    ]


def share(medians: dict[str, float], ours: str, theirs: str) -> tuple[str, bool]:
    """Our speed as a share of theirs; higher = faster."""
    value = medians[theirs] / medians[ours]
    return f"{ours}: {value:.2f} of the speed of {theirs}, >= {_LEAST_SHARE}", value >= _LEAST_SHARE


def write_corpora(here: Path, megabytes: int) -> tuple[Path, Path]:
    """A text file and a JSONL file of so many megabytes, some of it not ASCII."""
    draw = random.Random(0)
    lines = [" ".join(draw.choices(_WORDS, k=draw.randint(5, 30))) for _ in range(20_000)]
    text, records = here / "corpus.txt", here / "corpus.jsonl"
    fill(text, "".join(line + "\n" for line in lines).encode(), megabytes)
    spelled = (
        json.dumps({"id": n, "source": "made up", "text": line}, ensure_ascii=False) + "\n"
        for n, line in enumerate(lines)
    )
    fill(records, "".join(spelled).encode(), megabytes)
    return text, records


def fill(path: Path, block: bytes, megabytes: int) -> None:
    with open(path, "wb") as stream:
        while stream.tell() < megabytes * 1e6:
            stream.write(block)


def hashing_copy(source: Path, target: Path) -> None:
    """What a plain loop does: read, hash and write a block at a time."""
    digest = hashlib.sha256()
    with open(source, "rb") as reader, open(target, "wb") as writer:
        while block := reader.read(_BLOCK):
            digest.update(block)
            writer.write(block)


def orjson_copy(source: Path, target: Path) -> None:
    """What a plain loop does: read and write each record with orjson."""
    import orjson

    with open(source, "rb") as reader, open(target, "wb") as writer:
        for line in reader:
            writer.write(orjson.dumps(orjson.loads(line)) + b"\n")


def timed(run: Callable[[], object]) -> Callable[[], float]:
    def once() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return once


def inserted(source: Path, out: Path, layout: str, verify: bool) -> tuple[float, float]:
    """(seconds, peak memory in MB) of one insertion."""
    command = [sys.executable, "-c", _INSERT, source, out, layout, str(verify)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, peak = json.loads(done.stdout)
    return seconds, peak


def clear(here: Path) -> None:
    """Nobody pays for what the one before left on the disk."""
    (here / "copy").unlink(missing_ok=True)
    subprocess.run(["rm", "-rf", here / "out"], check=True)


def told(claim: tuple[str, bool]) -> bool:
    say(f"{'reached' if claim[1] else 'MISSED '}  {claim[0]}")
    return claim[1]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
