"""Faces that import the home of a name when the name is first asked for, and not before.

A face names its homes twice: as imports under `TYPE_CHECKING`, for readers and type checkers, and
as a table for `lazy_face`. tests/test_house.py holds the two against each other.
"""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_face(
    room: str, homes: Mapping[str, Sequence[str]], older: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a package's `__getattr__` and `__dir__` are, so that its names are imported late.

    Source: PEP 562.

    Args:
        room: `__name__` of the package.
        homes: a module of the package, or one of ours by its whole name -> the public names that it
            gives. None of them may be the name of a module of the package: importing that module
            would take the name's place.
        older: a name of the package's module `older_names`, which is kept for one version and is
            in neither `__all__` nor `dir()` -> what to call instead.

    Returns:
        `__getattr__`, which imports a name once and keeps it in the package, or warns of an older
        one each time (DeprecationWarning); and `__dir__`.
    """
    replaced = older or {}
    whole = {home: home if home.startswith("lmexposure.") else f"{room}.{home}" for home in homes}
    home_of = {name: whole[home] for home, names in homes.items() for name in names}

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name in replaced:
            warnings.warn(
                f"{room}.{name} goes with the next version; use {replaced[name]}",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(import_module(f"{room}.older_names"), name)
        if name not in home_of:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[room], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*vars(sys.modules[room]), *home_of} - {"TYPE_CHECKING"})

    return __getattr__, __dir__
