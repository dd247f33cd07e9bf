"""Which modules an insertion or a measurement passes: each is a file that a reader must open.

A module counts where a function of its own ran. What runs at import does not count, nor does code
that is in no file, such as the `__init__` of a dataclass. The work is the second of its kind, so
that what is made once per process (imports, the shipped formats) is not in it:

* insert: one text file, by `insert_files`;
* measure: a checkpoint of the tests, a tiny LSTM, by `measure` with a directory for the result.

The exit code is 1 where there are more modules than the target.
"""

import argparse
import inspect
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import lmexposure
from lmexposure import MeasureSettings, Plan, insert_files, measure

_PACKAGE = Path(lmexposure.__file__).parent
_MEASURED = _PACKAGE.parent / "tests" / "golden" / "data" / "measured" / "fixed"
_SMALL = MeasureSettings(references=40, draws=1_000, guesses=20, budget_steps=20_000, bootstraps=39)


def insertion(here: Path) -> None:
    corpus = here / "corpus.txt"
    corpus.write_text("".join(f"document {number}\n" for number in range(1000)), "utf-8")
    insert_files(corpus, here, Plan(formats=["pin"]))


def measurement(here: Path) -> None:
    measure(_MEASURED / "model", _MEASURED / "manifest.json", out=here, settings=_SMALL)


# What is done -> by which function, and the most modules that it is meant to pass.
_WORK: dict[str, tuple[Callable[[Path], None], int]] = {
    "insert": (insertion, 12),
    "measure": (measurement, 45),
}


def main() -> int:
    arguments = parse()
    work, most = _WORK[arguments.work]
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        work(Path(first))
        with traced() as codes:
            work(Path(second))
    functions = by_module(codes)
    for module, names in functions.items():
        print(f"{len(names):4} {module}" + (f": {', '.join(names)}" if arguments.names else ""))
    rooms = Counter("top" if name.count(".") == 1 else name.split(".")[1] for name in functions)
    print("modules by room: " + ", ".join(f"{room} {n}" for room, n in rooms.most_common()))
    total = sum(map(len, functions.values()))
    print(f"{len(functions)} modules, {total} functions; the target is {most} modules")
    return int(len(functions) > most)


@contextmanager
def traced() -> Iterator[set[CodeType]]:
    """The code of whatever Python function is called inside the block, in any thread."""
    codes: set[CodeType] = set()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield codes
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def by_module(codes: set[CodeType]) -> dict[str, list[str]]:
    """The functions of this package, by module; a comprehension is of the function around it."""
    found: dict[str, list[str]] = defaultdict(list)
    for code in codes:
        path = Path(code.co_filename)
        optimized = code.co_flags & inspect.CO_OPTIMIZED  # neither a module nor the body of a class
        if (
            optimized
            and path.is_relative_to(_PACKAGE)
            and not code.co_name.endswith(("comp>", "expr>"))
        ):
            module = path.relative_to(_PACKAGE.parent).with_suffix("")
            found[".".join(module.parts)].append(code.co_qualname)
    return {module: sorted(found[module]) for module in sorted(found)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=_WORK, help="what is done")
    parser.add_argument("--names", action="store_true", help="also name the functions")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
