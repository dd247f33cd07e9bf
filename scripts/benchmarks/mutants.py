"""How many planted faults a room's own tests find, with the interval of Clopper and Pearson.

Faults are drawn from the syntax trees of a room, equally many of each sort: a comparison flipped, a
number one off, a condition denied, the first two arguments swapped, a term dropped; none in the
words of an error. Each is planted alone in a copy of the tree, and those of the room's tests run
that pass its line, quick files first, until one fails. What no test passes survives without a run.
Records are what is read and written; tables make words of them.

A draw goes by the hash of the seed and of what is changed into what: versions that share a
statement share its faults, so that they are held against each other fault by fault.
"""

import argparse
import ast
import hashlib
import importlib
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from coverage import CoverageData
from scipy.stats import binomtest

ROOMS = ("statistics", "scoring", "studies")
APART = "lmexposure/studies/exposure/charts"
BESIDE = {"studies": ("tests/exposure",)}  # more tests of a room
BUDGET = 30.0  # seconds of tests a fault, by what they took when coverage was taken
MOST_CPU, MOST_WALL = 120, 600  # seconds; a fault that takes more is timed out, which is found
SORTS = ("comparison", "constant", "condition", "arguments", "term")
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    old: new
    for pair in (
        *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq)),
        *((ast.Is, ast.IsNot), (ast.In, ast.NotIn)),
    )
    for old, new in (pair, pair[::-1])
}
SYMMETRIC = {"min", "max", "np.minimum", "np.maximum"}
UNKNOWN = 0.1  # seconds of a test that is not among the slow ones that pytest names


@dataclass(frozen=True)
class Fault:
    """One change of one node of a file's syntax tree."""

    path: str  # from the root of the tree
    node: int  # its number in the order of `places`
    variant: int  # which of its changes
    sort: str
    lines: tuple[int, ...]  # those of the node, and where its statement begins
    on_import: bool  # outside of every function's body
    before: str  # the statement, without those in it
    after: str

    @property
    def room(self) -> str:
        return self.path.split("/")[1]

    def __str__(self) -> str:
        pairs = enumerate(zip(self.before, self.after, strict=False))
        start = max(0, next((k for k, (old, new) in pairs if old != new), 0) - 50)
        old, new = (text[start : start + 90] for text in (self.before, self.after))
        return f"{self.path}:{self.lines[0]}  {self.sort}\n    - {old}\n    + {new}"


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """(sort, what takes its place) of each fault that a node can have."""
    match node:
        case ast.Compare(left, ops, comparators):
            for k, op in enumerate(ops):
                flipped = [*ops[:k], FLIPPED[type(op)](), *ops[k + 1 :]]
                yield "comparison", ast.Compare(left, flipped, comparators)
        case ast.Constant(value) if type(value) in (int, float):
            yield from (("constant", ast.Constant(value + step)) for step in (1, -1))
        case ast.If(test) | ast.IfExp(test) if ast.unparse(test) != "TYPE_CHECKING":
            denied = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
            other = copied(node)
            other.test = test.operand if denied else ast.UnaryOp(ast.Not(), test)
            yield "condition", other
        case ast.Call(function, [first, second, *others], keywords):
            starred = any(isinstance(argument, ast.Starred) for argument in (first, second))
            same = ast.dump(first) == ast.dump(second) or ast.unparse(function) in SYMMETRIC
            if not starred and not same:
                yield "arguments", ast.Call(function, [second, first, *others], keywords)
        case ast.BinOp(left, ast.Add() | ast.Mult(), right):
            yield from (("term", term) for term in (left, right))
        case ast.BinOp(left, ast.Sub(), right):
            yield from (("term", term) for term in (left, ast.UnaryOp(ast.USub(), right)))


def copied(node: Any) -> Any:
    copy = type(node)()
    copy.__dict__ = dict(node.__dict__)
    return copy


def become(node: Any, other: Any) -> None:
    node.__class__, node.__dict__ = other.__class__, dict(other.__dict__)


def places(
    node: ast.AST, statement: Any = None, scope: str = "", on_import: bool = True
) -> Iterator[tuple[Any, Any, str, bool]]:
    """(node, its statement, the names around it, whether it runs on import) below a node."""
    delayed = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise):
                around = child if isinstance(child, ast.stmt) else statement
                names = f"{scope}.{child.name}" if hasattr(child, "name") else scope
                place = around, names, on_import and not (delayed and field == "body")
                yield child, *place
                yield from places(child, *place)


def head(statement: Any) -> str:
    """A statement without the statements in it."""
    short = copied(statement)
    for name in ("body", "orelse", "finalbody"):
        if hasattr(short, name):
            setattr(short, name, [ast.Pass()] if name == "body" else [])
    return ast.unparse(short).removesuffix("\n    pass")


def faults(root: Path, path: str) -> Iterator[tuple[str, Fault]]:
    """(what it is drawn by, the fault) of all that can be planted in a file."""
    tree = ast.parse((root / path).read_text(encoding="utf-8"))
    for number, (node, statement, scope, on_import) in enumerate(places(tree)):
        old, before = copied(node), ""
        for variant, (sort, changed) in enumerate(list(changes(node))):
            before = before or head(statement)
            become(node, changed)
            after = head(statement)
            become(node, old)
            within = getattr(statement, "body", None)
            last = within[0].lineno - 1 if within else statement.end_lineno
            place = node.test if isinstance(node, ast.If) else node
            lines = {*range(statement.lineno, last + 1), *range(place.lineno, place.end_lineno + 1)}
            texts = (before, after)
            fault = Fault(path, number, variant, sort, tuple(sorted(lines)), on_import, *texts)
            yield "\n".join((scope, sort, *texts)), fault


def drawn(root: Path, room: str, number: int, seed: int) -> list[Fault]:
    """A room's faults, equally many of each sort as far as there are so many."""
    alike: Counter[str] = Counter()
    hashed = []
    for file in sorted((root / "lmexposure" / room).rglob("*.py")):
        path = file.relative_to(root).as_posix()
        for text, fault in () if path.startswith(APART) else faults(root, path):
            alike[text] += 1
            key = f"{seed}\n{room}\n{alike[text]}\n{text}".encode()
            hashed.append((hashlib.sha256(key).digest(), fault))
    of_sort: Counter[str] = Counter()
    first, others = [], []
    for _, fault in sorted(hashed, key=lambda pair: pair[0]):
        of_sort[fault.sort] += 1
        (first if of_sort[fault.sort] <= number // len(SORTS) else others).append(fault)
    return (first + others)[:number]


def planted(root: Path, fault: Fault) -> str:
    """The file's source with the fault."""
    tree = ast.parse((root / fault.path).read_text(encoding="utf-8"))
    node = list(places(tree))[fault.node][0]
    become(node, list(changes(node))[fault.variant][1])
    return ast.unparse(ast.fix_missing_locations(tree))


class Tests:
    """Which tests pass which line, by a file of coverage, and how long each takes.

    The seconds are those of pytest's `--durations`, in the file beside it: FILE-durations.txt.
    """

    def __init__(self, file: Path) -> None:
        self.data = CoverageData(str(file))
        self.data.read()
        names = self.data.measured_files()
        self.files = {f"lmexposure/{name.rpartition('/lmexposure/')[2]}": name for name in names}
        told = Path(f"{file}-durations.txt").read_text(encoding="utf-8")
        self.seconds: Counter[str] = Counter()
        for seconds, test in re.findall(r"^([\d.]+)s (?:call|setup|teardown) +(.*\S)", told, re.M):
            self.seconds[test] += float(seconds)

    def of(self, fault: Fault) -> tuple[list[str], int]:
        """The room's tests to run, and how many more there are than the budget has time for.

        Those that pass the line. Where it runs on import, or in a fixture that tests may share, one
        of them is seen to pass it: then the file's other tests follow, and the room's.
        """
        room = tuple(f"{folder}/" for folder in folders_of(fault.room))
        name = self.files.get(fault.path)
        passed = self.data.contexts_by_lineno(name) if name else {}
        here = {test for line in fault.lines for test in passed.get(line, ())}
        ranks = [here]
        if fault.on_import or any(test.endswith("|setup") for test in here):
            ranks += [{test for line in passed.values() for test in line}]
            ranks += [self.data.measured_contexts()]
        chosen: dict[str, None] = {}
        spent = 0.0
        for rank in ranks:
            tests = {test.rpartition("|")[0] for test in rank if test.startswith(room)}
            of_file: Counter[str] = Counter()
            for test in tests - chosen.keys():
                of_file[test.partition("::")[0]] += self.seconds[test] + UNKNOWN
            order = [
                (
                    of_file[test.partition("::")[0]],
                    test.partition("::")[0],
                    self.seconds[test],
                    test,
                )
                for test in tests - chosen.keys()
            ]
            for _, _, seconds, test in sorted(order):
                if not chosen or spent + seconds <= BUDGET:
                    spent += seconds + UNKNOWN
                    chosen[test] = None
        return list(chosen), len(tests - chosen.keys())


def folders_of(room: str) -> list[str]:
    """Where the tests of a room are."""
    return [f"tests/{room}", f"lmexposure/{room}", *BESIDE.get(room, ())]


def pytest_in(tree: Path, options: list[str], log: Path, most_cpu: int = 0) -> int:
    """The id of a process that runs pytest in a tree."""
    process = os.fork()
    if process:
        return process
    code = 3
    try:
        os.setsid()
        os.chdir(tree)
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        if most_cpu:
            resource.setrlimit(resource.RLIMIT_CPU, (most_cpu, most_cpu))
            sys.dont_write_bytecode = True
        os.environ["PYTHONPATH"] = sys.path[0] = str(tree)
        usual = ["-q", "-p", "no:cacheprovider", f"--basetemp={tree}.tmp", f"--rootdir={tree}"]
        usual += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is loaded already
        code = int(pytest.main([*usual, *options]))
        Path(f"{log}.modules").write_text("\n".join(sys.modules), encoding="utf-8")
    finally:
        os._exit(code)


def fails(tree: Path, options: list[str], log: Path) -> bool:
    return os.waitpid(pytest_in(tree, options, log), 0)[1] != 0


def coverage_of(tree: Path, rooms: list[str], file: Path) -> None:
    """Run the rooms' tests once."""
    settings = tree / ".coveragerc"
    settings.write_text(f"[run]\nsource = lmexposure\ndata_file = {file.resolve()}\n")
    options = [f"--cov-config={settings}", "--cov", "--cov-context=test", "--cov-report="]
    folders = [folder for room in rooms for folder in folders_of(room)]
    told = Path(f"{file}-durations.txt").resolve()
    if fails(tree, [*options, "--durations=0", "-vv", *folders], told):
        sys.exit(f"mutants: tests fail without a fault: {told}")


def load_once(tree: Path, tests: list[str], scratch: Path) -> None:
    """Collect the tests, and load here what of others they import: each fault's process has it."""
    named, log = scratch / "tests", scratch / "collected"
    named.write_text("\n".join(tests), encoding="utf-8")
    if fails(tree, ["--collect-only", f"@{named}"], log):
        sys.exit(f"mutants: tests that coverage names are gone: {log.read_text('utf-8')[-2000:]}")
    for name in Path(f"{log}.modules").read_text("utf-8").split():
        if re.match(r"(torch|transformers|accelerate|datasets|pandas|scipy|matplotlib)\b", name):
            with suppress(Exception):
                importlib.import_module(name)


def judged(root: Path, plan: dict[Fault, list[str]], jobs: int) -> dict[Fault, str]:
    """What became of each fault."""
    free = [copy_of(root, root.with_name(f"tree{number}")) for number in range(jobs)]
    waiting = list(plan)[::-1]
    running: dict[int, tuple[Fault, Path, float]] = {}
    words: dict[Fault, str] = {}
    while waiting or running:
        while free and waiting:
            fault, tree = waiting.pop(), free.pop()
            (tree / fault.path).write_text(planted(root, fault), encoding="utf-8")
            Path(f"{tree}.tests").write_text("\n".join(plan[fault]), encoding="utf-8")
            options = ["-x", f"@{tree}.tests"]
            process = pytest_in(tree, options, Path(f"{tree}.log"), MOST_CPU)
            running[process] = fault, tree, time.monotonic()
        time.sleep(0.05)
        for process, (fault, tree, begun) in list(running.items()):
            seconds = time.monotonic() - begun
            if seconds > MOST_WALL:
                os.killpg(process, signal.SIGKILL)
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                del running[process]
                free.append(tree)
                # With its old time: what was compiled from it holds again.
                shutil.copy2(root / fault.path, tree / fault.path)
                code = os.waitstatus_to_exitcode(status)
                words[fault] = "timed out" if code < 0 else "killed" if code else "survived"
                log = Path(f"{tree}.log").read_text("utf-8", errors="replace")
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", log, re.M)
                by = failed[1] if failed else f"{len(plan[fault])} tests"
                print(f"{words[fault]}, {seconds:.0f} s, {by}: {fault}", file=sys.stderr)
    return words


def copy_of(root: Path, place: Path) -> Path:
    apart = shutil.ignore_patterns(".git", ".hypothesis", "runs", ".mypy_cache")
    return Path(shutil.copytree(root, place, symlinks=True, ignore=apart))


def show(faults: list[Fault], words: dict[Fault, str], cut: set[Fault]) -> None:
    print("room         faults  killed  timed out  survived  rate and its 95 % interval")
    for room in (*dict.fromkeys(fault.room for fault in faults), "all"):
        counts = Counter(words.get(fault, "") for fault in faults if room in (fault.room, "all"))
        survived, number = counts["survived"] + counts[""], counts.total()
        rate = binomtest(number - survived, number)
        low, high = rate.proportion_ci(0.95, "exact")
        print(
            f"{room:12}{number:7}{counts['killed']:8}{counts['timed out']:11}{survived:10}"
            f"  {rate.statistic:.1%}, {low:.1%} to {high:.1%}; no test passes {counts['']}"
        )
    print("\nsurvived:")
    for fault in faults:
        if words.get(fault, "survived") == "survived":
            why = "" if fault in words else ": no test passes it"
            print(f"{fault}{': not all tests were run' if fault in cut else why}")


def main() -> None:
    usual = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=usual)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--faults", type=int, default=200, help="equally many of each room")
    parser.add_argument("--rooms", nargs="+", default=list(ROOMS), metavar="ROOM")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--contexts", type=Path, help="a coverage file; made where there is none")
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    root, number = asked.root.resolve(), asked.faults // len(asked.rooms)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        scratch = Path(folder)
        pristine = copy_of(root, scratch / "pristine")
        contexts = asked.contexts or scratch / "coverage"
        if not contexts.exists():
            coverage_of(pristine, asked.rooms, contexts)
        faults = [f for room in asked.rooms for f in drawn(root, room, number, asked.seed)]
        tests = Tests(contexts)
        plan = {fault: tests.of(fault) for fault in faults}
        named = dict.fromkeys(test for chosen, _ in plan.values() for test in chosen)
        load_once(pristine, list(named), scratch)
        run = {fault: chosen for fault, (chosen, _) in plan.items() if chosen}
        words = judged(pristine, run, asked.jobs)
    show(faults, words, {fault for fault, (_, more) in plan.items() if more})


if __name__ == "__main__":
    main()
