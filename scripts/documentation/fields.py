"""What the sources say of the fields of a class: by a string under each, or a comment by it."""

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

_SEVERAL = re.compile(r"(\w+(?:, \w+)+): (.*)")
_ENVELOPE = {
    "schema": "the kind and the version of the file",
    "content_sha256": "hash of everything else in the file",
}


@cache
def meanings(path: Path) -> dict[str, dict[str, str]]:
    """Class of a file -> field -> what is said of it."""
    source = path.read_text(encoding="utf-8")
    comments = {
        token.start[0]: (token.string.removeprefix("#").strip(), token.line.strip()[0] == "#")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    return {
        node.name: dict(_of_fields(node, comments))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    }


def _of_fields(
    node: ast.ClassDef, comments: dict[int, tuple[str, bool]]
) -> Iterator[tuple[str, str]]:
    """A comment "low, high: the ends" is of both fields, which follow it one behind the other."""
    shared: dict[str, str] = {}
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        name, said = field.target.id, _said_by(field, after, comments)
        several = _SEVERAL.match(said)
        if several and several[1].split(", ")[0] == name:
            shared = dict.fromkeys(several[1].split(", "), several[2])
        said = shared.pop(name, said)
        if said:
            yield name, said


def _said_by(
    field: ast.AnnAssign, after: ast.stmt | None, comments: dict[int, tuple[str, bool]]
) -> str:
    """The string under a field, else the comments above and behind it."""
    match after:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split())
    above, line = list[str](), field.lineno - 1
    while comments.get(line, ("", False))[1]:
        above.insert(0, comments[line][0])
        line -= 1
    behind = comments.get(field.end_lineno or field.lineno)
    return " ".join([*above, *([behind[0]] if behind else [])])


def published(record: Any) -> Any:
    """The JSON schema of a record's files, with a description of every field."""
    schema = record.json_schema()
    from lmexposure._record import Record
    from lmexposure._settings import Settings, settings_of
    from lmexposure._types import Found

    known = {cls.__name__: cls for ground in (Record, Found) for cls in _below(ground)}
    for definition in (schema, *schema.get("$defs", {}).values()):
        cls = known[definition["title"]]
        definition["description"] = definition["description"].partition("\n\n")[0]
        said = dict(_ENVELOPE)
        if issubclass(cls, Settings):
            said |= {name: told.meaning(None) for name, told in settings_of(cls).items()}
        for base in reversed(cls.__mro__):
            if base.__module__.startswith("lmexposure."):
                said |= meanings(Path(inspect.getfile(base))).get(base.__name__, {})
        for name, field in definition.get("properties", {}).items():
            if name not in said:
                raise AssertionError(f"no word is said of {name} in {cls.__name__}")
            field["description"] = said[name]
    return schema


def _below(cls: Any) -> Iterator[Any]:
    for child in cls.__subclasses__():
        yield child
        yield from _below(child)


def records() -> list[Any]:
    """Every record with a published schema: each kind of study, and the files beside them."""
    from lmexposure.canaries.manifest import ManifestFile
    from lmexposure.core import kind_of, own_records
    from lmexposure.studies import RowsRecord, RunRecord, SweepModel, SweepPlan, VerbatimPassages

    kinds = [kind_of(name.removesuffix(".json")) for name in own_records()]
    return [*kinds, ManifestFile, RowsRecord, RunRecord, SweepModel, SweepPlan, VerbatimPassages]
