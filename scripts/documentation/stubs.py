"""What type checkers and editors know of the front door: its names, each call with its keywords.

stubs.py writes lmexposure/__init__.pyi; scripts/test holds it against the declarations.
"""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import GenericAlias, UnionType
from typing import Any, get_args, get_origin

ROOT = Path(__file__).parents[2]
FACE = ROOT / "lmexposure" / "__init__.py"
CALLS = ROOT / "lmexposure" / "calls.py"
STUB = FACE.with_suffix(".pyi")
_HEAD = '''"""Made by scripts/stubs from the face and from what is declared of settings."""

'''


def stub() -> str:
    """The text of the stub."""
    from lmexposure import calls

    face, source = (ast.parse(path.read_text(encoding="utf-8")) for path in (FACE, CALLS))
    branch = next(node for node in face.body if isinstance(node, ast.If))
    imports = [node for node in branch.body if isinstance(node, ast.ImportFrom)]
    made = [name.name for node in imports if node.module == calls.__name__ for name in node.names]
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
    lines = {n: f"from {module} import {n}\n" for n, module in named.items() if n in words}
    lines["Literal"] = "from typing import Literal\n"
    lines |= {room: f"from lmexposure import {room} as {room}\n" for room in rooms()}
    lines |= {
        name.name: f"from {node.module} import {name.name} as {name.name}\n"
        for node in imports
        if node.module != calls.__name__
        for name in node.names
    }
    return (
        _HEAD
        + "".join(lines.values())
        + "\n__all__: list[str]\n__version__: str\n\n"
        + "\n".join(signatures)
    )


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
            none = " | None" if told.default is None else ""
            parts.append(f"{name}: {kind}{none} = {_default(asked.default)}")
    body = "".join(f"    {part},\n" for part in parts)
    return f"def {node.name}(\n{body}) -> {_annotation(node.returns)}: ...\n"


def _annotation(node: ast.expr | None) -> str:
    """A type as source, without the quotes of one that is imported late."""
    assert node is not None
    return node.value if isinstance(node, ast.Constant) else ast.unparse(node)


def _default(value: object) -> str:
    return "..." if value is ... else repr(value)


def _words(kind: Any) -> str:
    """A type as source; a tuple is given as any sequence."""
    if get_origin(kind) is tuple:
        inner = dict.fromkeys(map(_words, (a for a in get_args(kind) if a is not ...)))
        return f"Sequence[{' | '.join(inner)}]"
    if isinstance(kind, GenericAlias | UnionType) or get_origin(kind) is not None:
        return str(kind).replace("typing.", "")
    return str(kind.__name__)


def tidy(text: str) -> str:
    """The text as ruff writes it, its imports in order."""
    for words in (["check", "--select", "I", "--fix-only"], ["format"]):
        command = [sys.executable, "-m", "ruff", *words, "--quiet", "--stdin-filename", STUB, "-"]
        text = subprocess.run(command, input=text, encoding="utf-8", check=True, stdout=-1).stdout
    return text


if __name__ == "__main__":
    STUB.write_text(tidy(stub()), encoding="utf-8")
