"""The insertion benchmark: speed next to cp, a plain hashing copy and orjson; memory; a small one.

All are timed in turn, round by round, on one disk; a ratio is of medians. Every claim stands as a
line "reached" or "MISSED" at the end, and the exit code counts the missed.
"""

import argparse
import gzip
import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from lmexposure.cli.console import say

_LEAST_SHARE, _MOST_MEGABYTES, _MOST_SECONDS = 0.5, 100, 1
_SMALL = 1000  # documents
_SHARE = 0.1  # of the megabytes: corpora of which no speed is claimed
_SMALLER = ("paragraphs, with hashing and verification", ".gz, with hashing and verification")
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

# Each in a process of its own, so that its memory is its own, too; seconds are taken inside, after
# a first insertion, which pays for the imports.
_INSERT = """
import json, pathlib, resource, sys, tempfile, time
import lmexposure as lx
source, out, layout, verify = sys.argv[1:5]
plan = lx.Plan(formats=["random_number"], canaries=50, repetitions=(1, 4, 16), controls=10, seed=0)
insert_files = lx.insert_files
with tempfile.TemporaryDirectory() as name:
    few = pathlib.Path(name, "few.txt")
    few.write_text("".join(f'{{"text": "{number}"}}\\n\\n' for number in range(20)))
    insert_files(few, pathlib.Path(name, "out"), plan, layout=layout)
start, start_processor = time.perf_counter(), time.process_time()
insert_files(source, out, plan, layout=layout, verify=verify == "True")
print(json.dumps({
    "seconds": time.perf_counter() - start,
    "processor": time.process_time() - start_processor,
    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
}))
"""


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        claims = measured(Path(name), arguments.megabytes, arguments.rounds)
    return sum(not told(claim) for claim in claims)


def measured(here: Path, megabytes: int, rounds: int) -> list[tuple[str, bool]]:
    """Medians over rounds, each beside its claim."""
    text, records = write_corpora(here, megabytes)
    small, paragraphs, packed = write_small_corpora(here, megabytes)
    memory: list[float] = []

    def insertion(source: Path, layout: str, verify: bool = True) -> Callable[[], float]:
        def once() -> float:
            spent = inserted(source, here / "out", layout, verify)
            memory.append(spent["megabytes"])
            return spent["seconds"]

        return once

    runs = {
        "cp": timed(lambda: subprocess.run(["cp", text, here / "copy"], check=True)),
        "counting and writing": insertion(text, "lines", verify=False),
        "read, hash, write": timed(lambda: hashing_copy(text, here / "copy")),
        "with hashing and verification": insertion(text, "lines"),
        "orjson lines": timed(lambda: orjson_copy(records, here / "copy")),
        "jsonl, with hashing and verification": insertion(records, "jsonl"),
        "jsonl, counting and writing": insertion(records, "jsonl", verify=False),
        _SMALLER[0]: insertion(paragraphs, "paragraphs"),
        _SMALLER[1]: insertion(packed, "lines"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    processor = []
    for _ in range(rounds):
        for name, run in runs.items():
            clear(here)
            seconds[name].append(run())
        clear(here)
        processor.append(inserted(small, here / "out", "lines", verify=True)["processor"])
    medians = {name: median(those) for name, those in seconds.items()}
    for name, those in seconds.items():
        size = megabytes * (_SHARE if name in _SMALLER else 1)
        rates = ", ".join(f"{size / spent:,.0f}" for spent in those)
        say(f"{name:42} {medians[name]:7.2f} s   MB/s by round: {rates}")
    pairs = [
        ("counting and writing", "cp"),
        ("with hashing and verification", "read, hash, write"),
        ("jsonl, with hashing and verification", "orjson lines"),
    ]
    peak, spent = max(memory), median(processor)
    return [
        *(share(medians, ours, theirs) for ours, theirs in pairs),
        (f"peak memory: {peak:.0f} MB < {_MOST_MEGABYTES} MB", peak < _MOST_MEGABYTES),
        (
            f"{_SMALL:,} documents: {spent:.2f} s of processor time < {_MOST_SECONDS} s",
            spent < _MOST_SECONDS,
        ),
    ]


def share(medians: dict[str, float], ours: str, theirs: str) -> tuple[str, bool]:
    """Our speed as a share of theirs; higher = faster."""
    value = medians[theirs] / medians[ours]
    return f"{ours}: {value:.2f} of the speed of {theirs}, >= {_LEAST_SHARE}", value >= _LEAST_SHARE


def write_corpora(here: Path, megabytes: int) -> tuple[Path, Path]:
    """A text file and a JSONL file of this size, some of it not ASCII."""
    lines = sentences()
    text, records = here / "corpus.txt", here / "corpus.jsonl"
    fill(text, "".join(line + "\n" for line in lines).encode(), megabytes)
    spelled = (
        json.dumps({"id": n, "source": "made up", "text": line}, ensure_ascii=False) + "\n"
        for n, line in enumerate(lines)
    )
    fill(records, "".join(spelled).encode(), megabytes)
    return text, records


def write_small_corpora(here: Path, megabytes: int) -> tuple[Path, Path, Path]:
    """Some documents; paragraphs of five lines; lines packed by gzip."""
    lines = sentences()
    small, paragraphs, packed = (here / name for name in ("small.txt", "five.txt", "packed.txt.gz"))
    small.write_text("".join(line + "\n" for line in lines[:_SMALL]), "utf-8")
    apart = "".join(line + "\n" * (1 + (n % 5 == 4)) for n, line in enumerate(lines))
    fill(paragraphs, apart.encode(), megabytes * _SHARE)
    fill(here / "unpacked.txt", "".join(line + "\n" for line in lines).encode(), megabytes * _SHARE)
    with open(here / "unpacked.txt", "rb") as plain, gzip.open(packed, "wb", 6) as stream:
        shutil.copyfileobj(plain, stream)
    return small, paragraphs, packed


def sentences() -> list[str]:
    """The same made-up lines each time."""
    draw = random.Random(0)
    return [" ".join(draw.choices(_WORDS, k=draw.randint(5, 30))) for _ in range(20_000)]


def fill(path: Path, block: bytes, megabytes: float) -> None:
    """Repeat a block until the file has this size."""
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


def inserted(source: Path, out: Path, layout: str, verify: bool) -> dict[str, float]:
    """Seconds, seconds of processor time and peak memory in megabytes of one insertion."""
    command = [sys.executable, "-c", _INSERT, source, out, layout, str(verify)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    spent: dict[str, float] = json.loads(done.stdout)
    return spent


def clear(here: Path) -> None:
    """What an earlier run left on the disk costs the next one nothing."""
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
