"""The formats that ship, and the TOML files in which people keep their own."""

import difflib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from lmexposure._files import read_toml
from lmexposure.canaries.format import Format
from lmexposure.errors import FormatError

_FOLDER = "canary_formats"
_KEYS = {"name", "template", "lists", "description", "source"}  # of a file
_SMALL_BITS = 13.3  # log2 of the 10,000 references that are scored by default


@dataclass(frozen=True, kw_only=True)
class FormatCheck:
    """What the check of a format file found."""

    format: Format | None  # the format, or None when `problems` is not empty
    problems: tuple[str, ...] = ()  # why the file cannot be used
    advice: tuple[str, ...] = ()  # what would make a sound format measure better


@cache
def _shipped() -> dict[str, Format]:
    files = [file for file in _folder().iterdir() if file.name.endswith(".toml")]
    formats = [_sound(tomllib.loads(f.read_text(encoding="utf-8")), f.name) for f in files]
    return {found.name: found for found in sorted(formats, key=lambda found: found.name)}


def _folder() -> Traversable:
    """`canary_formats`: in the package where it was built, at the top of a checkout otherwise."""
    package = resources.files("lmexposure")
    built = package / _FOLDER
    return built if built.is_dir() else Path(str(package)).parent / _FOLDER


def shipped_formats() -> dict[str, Format]:
    """The formats that come with the package, by name, in alphabetical order."""
    return dict(_shipped())


def load_format(name_or_path: str | Path) -> Format:
    """A shipped format by its name, or one's own from a `.toml` file."""
    shipped = shipped_formats()
    if str(name_or_path) in shipped:
        return shipped[str(name_or_path)]
    path = Path(name_or_path)
    if path.suffix != ".toml" and not path.exists():
        near = difflib.get_close_matches(path.name.lower(), shipped, n=1)
        guess = f"did you mean {near[0]!r}? The" if near else "the"
        raise FormatError(
            f"no format {str(name_or_path)!r}; {guess} shipped ones are {', '.join(shipped)}; "
            "give the path of a .toml file to use your own"
        )
    return _from_file(path)


def check_format_file(path: str | Path) -> FormatCheck:
    """Check a format file without raising; for `lmexposure formats check`."""
    try:
        found = _from_file(Path(path))
    except FormatError as failure:
        return FormatCheck(format=None, problems=(str(failure),))
    return FormatCheck(format=found, advice=tuple(_advice(found)))


def _from_file(path: Path) -> Format:
    return _sound(read_toml(path, what="format file", error=FormatError), str(path))


def _sound(values: dict[str, Any], where: str) -> Format:
    """The format of the values of a TOML file, which errors call so."""
    unknown, missing = set(values) - _KEYS, {"name", "template"} - set(values)
    try:
        if unknown or missing:
            wrong = ", ".join(sorted(unknown or missing))
            what = "unknown" if unknown else "missing"
            raise FormatError(f"{what} keys: {wrong}; a format has {', '.join(sorted(_KEYS))}")
        return Format(**values)
    except FormatError as failure:
        raise FormatError(f"{where}: {failure}") from None


def _advice(found: Format) -> Iterator[str]:
    if not found.prefix:
        yield "no literal text before the first hole: extraction has nothing to start from"
    if found.bits < _SMALL_BITS:
        yield f"only {found.bits:.1f} bits: exposure cannot go above that"
    if found.may_nest:
        yield (
            "one fill can lie within another, so that no plan takes it: put literal text before "
            "and after lists whose entries begin or end with one another"
        )
    if not found.description:
        yield "no description: say in one line what the secret stands for"
