"""Which slow tests run: all, or those of what was changed, as `scripts/test` asks.

LMEXPOSURE_SLOW is "all" (also where it is not set) or "changed": then a test that is marked slow
runs where its file, or a module of the room that its folder is named after, differs from upstream
or is not committed; of tests/test_docs.py where a page does.
"""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = (
    ["git", "diff", "--name-only", "--merge-base", "@{upstream}"],
    ["git", "diff", "--name-only", "HEAD"],
    ["git", "ls-files", "--others", "--exclude-standard"],
)


def all_are_wanted() -> bool:
    """Whether LMEXPOSURE_SLOW says so; a slip of the pen is no choice."""
    choice = os.environ.get("LMEXPOSURE_SLOW", "all")
    if choice not in ("all", "changed"):
        raise ValueError(f"LMEXPOSURE_SLOW is {choice!r}, but must be all or changed")
    return choice == "all"


def changed_files(root: Path = ROOT) -> set[str]:
    """Paths from the root; none where it is no clone."""
    paths: set[str] = set()
    for command in COMMANDS:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            paths |= set(done.stdout.splitlines())
    return paths


def is_touched(test: str, changed: set[str]) -> bool:
    """Whether this file of tests, or something of its room, is among the changed paths."""
    folder, _, name = test.removeprefix("tests/").rpartition("/")
    top = name.removeprefix("test_").removesuffix(".py")
    room = f"lmexposure/{folder}/" if folder else f"{top}/"
    return test in changed or any(path.startswith(room) for path in changed)
