"""The names that people import: all are in names.txt, and their docstrings say everything."""

import dataclasses
import importlib
import inspect
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmexposure as lx
from lmexposure._settings import settings_of

ROOT = Path(__file__).parents[1]
NAMES = Path(__file__).with_name("names.txt").read_text(encoding="utf-8").split()
PAGES = "\n".join(
    path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.*")))
    if path.suffix in (".md", ".ipynb")
)
FIELDS = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "documentation" / "fields.py")))
_ENTRY = re.compile(r"^ {4}(\*{0,2}\w+(?:, \w+)*): ", re.MULTILINE)


def value_of(name: str) -> Any:
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def imported_by_the_pages() -> Iterator[str]:
    for room, names in re.findall(r"from (lmexposure\.\w+) import \(?([\w, \n]+)", PAGES):
        face = importlib.import_module(room)
        yield from (f"{room}.{name}" for name in re.findall(r"\w+", names) if name in face.__all__)


def described(docstring: str) -> set[str]:
    """The arguments that a docstring describes."""
    entries = _ENTRY.findall(docstring.partition("Args:")[2])
    return {name.lstrip("*") for names in entries for name in names.split(", ")}


def test_the_list_is_what_the_package_gives_and_the_pages_use() -> None:
    front = {f"lmexposure.{name}" for name in lx.__all__} - {"lmexposure.__version__"}
    home = {f"lmexposure.{name}": value_of(f"lmexposure.{name}") for name in lx.__all__}
    used = {name for name in imported_by_the_pages() if value_of(name) not in list(home.values())}
    assert sorted(set(NAMES)) == sorted(NAMES)
    assert front | used <= set(NAMES)
    for name in set(NAMES) - front:
        assert re.search(rf"\b{name.rpartition('.')[2]}\b", PAGES), f"no page names {name}"


def said_of(value: Any) -> tuple[set[str], set[str]]:
    """What a class or function takes, and of what of it something is said."""
    if not inspect.isclass(value) or not vars(value).get("__annotations__"):
        said = described(inspect.getdoc(value) or "")
        if "settings" in said:  # each of them says itself what it decides
            said |= getattr(value, "settings", {}).keys()
        return set(inspect.signature(value).parameters), said
    words = set(FIELDS.meanings(Path(inspect.getfile(value)))[value.__name__])
    takes = {name for name in vars(value)["__annotations__"] if name.islower() and name[0] != "_"}
    return takes, words | (set(settings_of(value)) if dataclasses.is_dataclass(value) else set())


def test_every_argument_and_field_of_them_is_described() -> None:
    unsaid = {}
    for name in NAMES:
        takes, said = said_of(value_of(name))
        if takes - said:
            unsaid[name] = takes - said
    assert unsaid == {}


def test_no_docstring_lists_fields() -> None:
    """A field is explained behind itself: a list above could name what there is no more."""
    listed = [
        path.name
        for path in sorted((ROOT / "lmexposure").rglob("*.py"))
        if re.search(r"^\s*Attributes:$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert listed == []
