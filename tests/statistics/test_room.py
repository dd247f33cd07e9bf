"""The room works without torch, and every public definition says where it comes from."""

import inspect
import re
import subprocess
import sys
import typing
from dataclasses import is_dataclass
from pathlib import Path

import lmexposure.statistics as room

# A finder at the front of sys.meta_path that refuses the libraries above this room.
_WITHOUT_TORCH = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers", "datasets", "tokenizers", "accelerate"}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
try:
    import torch
except ImportError:
    import lmexposure.statistics as room
    print(room.sampled_exposure(3.5, range(1, 17)).value.tolist())
"""


def test_the_room_works_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCH], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "[2.0]"


def test_a_reader_of_a_bound_opens_its_file_and_what_bounds_share() -> None:
    for name in ("clopper_pearson", "from_exposure", "one_run"):
        text = (Path(room.__file__).parent / "bounds" / f"{name}.py").read_text(encoding="utf-8")
        shared = set(re.findall(r"from lmexposure\.statistics\.(\S+) import", text))
        assert shared <= {"bounds.bound", "results"}


# They hold what others computed: their own sources say how.
CONTAINERS = {"Estimate", "ExposureEstimate"}
CONSTANTS = {"GUESSING", "Method", "Validity"}


def cites(value: object) -> bool:
    return "Source:" in (inspect.getdoc(value) or "")


def returned_by(function: object) -> set[type]:
    """The classes of what a function returns, those within a list, a union or a part included."""
    found, rest = set(), [typing.get_type_hints(function)["return"]]
    while rest:
        kind = rest.pop()
        rest += typing.get_args(kind)
        if inspect.isclass(kind) and kind not in found:
            found.add(kind)
            rest += typing.get_type_hints(kind).values() if is_dataclass(kind) else ()
    return found


def test_functions_cite_their_sources_and_classes_too_or_a_function_returns_them() -> None:
    members = {name: getattr(room, name) for name in room.__all__}
    functions = {name: value for name, value in members.items() if inspect.isfunction(value)}
    classes = {name: value for name, value in members.items() if inspect.isclass(value)}
    assert members.keys() - functions.keys() - classes.keys() == CONSTANTS
    assert [name for name, value in functions.items() if not cites(value)] == []
    results = set().union(*map(returned_by, functions.values()))
    others = {name for name, value in classes.items() if value not in results}
    unproven = {name for name in others if not cites(members[name])}
    assert unproven == CONTAINERS
