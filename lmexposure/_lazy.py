"""Faces that import the home of a name when the name is first asked for, and not before.

A face says once where its names live, as imports under `TYPE_CHECKING`, which readers, editors and
type checkers understand; `lazy_face` reads the same lines.
"""

import ast
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_face(
    package: str, face: str, older: Mapping[str, str] | None = None, older_home: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a package's `__getattr__` and `__dir__` are, so that its names are imported late.

    Source: PEP 562.

    Args:
        package: `__name__` of the package.
        face: its `__file__`, whose first `if TYPE_CHECKING:` holds `from module import name` lines
            and nothing else. No name may be the name of a module of the package: importing that
            module would take the name's place.
        older: a name of the package's module `older_names`, which is kept for one version and is
            in neither `__all__` nor `dir()` -> what to call instead.
        older_home: the module that holds the older names, where it is not the package's own.

    Returns:
        `__getattr__`, which imports a name once and keeps it in the package, or warns of an older
        one each time (DeprecationWarning); and `__dir__`.
    """
    replaced, home_of = older or {}, _homes(Path(face))

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name in replaced:
            warnings.warn(
                f"{package}.{name} goes with the next version; use {replaced[name]}",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(import_module(older_home or f"{package}.older_names"), name)
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*vars(sys.modules[package]), *home_of} - {"TYPE_CHECKING"})

    return __getattr__, __dir__


def _homes(face: Path) -> dict[str, str]:
    """Public name -> module, of the imports under the face's first `if`."""
    tree = ast.parse(face.read_text(encoding="utf-8"))
    branch = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in branch.body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module) for node in imports for name in node.names}
