"""Faces that import the home of a name when the name is first asked for, and not before.

A face says once where its names live, as imports under `TYPE_CHECKING`, which readers understand;
`lazy_face` reads the same lines, and scripts/stubs makes of them what type checkers and editors
read.
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any


def lazy_face(package: str, face: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a package's `__getattr__` and `__dir__` are, so that its names are imported late.

    Source: PEP 562.
    """
    home_of = _homes(package, face)
    vars(sys.modules[package])["__all__"] = sorted(home_of)

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in home_of and name in _rooms(package):
            return import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*vars(sys.modules[package]), *home_of, *_rooms(package)} - {"TYPE_CHECKING"})

    return __getattr__, __dir__


def _rooms(package: str) -> list[str]:
    """The packages in a package."""
    return [found.name for found in iter_modules(sys.modules[package].__path__) if found.ispkg]


def _homes(package: str, face: str) -> dict[str, str]:
    """Public name -> module, of the imports under the face's first `if`."""
    try:
        # What imported the face can read it, be it in a directory or in a zip file.
        tree = ast.parse(sys.modules[package].__loader__.get_data(face))  # type: ignore[union-attr]
    except (OSError, SyntaxError, ValueError, AttributeError) as failure:
        raise ImportError(
            f"{package} cannot read its own source, {face}; install the package with its .py "
            "files: compiled ones do not suffice"
        ) from failure
    branch = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in branch.body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module) for node in imports for name in node.names}
