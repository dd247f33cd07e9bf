"""Which modules an insertion of one text file passes: each is a file that a reader must open.

A module counts where a function of its own ran. What runs at import does not count, nor does code
that is in no file, such as the `__init__` of a dataclass. The insertion is the second of two, so
that what is made once per process (imports, the shipped formats) is not in it. The exit code is 1
where there are more modules than the target.
"""

import argparse
import inspect
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import lmexposure
from lmexposure import Plan, insert_files

_MOST_MODULES = 12
_PACKAGE = Path(lmexposure.__file__).parent


def main() -> int:
    arguments = parse()
    plan = Plan(formats=["pin"])
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        corpus = here / "corpus.txt"
        corpus.write_text("".join(f"document {number}\n" for number in range(1000)), "utf-8")
        insert_files(corpus, here / "first", plan)
        with traced() as codes:
            insert_files(corpus, here / "second", plan)
    functions = by_module(codes)
    for module, names in functions.items():
        print(f"{len(names):4} {module}" + (f": {', '.join(names)}" if arguments.names else ""))
    total = sum(map(len, functions.values()))
    print(f"{len(functions)} modules, {total} functions; the target is {_MOST_MODULES} modules")
    return int(len(functions) > _MOST_MODULES)


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
    parser.add_argument("--names", action="store_true", help="also name the functions")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
