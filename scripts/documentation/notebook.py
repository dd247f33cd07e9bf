"""A notebook run from top to bottom, as a page with what its cells printed.

Cells run in one process and one namespace, as in Jupyter; what Jupyter would show of the last
expression of a cell is shown here. So nothing more than the package has to be installed.
"""

import ast
import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PARAMETERS = "parameters"  # tag of the cell whose values may be set from outside


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook; `tags` as Jupyter keeps them."""

    kind: str
    source: str
    tags: tuple[str, ...]


def cells_of(path: Path) -> list[Cell]:
    """The cells in order."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        Cell(
            cell["cell_type"],
            "".join(cell["source"]),
            tuple(cell.get("metadata", {}).get("tags", ())),
        )
        for cell in cells
    ]


def run(path: Path, values: Mapping[str, object] | None = None) -> Iterator[tuple[Cell, str]]:
    """Each cell with what it shows, as Markdown, once it has run in the current directory.

    Args:
        path: of the notebook.
        values: for names of the cell tagged "parameters", in place of its own.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells_of(path):
        shown = _run(cell.source, names) if cell.kind == "code" else ""
        if _PARAMETERS in cell.tags and values:
            unknown = sorted(set(values) - set(names))
            assert not unknown, f"the notebook has no {', '.join(unknown)}"
            names.update(values)
        yield cell, shown


def _run(source: str, names: dict[str, Any]) -> str:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "notebook", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "notebook", "eval"), names)
    text = printed.getvalue()
    shown = f"\n```text\n{text.rstrip()}\n```\n" if text.strip() else ""
    if value is None:
        return shown
    if hasattr(value, "_repr_html_"):
        return (
            f'{shown}\n<div class="output">\n{_without_blank_lines(value._repr_html_())}\n</div>\n'
        )
    return f"{shown}\n```text\n{value!r}\n```\n"


def _without_blank_lines(html: str) -> str:
    """In Markdown a blank line would end the HTML."""
    return "\n".join(line for line in html.splitlines() if line.strip())


def page(path: Path, values: Mapping[str, object] | None = None) -> str:
    """The notebook as Markdown."""
    parts = [
        cell.source + "\n" if cell.kind == "markdown" else f"```python\n{cell.source}\n```\n{shown}"
        for cell, shown in run(path, values)
    ]
    return "\n".join(parts)
