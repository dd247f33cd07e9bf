"""Insertion beside cp, a hashing copy and orjson; each kind of canary beside uniform fills.

All sides take turns on one disk. Each insertion is a process of its own, so that its memory is its
own too; its seconds are taken inside, after a first insertion, which pays for the imports.
"""

import hashlib
import json
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import orjson
from harness import Claims, Namespace, filled, in_turn, medians, ratio, spent, timed

from lmexposure.audit import RunSettings, insert_corpus

ARGUMENTS = {"megabytes": 1000, "rounds": 3, "directory": tempfile.gettempdir()}
_LEAST_SHARE, _MOST_MEGABYTES, _MOST_SECONDS, _MOST_OF_UNIFORM = 0.5, 100, 1, 1.3
_SMALL = 1000  # documents
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
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
_KINDS = ("uniform", "new_token", "near_duplicate")
_INSERT = """
import json, pathlib, sys, tempfile, time
import lmexposure as lx
source, out, layout, verify = sys.argv[1:5]
plan = lx.Plan(formats=["random_number"], canaries=50, repetitions=(1, 4, 16), controls=10, seed=0)
with tempfile.TemporaryDirectory() as name:
    few = pathlib.Path(name, "few.txt")
    few.write_text("".join(f'{{"text": "{number}"}}\\n' for number in range(20)))
    lx.insert_files(few, pathlib.Path(name, "out"), plan, layout=layout)
start, start_processor = time.perf_counter(), time.process_time()
lx.insert_files(source, out, plan, layout=layout, verify=verify == "True")
print(json.dumps([time.perf_counter() - start, time.process_time() - start_processor]))
"""


def speed(given: Namespace) -> Claims:
    """Lines and JSONL, with all checks and without; memory, and a small corpus."""
    memory: list[float] = []
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        here = Path(name)
        draw = random.Random(0)
        lines = [" ".join(draw.choices(_WORDS, k=draw.randint(5, 30))) for _ in range(20_000)]
        text = filled(here / "corpus.txt", "".join(f"{line}\n" for line in lines), given.megabytes)
        rows = (
            json.dumps({"id": n, "text": line}, ensure_ascii=False) for n, line in enumerate(lines)
        )
        records = filled(here / "corpus.jsonl", "\n".join([*rows, ""]), given.megabytes)
        small = here / "small.txt"
        small.write_text("\n".join(lines[:_SMALL]) + "\n", "utf-8")

        def inserted(
            source: Path, layout: str, verify: bool = True, processor: bool = False
        ) -> float:
            shutil.rmtree(here / "out", ignore_errors=True)
            took = spent("-c", _INSERT, source, here / "out", layout, verify)
            memory.append(took.megabytes)
            return float(json.loads(took.out)[processor])

        def copied(copy: Callable[[Path, Path], object], source: Path) -> Callable[[], float]:
            return timed(lambda: copy(source, here / "copy"))

        sides: dict[str, Callable[[], float]] = {
            "cp": copied(cp, text),
            "counting and writing": lambda: inserted(text, "lines", verify=False),
            "read, hash, write": copied(hashing_copy, text),
            "with hashing and verification": lambda: inserted(text, "lines"),
            "orjson lines": copied(orjson_copy, records),
            "jsonl, with hashing and verification": lambda: inserted(records, "jsonl"),
            f"{_SMALL:,} documents, processor": lambda: inserted(small, "lines", processor=True),
        }
        seconds = in_turn(sides, given.rounds)
    medians(seconds)
    names = list(sides)
    for theirs, ours in zip(names[:6:2], names[1:6:2], strict=True):
        share = ratio(seconds[theirs], seconds[ours])
        yield (
            share >= _LEAST_SHARE,
            f"{ours}: {share:.2f} of the speed of {theirs}, at least {_LEAST_SHARE}",
        )
    few = median(seconds[names[-1]])
    yield few < _MOST_SECONDS, f"{names[-1]}: {few:.2f} s < {_MOST_SECONDS} s"
    yield max(memory) < _MOST_MEGABYTES, f"peak: {max(memory):.0f} MB < {_MOST_MEGABYTES} MB"


def cp(source: Path, target: Path) -> None:
    """What costs least: the system's own copy, into a new file."""
    target.unlink(missing_ok=True)
    subprocess.run(["cp", source, target], check=True)


def hashing_copy(source: Path, target: Path) -> None:
    """What a plain loop does: read, hash and write a block at a time."""
    digest = hashlib.sha256()
    with source.open("rb") as reader, target.open("wb") as writer:
        while block := reader.read(_BLOCK):
            digest.update(block)
            writer.write(block)


def orjson_copy(source: Path, target: Path) -> None:
    """What a plain loop does: read and write each record with orjson."""
    with source.open("rb") as reader, target.open("wb") as writer:
        for line in reader:
            writer.write(orjson.dumps(orjson.loads(line)) + b"\n")


def kinds(given: Namespace) -> Claims:
    """Each kind that needs no other text, in a corpus of few frequent and many rare words."""
    draw = random.Random(0)
    words = ["".join(draw.choices(_SYLLABLES, k=3)) for _ in range(50_000)]
    lines = [
        " ".join(words[int(len(words) * draw.random() ** 4)] for _ in range(draw.randint(8, 30)))
        for _ in range(20_000)
    ]
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        here = Path(name)
        block = "".join(f"{line}\n" for line in lines)
        few, corpus = (
            filled(here / "few.txt", block, 0.1),
            filled(here / "corpus.txt", block, given.megabytes / 5),
        )

        def inserted(kind: str, source: Path = corpus) -> None:
            shutil.rmtree(here / "out", ignore_errors=True)
            settings = RunSettings(
                kinds=(kind,), canaries=50, repetitions=(1, 4, 16), controls=10, seed=0
            )
            insert_corpus([source], out=here / "out", settings=settings)

        inserted("uniform", few)
        seconds = in_turn({kind: timed(partial(inserted, kind)) for kind in _KINDS}, given.rounds)
    medians(seconds)
    for kind in _KINDS[1:]:
        times = ratio(seconds[kind], seconds["uniform"])
        yield times <= _MOST_OF_UNIFORM, f"{kind}: {times:.2f} times uniform, <= {_MOST_OF_UNIFORM}"


PARTS = {"speed": speed, "kinds": kinds}
