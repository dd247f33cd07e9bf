"""Damage between the steps of a run: each of its files cut short, or with one bit flipped.

A small run is stopped after each step. Every file that it left is damaged in a copy, the same
command is given again, and the end is held against that of a run that was left alone. A finished
run is also checked and reported. Then runs are killed at file events, and finished. Each state ends
in one of four ways:

    same        the same numbers: rebuilt, or nothing depends on the file
    refused     exit code 3 and the file's name, where the file cannot be made again
    curve       only the drawn curve of the training differs
    WRONG       other numbers with exit code 0, a traceback, a refusal that does not name the file,
                or one of a file that could be made again

The exit code counts the wrong ones.
"""

import argparse
import contextlib
import io
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from corpora import write_corpus
from hashes import sha256_tree

from lmexposure._files import sha256_file
from lmexposure.canaries import Manifest
from lmexposure.cli import measure, run
from lmexposure.cli.console import print_table, say
from lmexposure.cli.entry import main as command_line
from lmexposure.records import Result

_SETTINGS = (
    "--format pin --canaries 3 --repetitions 1,8 --controls 4 --layers 1 --units 16 --epochs 4 "
    "--references 60 --revealed 1 --budget-steps 2000 --draws 200 --guesses 20 --seed 5"
)
# What only the person has: made again, it would be another.
_KEPT = ("manifest.json", "result.json")
_SECONDS = 300  # of one command, at most


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code (negative: the signal) and what it printed."""

    code: int
    out: str
    err: str


def main() -> int:
    arguments = parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(dir=arguments.out))
    lab = Lab(home)
    rows, killed = [], []
    for state in lab.damaged_states(arguments.every):
        rows.append(state)
        if arguments.list or state[-1].startswith("WRONG"):
            say("  ".join(state))
    table(rows)
    for line in lab.kills(arguments.kills):
        killed.append(line)
        if arguments.list or "WRONG" in line:
            say(line)
    wrong = sum(row[-1].startswith("WRONG") for row in rows)
    bad = sum("WRONG" in line for line in killed)
    shutil.rmtree(home)
    say(f"{len(rows)} damaged states, {wrong} wrong; {len(killed)} kills, {bad} wrong")
    return wrong + bad


def table(rows: list[tuple[str, ...]]) -> None:
    """How the states ended, by the step after which the run was stopped."""
    kinds = ("same", "refused", "curve", "WRONG")
    counts = Counter((stage, end.split(":")[0]) for stage, *_, end in rows)
    stages = list(dict.fromkeys(stage for stage, *_ in rows))
    lines = [[stage, *(str(counts[stage, kind]) for kind in kinds)] for stage in stages]
    print_table(["after", *kinds], lines, right=(1, 2, 3, 4))


class Lab:
    """A run that was left alone, those that were stopped, and copies to damage."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._corpus = write_corpus(out / "corpus.txt", 300)
        self._whole = out / "whole" / "run"
        self._copy = out / "copy" / "run"
        self._warm_up()
        ended = self._run(self._whole)
        assert ended.code == 0, ended.err
        self._numbers = numbers(self._whole)
        self._said = {name: self._judged(self._whole, name) for name in ("check", "report")}

    def _warm_up(self) -> None:
        """A run in this process: what it imports on the way, no fork has to import."""
        words = ["run", str(self._corpus), "--out", str(self._out / "warm"), *_SETTINGS.split()]
        sys.argv = ["lmexposure", *words]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            command_line()

    def damaged_states(self, every: int) -> Iterator[tuple[str, ...]]:
        """(stage, file, damage, command, end) of every state, or of some: the first of each n."""
        for stage, path, home, what in islice(self._damages(), None, None, every):
            self._copy_of(home)
            _DAMAGES[what](self._copy / path)
            where = (stage, path.as_posix(), what)
            if stage == "finished":
                for name in ("check", "report"):
                    yield (*where, name, self._judge(path, name))
            yield (*where, "run", self._resume(path))

    def _damages(self) -> Iterator[tuple[str, Path, Path, str]]:
        for stage, home in self._stages():
            for path in sorted(p.relative_to(home) for p in home.rglob("*") if p.is_file()):
                yield from ((stage, path, home, what) for what in _DAMAGES)

    def kills(self, number: int) -> Iterator[str]:
        """A run killed at file events, spread over it and dense at its end, then finished."""
        counted = self._out / "counted" / "run"
        self._run(counted, watch=Events(counted, None, self._out / "n"))
        events = int((self._out / "n").read_text())
        last = [events - i for i in range(number // 2)]
        spread = [1 + events * i // (number - len(last)) for i in range(number - len(last))]
        for at in sorted({*last, *spread}):
            home = self._out / "killed" / "run"
            shutil.rmtree(home.parent, ignore_errors=True)
            killed = self._run(home, watch=Events(home, at))
            again = self._run(home)
            yield f"killed at event {at} of {events} ({killed.code}): {self._finished(home, again)}"

    def _finished(self, home: Path, ended: Ended) -> str:
        if ended.code:
            return f"WRONG: exit code {ended.code}: {ended.err.strip()[-200:]}"
        if numbers(home) != self._numbers:
            return "WRONG: other numbers"
        names = {p.relative_to(home).as_posix() for p in home.rglob("*")}
        whole = {p.relative_to(self._whole).as_posix() for p in self._whole.rglob("*")}
        return (
            f"WRONG: left {sorted(names - whole)}" if names != whole else "same bytes, no rubbish"
        )

    def _stages(self) -> Iterator[tuple[str, Path]]:
        """Runs that were stopped when a file had got its name."""
        stops = {
            "insert": Stop("os.rename", "manifest.json"),
            "half a training": Stop("os.rename", "checkpoint.pt", times=2),
            "all steps of a training": Stop("os.mkdir", ".model.partial"),
            "training": Stop("os.rename", "run.json", times=2),
            "half a measurement": Stop("os.rename", ".search.json"),
            "all of a measurement": Stop("os.rename", "scores.parquet"),
        }
        for stage, stop in stops.items():
            home = self._out / stage.replace(" ", "_") / "run"
            ended = self._run(home, watch=stop)
            assert ended.code == -signal.SIGKILL, ended
            yield stage, home
        yield "finished", self._whole

    def _copy_of(self, home: Path) -> None:
        shutil.rmtree(self._copy.parent, ignore_errors=True)
        shutil.copytree(home, self._copy)

    def _run(self, home: Path, watch: "Callable[[str, Any], None] | None" = None) -> Ended:
        words = ["run", str(self._corpus), "--out", str(home), *_SETTINGS.split()]
        return self._command(words, watch)

    def _resume(self, path: Path) -> str:
        """The same command: at once, or after one refusal, the numbers of the run left alone."""
        ended = self._run(self._copy)
        if "Traceback" in ended.err:
            return f"WRONG: traceback: {ended.err.strip()[-160:]}"
        if ended.code == 0:
            return "same" if numbers(self._copy) == self._numbers else "WRONG: other numbers"
        again = self._run(self._copy)
        if path.name in _KEPT and _named(ended, path):
            return "refused"
        if again.code == 0 and numbers(self._copy) == self._numbers and _named(ended, path):
            return "refused"
        return f"WRONG: exit code {ended.code}: {ended.err.strip()[-200:]}"

    def _judge(self, path: Path, name: str) -> str:
        ended, files = self._judged(self._copy, name)
        if "Traceback" in ended.err:
            return f"WRONG: traceback: {ended.err.strip()[-160:]}"
        undamaged, whole = self._said[name]
        if (ended.code, ended.out, files) == (undamaged.code, undamaged.out, whole):
            return "same"
        if ended.code == 3 and _named(ended, path):
            return "refused"
        if path.name == "metrics.jsonl" and ended.code == undamaged.code:
            return "curve"
        return f"WRONG: exit code {ended.code}: {ended.err.strip()[-200:] or 'other words'}"

    def _judged(self, home: Path, name: str) -> tuple[Ended, list[str]]:
        """A verdict, or the files of a report."""
        if name == "check":
            return self._command(["check", str(home)]), []
        there = self._out / "report"
        shutil.rmtree(there, ignore_errors=True)
        formats = [word for form in ("md", "csv", "json") for word in ("--format", form)]
        ended = self._command(["report", str(home), "--out", str(there), *formats])
        files = sorted(there.iterdir()) if there.is_dir() else []
        return ended, [sha256_file(path) for path in files]

    def _command(
        self, words: list[str], watch: "Callable[[str, Any], None] | None" = None
    ) -> Ended:
        """The command line in a fork: nothing is imported twice."""
        told = self._out / "told"
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            _become(words, told, watch)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return Ended(code, *(told.with_suffix(s).read_text() for s in (".out", ".err")))


def _become(words: list[str], told: Path, watch: "Callable[[str, Any], None] | None") -> None:
    """The rest of a forked child's life."""
    for number, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(told.with_suffix(suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    signal.alarm(_SECONDS)
    sys.argv = ["lmexposure", *words]
    run.write_and_say = measure.write_and_say = lambda out: (
        None
    )  # no state depends on a report's charts
    if watch is not None:
        sys.addaudithook(watch)
    code = 99
    try:
        command_line()
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    if isinstance(watch, Events):
        watch.end()
    os._exit(code)


def _named(ended: Ended, path: Path) -> bool:
    return ended.code == 3 and path.name in ended.err


class Events:
    """Counts what a process does to the files below a directory; kills it at one of them."""

    WATCHED = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")

    def __init__(self, home: Path, at: int | None, note: Path | None = None) -> None:
        self._home, self._at, self._note, self._count = str(home), at, note, 0

    def __call__(self, event: str, arguments: Any) -> None:
        if event in self.WATCHED and self._concerns(event, arguments):
            self._count += 1
            if self._count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)

    def _concerns(self, event: str, arguments: Any) -> bool:
        # What is removed with its directory is named from there on, by a descriptor.
        by_descriptor = event in ("os.remove", "os.rmdir") and arguments[-1] >= 0
        return by_descriptor or self._home in str(arguments[0])

    def end(self) -> None:
        """Write down how many events there were."""
        if self._note is not None:
            self._note.write_text(str(self._count))


class Stop:
    """Kills a process at its first file event after a name was given for the n-th time."""

    def __init__(self, event: str, suffix: str, *, times: int = 1) -> None:
        self._event, self._suffix, self._left = event, suffix, times

    def __call__(self, event: str, arguments: Any) -> None:
        if self._left == 0 and event in Events.WATCHED:
            os.kill(os.getpid(), signal.SIGKILL)
        name = arguments[event == "os.rename"] if event == self._event else ""
        self._left -= str(name).endswith(self._suffix)


def numbers(home: Path) -> tuple[Any, ...]:
    """What the files of a finished run say, apart from seconds."""
    scores = pq.read_table(home / "scores.parquet").to_pylist()
    return (
        Result.read(home / "result.json").to_dict(),
        scores,
        Manifest.read(home / "manifest.json").sha256,
        sha256_tree(home / "corpus"),
        sha256_tree(home / "model"),
    )


def _flip(place: float) -> Callable[[Path], None]:
    """One bit of the byte at this share of a file."""

    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes() or b"?")
        data[min(int(place * len(data)), len(data) - 1)] ^= 4
        path.write_bytes(data)

    return flip


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


_DAMAGES = {
    "cut": _cut,
    "bit at 2 %": _flip(0.02),
    "bit at 50 %": _flip(0.5),
    "bit at 93 %": _flip(0.93),
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--every", type=int, default=1, help="damage the first of every n only")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark_damage"))
    parser.add_argument("--list", action="store_true", help="every state, not only the wrong ones")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
