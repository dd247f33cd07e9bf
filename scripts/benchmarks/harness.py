"""What all benchmarks share: sides measured in turn, processes, and claims held or missed.

A benchmark is a module beside this one. The first line of its docstring is what the list says of
it. Its PARTS are functions by name that print what they measure and yield their claims; ARGUMENTS
has what they can be given: a type where there must be a value, else the default.
"""

import argparse
import ast
import importlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

from lmexposure._style import short
from lmexposure.cli.console import say

__all__ = ["Claim", "Claims", "Namespace", "Spent", "all_cores", "filled", "in_a_process"]
__all__ += ["in_turn", "medians", "ratio", "spent", "timed"]

Value = TypeVar("Value")
Claim = tuple[bool, str]  # whether it holds, and what is claimed
Claims = Iterator[Claim]
Part = Callable[[Namespace], Claims]
_HERE = Path(__file__).parent
_OTHERS = ("harness", "mutants")
_MOST = 125  # above it an exit code means something else


def main() -> int:
    """Run the benchmark that is named; how many claims were missed."""
    told = {
        path.stem: lines[0]
        for path in sorted(_HERE.glob("*.py"))
        if path.stem not in _OTHERS and (lines := _docstring(path))
    }
    if len(sys.argv) < 2 or sys.argv[1] not in told:
        for name, line in told.items():
            say(f"{name:12} {line}")
        return int(len(sys.argv) > 1)
    name = sys.argv.pop(1)
    module = importlib.import_module(name)
    if not hasattr(module, "PARTS"):
        return int(module.main())
    given = _parsed(name, module)
    parts: Mapping[str, Part] = module.PARTS
    missed = 0
    for part in parts.values() if given.part == "all" else [parts[given.part]]:
        for held, claim in part(given):
            say(f"{'reached' if held else 'MISSED '}  {claim}")
            missed += not held
    return min(missed, _MOST)


def _docstring(path: Path) -> list[str]:
    """Its lines, where a module is a benchmark."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {target.id for node in tree.body for target in ast.walk(node) if _is_set(target)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return (
        (ast.get_docstring(tree) or "").split("\n")
        if {"PARTS", "main"} & (names | functions)
        else []
    )


def _is_set(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _parsed(name: str, module: Any) -> Namespace:
    parser = argparse.ArgumentParser(
        f"scripts/benchmark {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if len(module.PARTS) > 1:
        parser.add_argument("part", choices=[*module.PARTS, "all"])
    else:
        parser.set_defaults(part="all")
    for key, value in getattr(module, "ARGUMENTS", {}).items():
        if isinstance(value, type):
            parser.add_argument(key, type=value)
        elif isinstance(value, bool):
            parser.add_argument(f"--{key}", action="store_true")
        elif isinstance(value, tuple):
            parser.add_argument(f"--{key}", nargs="+", choices=value, default=value)
        else:
            parser.add_argument(f"--{key}", type=type(value), default=value)
    return parser.parse_args()


def in_turn(sides: Mapping[str, Callable[[], Value]], rounds: int) -> dict[str, list[Value]]:
    """What each side gives in each round, forth and back: a slow machine is slow for all."""
    given: dict[str, list[Value]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            given[name].append(sides[name]())
    return given


def timed(
    run: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """A side that gives its seconds."""

    def once() -> float:
        begun = clock()
        run()
        return clock() - begun

    return once


def ratio(these: Sequence[float], those: Sequence[float]) -> float:
    """The median of the ratios by round: both sides of a round met the same machine."""
    return median(one / other for one, other in zip(these, those, strict=True))


def medians(given: Mapping[str, Sequence[float]], unit: str = "s") -> None:
    """Print each side's median and rounds."""
    for name, values in given.items():
        rounds = ", ".join(map(short, values))
        say(f"{name:40} {short(median(values)):>10} {unit}   by round: {rounds}")


class Spent(NamedTuple):
    """What a process took: seconds, of the processor too, and megabytes; and what it printed."""

    wall: float
    processor: float
    megabytes: float
    out: str


def spent(*words: object, directory: Path | None = None, code: int = 0) -> Spent:
    """What a fresh Python with these words takes, its imports included; it ends with this code."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            [sys.executable, *map(str, words)], cwd=directory, stdout=out, stderr=out
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read()
    if process.returncode != code:
        sys.exit(f"{' '.join(map(str, words))[:200]} ended with {process.returncode}: {said}")
    return Spent(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said)


def in_a_process(function: Callable[..., Value], *given: object) -> Value:
    """What a function gives in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, given)


def all_cores() -> None:
    """`scripts/benchmark` gives a process one thread; here it has all."""
    import torch

    os.environ.pop("OMP_NUM_THREADS", None)
    torch.set_num_threads(os.cpu_count() or 1)


def filled(path: Path, block: str, megabytes: float) -> Path:
    """A file of this size, of one block again and again."""
    data = block.encode()
    with path.open("wb") as stream:
        while stream.tell() < megabytes * 1e6:
            stream.write(data)
    return path


if __name__ == "__main__":
    sys.exit(main())
