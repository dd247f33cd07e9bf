"""Stages the pages of the site: what is written by hand, and what is made from what it describes.

Made are the command line's reference (from its own help), the table of settings (from their
declarations), the shipped formats, the tables of docs/schemas, and the notebook with what its cells
show. pages.py DIRECTORY [--quick]
"""

import contextlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NOTEBOOK = DOCS / "tutorials" / "notebook.ipynb"
# Small numbers for the notebook's cell of parameters: does it run at all?
SHORT: Mapping[str, object] = {"lines": 300, "steps": 3, "references": 40}
_FORMATS = "<!-- the formats that ship -->"


def stage(out: Path, *, short: bool) -> None:
    """All pages in `out`, which is made.

    Args:
        out: a new directory.
        short: the notebook with the numbers of the tests.
    """
    shutil.copytree(DOCS, out, ignore=shutil.ignore_patterns("*.ipynb"))
    shutil.copy2(NOTEBOOK, out / "tutorials")
    for name, text in generated().items():
        (out / name).write_text(text, encoding="utf-8")
    (out / "tutorials" / "notebook.md").write_text(notebook(short=short), encoding="utf-8")


def generated() -> dict[str, str]:
    """Path among the pages -> Markdown, of those that are made; the notebook is not among them."""
    return {
        "reference/command-line.md": command_line(),
        "reference/settings.md": settings(),
        "reference/formats.md": formats(),
        "reference/schemas.md": schemas(),
    }


def notebook(*, short: bool) -> str:
    """The notebook's page; it runs in a directory that goes away."""
    from notebook import page

    with tempfile.TemporaryDirectory() as passing, contextlib.chdir(passing):
        return page(NOTEBOOK, SHORT if short else None)


def command_line() -> str:
    """Each command's own help, as it is shown in a pipe."""
    from typer.main import get_command

    from lmexposure.cli.app import app

    parts = [_intro("command-line"), _help(app)]
    parts += [f"## {name}\n\n{_help(app, *name.split())}" for name in _names(get_command(app))]
    return "\n".join(parts)


def _names(group: Any, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        yield f"{before}{name}"
        if hasattr(command, "commands"):
            yield from _names(command, f"{before}{name} ")


def _help(app: Any, *words: str) -> str:
    from typer.testing import CliRunner

    every = CliRunner().invoke(app, [*words, "--help-all"], prog_name="lmexposure")
    usual = CliRunner().invoke(app, [*words, "--help"], prog_name="lmexposure")
    shown = usual if every.exit_code else every
    assert shown.exit_code == 0, shown.output
    return f"```text\n{shown.output.rstrip()}\n```\n"


def settings() -> str:
    """Of each command, every key of a settings file with its flag, its default and its range."""
    from lmexposure.cli.options import EVERY as TAKEN

    parts, shown = [_intro("settings")], dict[str, str]()
    for command in TAKEN:
        declared = TAKEN[command].settings
        flags = TAKEN[command].flags
        rows = [
            (f"`{name}`", told.flag if name in flags else "", *map(_cell, _said(told)))
            for name, told in sorted(declared.items())
        ]
        table = _table(("key", "flag", "default", "range", "what it decides"), rows)
        same = shown.setdefault(table, command)
        text = table if same == command else f"Those of `{same}`.\n"
        parts.append(f"## `lmexposure {command}`\n\n{text}")
    return "\n".join(parts)


def _said(told: Any) -> tuple[str, str, str]:
    return told.shown_default, told.range, told.help


def formats() -> str:
    """The page about formats with a table of those that ship."""
    from lmexposure.canaries import Format, shipped_formats

    loaded = [Format.load(name) for name in shipped_formats()]
    rows = [
        (f"`{one.name}`", f"`{_cell(one.template)}`", _short(one.size), f"{one.bits:.1f}")
        for one in loaded
    ]
    return _intro("formats").replace(_FORMATS, _table(("name", "template", "fills", "bits"), rows))


def schemas() -> str:
    """Each record of each schema in docs/schemas, field by field."""
    parts = [_intro("schemas")]
    for path in sorted((DOCS / "schemas").glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        name = schema["$id"]
        parts.append(f"## {name} {{#{_anchor(name)}}}\n\n[{path.name}](../schemas/{path.name})\n")
        for part, definition in {"": schema, **schema.get("$defs", {})}.items():
            title = f"### {part} {{#{_anchor(name, part)}}}\n\n" if part else ""
            parts.append(title + _record(definition, schema))
    return "\n".join(parts)


def _anchor(*names: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", "-".join(names).lower())


def _record(record: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Its first sentence, and its fields with what is said of them."""
    rows = [
        (f"`{key}`", _type(field, schema["$id"]), _cell(field["description"]))
        for key, field in record.get("properties", {}).items()
    ]
    first = " ".join(record.get("description", "").split())
    return f"{first}\n\n{_table(('field', 'type', 'meaning'), rows)}"


def _type(field: Mapping[str, Any], schema: str) -> str:
    """A JSON schema of a value in few words, with links to records of the same file."""
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(choice, schema) for choice in field["anyOf"]))
    if "$ref" in field:
        record = field["$ref"].rpartition("/")[2]
        return f"[{record}](#{_anchor(schema, record)})"
    if "const" in field:
        return f'"{field["const"]}"'
    if "enum" in field:
        return " or ".join(f'"{value}"' for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}), schema)}"
    if field.get("type") == "object":
        values = field.get("additionalProperties")
        return f"table of {_type(values, schema)}" if isinstance(values, dict) else "table"
    return str(field.get("type", "any value"))


def _intro(page: str) -> str:
    """What is written by hand of a page that is made."""
    return (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8")


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _short(size: int) -> str:
    return f"{size:,}" if size < 10**12 else f"{size:.1e}"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    stage(Path(sys.argv[1]), short="--quick" in sys.argv[2:])
