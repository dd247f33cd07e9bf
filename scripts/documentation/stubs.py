"""What type checkers and editors know of each face: its names; of the calls, each keyword.

stubs.py writes the __init__.pyi of the package and of its rooms; a test holds them against the
faces and the declarations.
"""

import ast
import inspect
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import GenericAlias, UnionType
from typing import Any, get_args, get_origin

ROOT = Path(__file__).parents[2]
FACE = ROOT / "lmexposure" / "__init__.py"
CALLS = ROOT / "lmexposure" / "calls.py"
_HEAD = '''"""Made by scripts/stubs of the face, and of what is declared of settings."""

'''


def stubs() -> dict[Path, str]:
    """The stub of each lazy face, as it is written."""
    faces = sorted(path for path in FACE.parent.rglob("__init__.py") if _imports(path))
    made = {path.with_suffix(".pyi"): _stub(path) for path in faces}
    return dict(zip(made, _tidy(list(made.values())), strict=True))


def _imports(face: Path) -> list[ast.ImportFrom]:
    """The imports by which a face says where its names live; none of one that is not lazy."""
    tree = ast.parse(face.read_text(encoding="utf-8"))
    branch = next((node for node in tree.body if isinstance(node, ast.If)), None)
    return [node for node in branch.body if isinstance(node, ast.ImportFrom)] if branch else []


def _stub(face: Path) -> str:
    """The text of a stub: the face's names; of the front door, its rooms and calls too."""
    from lmexposure import calls

    imports = _imports(face)
    lines = {
        name.name: f"from {node.module} import {name.name} as {name.name}\n"
        for node in imports
        if node.module != calls.__name__
        for name in node.names
    }
    if face != FACE:
        return _HEAD + "".join(lines.values()) + "\n__all__: list[str]\n"
    made = [name.name for node in imports if node.module == calls.__name__ for name in node.names]
    source = ast.parse(CALLS.read_text(encoding="utf-8"))
    functions = {node.name: node for node in source.body if isinstance(node, ast.FunctionDef)}
    types = next(node for node in source.body if isinstance(node, ast.If))
    named = {
        name.name: str(node.module)
        for node in [*types.body, *source.body]
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    signatures = [_signature(functions[name], getattr(calls, name)) for name in made]
    words = set(re.findall(r"\w+", "".join(signatures)))
    needed = {n: f"from {module} import {n}\n" for n, module in named.items() if n in words}
    needed |= {room: f"from lmexposure import {room} as {room}\n" for room in rooms()}
    lines = needed | {"Literal": "from typing import Literal\n"} | lines
    whole = [_HEAD, *lines.values(), "\n__all__: list[str]\n__version__: str\n\n", *signatures]
    return "".join(whole)


def rooms() -> list[str]:
    """The packages behind the front door."""
    return sorted(path.parent.name for path in FACE.parent.glob("*/__init__.py"))


def _signature(node: ast.FunctionDef, function: Any) -> str:
    """A function with what it declares itself, then each setting."""
    parts = [f"{arg.arg}: {_annotation(arg.annotation)}" for arg in node.args.args]
    parts.append("*")
    for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        equals = "" if default is None else f" = {ast.unparse(default)}"
        parts.append(f"{arg.arg}: {_annotation(arg.annotation)}{equals}")
    own = {arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)}
    for name, asked in inspect.signature(function).parameters.items():
        if name not in own:
            told = function.settings[name]
            kind = _words(told.kind)
            none = " | None" if told.takes_none else ""
            parts.append(f"{name}: {kind}{none} = {_default(asked.default)}")
    body = "".join(f"    {part},\n" for part in parts)
    return f"def {node.name}(\n{body}) -> {_annotation(node.returns)}: ...\n"


def _annotation(node: ast.expr | None) -> str:
    """A type as source, without the quotes of one that is imported late."""
    assert node is not None
    return node.value if isinstance(node, ast.Constant) else ast.unparse(node)


def _default(value: object) -> str:
    return "..." if repr(value).startswith("<") else repr(value)  # one in words


def _words(kind: Any) -> str:
    """A type as source; a tuple is given as any sequence."""
    if get_origin(kind) is tuple:
        inner = dict.fromkeys(map(_words, (a for a in get_args(kind) if a is not ...)))
        return f"Sequence[{' | '.join(inner)}]"
    if isinstance(kind, GenericAlias | UnionType) or get_origin(kind) is not None:
        return str(kind).replace("typing.", "")
    return str(kind.__name__)


def _tidy(texts: list[str]) -> list[str]:
    """The texts as ruff writes them, their imports in order."""
    with tempfile.TemporaryDirectory() as passing:
        paths = [Path(passing, f"{number}.pyi") for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        ruff = [sys.executable, "-m", "ruff"]
        config = ["--config", str(ROOT / "pyproject.toml"), "--quiet", passing]
        for words in (["check", "--select", "I", "--fix-only"], ["format"]):
            subprocess.run([*ruff, *words, *config], check=True)
        return [path.read_text(encoding="utf-8") for path in paths]


if __name__ == "__main__":
    for stub, text in stubs().items():
        stub.write_text(text, encoding="utf-8")
