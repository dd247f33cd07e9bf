"""Corpora drawn from a seed, as odd as users' own, plans that fit them, and both on the disk."""

import gzip
import json
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from naive_insertion import BOM, begins, is_blank, lines_of
from pyarrow.parquet import ParquetFile, ParquetWriter

import lmexposure as lx
from lmexposure.canaries.corpora.files import sidecar_path

PIN = lx.Format(name="pin", template="My PIN is {digits:4}")
# It begins with a hole, and is not ASCII.
NAME = lx.Format(
    name="name",
    template='{choice:who} wohnt in "Köln", Nr. {digits:2}',
    lists={"who": ["Zoë", "Jürgen", "李小龙", "Ann\\a"]},
)
_LETTERS = [*'ab Zé"{[,\\', "\t", "\x0b", "\x85", "\xa0", "\u2028", "a\ufeff", "😀", "e\u0301"]
_ENDS = (("\n",), ("\r\n",), ("\n", "\r\n"))
_BLANKS = ("", " ", "\t \t", "\x0b\x0c", "\r", " \r")
_OTHERS: tuple[Any, ...] = (
    *(None, True, -0.0, 1e400, 0.1, 2**70, "", "\ud800", "a\nb\u2028"),
    *([], {}, [1, [None, {"text": "y"}]], {"ключ": {"a": [0.5]}}),
)


def words(toss: Random, extra: Sequence[str] = ("\r",)) -> str:
    """A text without line feeds, often short or empty."""
    return "".join(toss.choices([*_LETTERS, *extra], k=toss.choice((0, 1, 2, 5, 20, 60))))


class Fills:
    """Fills that some corpora hold already."""

    def __init__(self, toss: Random) -> None:
        self.indices: dict[str, set[int]] = {}  # what was put in, by format
        self._toss, self._some = toss, toss.random() < 0.2

    def among(self, text: str) -> str:
        """The text, sometimes with a fill at its end."""
        if not self._some or self._toss.random() < 0.7:
            return text
        form = self._toss.choice((PIN, NAME))
        index = self._toss.randrange(form.size)
        self.indices.setdefault(form.name, set()).add(index)
        return f"{text} {form.text(index)} ."


def text_file(toss: Random, layout: str, fills: Fills, text_field: str = "text") -> bytes:
    """The content of a file with at least one document that can be seen."""
    ends, share = toss.choice(_ENDS), toss.choice((0, 0.1, 0.5))
    lines = []
    for n in range(toss.choice((1, 2, 5, 12, 30))):
        blank = n > 0 and toss.random() < share
        line = toss.choice(_BLANKS) if blank else "x" + words(toss)
        if not blank:
            line = json_line(toss, fills, text_field) if layout == "jsonl" else fills.among(line)
        lines.append(line + toss.choice(ends))
    if toss.random() < 0.4:
        lines[-1] = lines[-1].rstrip("\r\n")
    return BOM * (toss.random() < 0.2) + "".join(lines).encode()


def json_line(toss: Random, fills: Fills, text_field: str) -> str:
    """A record, its fields in any order, written in any of JSON's ways."""
    text = fills.among(words(toss, ("\n", "\r", "\0")))
    others = {toss.choice(("id", "né", "text ", "meta", "")): toss.choice(_OTHERS) for _ in "123"}
    names = [*others, text_field]
    toss.shuffle(names)
    record = {name: text if name == text_field else others[name] for name in names}
    ascii_only = "\\ud800" in repr(record) or toss.random() < 0.5  # half a pair has no UTF-8
    written = json.dumps(record, ensure_ascii=ascii_only, separators=toss.choice(_SEPARATORS))
    return toss.choice(("", "", "", " ", "\t")) + written + toss.choice(("", "", " "))


_SEPARATORS = ((", ", ": "), (",", ":"), (" ,\t", " : "))


def cut(toss: Random, content: bytes, layout: str, parts: int) -> list[bytes]:
    """A file cut between documents, into fewer parts where there are too few such places."""
    mark, lines = lines_of(content)
    between = [
        n
        for n in range(1, len(lines))
        if layout != "paragraphs" or is_blank(lines[n - 1]) or is_blank(lines[n])
    ]
    stops = sorted(toss.sample(between, min(parts - 1, len(between))))
    pieces = [lines[a:b] for a, b in zip([0, *stops], [*stops, len(lines)], strict=True)]
    contents = [b"".join(piece) for piece in pieces]
    return [mark + contents[0], *contents[1:]]


def documents_in(contents: Sequence[bytes], layout: str) -> int:
    """How many documents the files hold."""
    total = 0
    for content in contents:
        lines = lines_of(content)[1]
        pairs = zip(lines, [b"", *lines], strict=False)
        total += sum(begins(line, previous, layout) for line, previous in pairs)
    return total


def plan_for(toss: Random, documents: int) -> lx.Plan:
    """A plan that so many documents can take; often a canary goes before each of them."""
    classes = {n for n in (1, 2, 3, 7, toss.choice((1, min(documents, 12)))) if n <= documents}
    coins: dict[str, Any] = {"inclusion_probability": 0.5, "inclusion_seed": toss.randrange(2**63)}
    return lx.Plan(
        formats=toss.choice(((PIN,), (NAME,), (PIN, NAME), (NAME, PIN))),
        canaries=toss.randint(1, 3),
        repetitions=toss.sample(sorted(classes), toss.randint(1, min(3, len(classes)))),
        controls=toss.randint(0, 3),
        seed=toss.randrange(2**63),
        **(coins if toss.random() < 0.25 else {}),
    )


_COLUMNS: dict[str, tuple[Any, Any]] = {
    "n": (pa.int64(), lambda toss: toss.randrange(-5, 2**60)),
    "small": (pa.int8(), lambda toss: toss.randrange(-128, 128)),
    "score": (pa.float64(), lambda toss: toss.choice((0.1, -0.0, float("inf"), float("nan")))),
    "half": (pa.float32(), lambda toss: toss.randrange(100) / 4),
    "flag": (pa.bool_(), lambda toss: toss.random() < 0.5),
    "tags": (pa.list_(pa.string()), lambda toss: [words(toss) for _ in range(toss.randrange(3))]),
    "meta": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))]),
        lambda toss: {"a": toss.choice((None, 1)), "b": toss.choice((None, [], [0.5]))},
    ),
    "raw": (pa.binary(), lambda toss: toss.randbytes(toss.randrange(4))),
    "when": (pa.timestamp("us"), lambda toss: datetime(2026, 1, 1, 0, 0, toss.randrange(60))),
    "price": (pa.decimal128(10, 2), lambda toss: Decimal(toss.randrange(10**6)).scaleb(-2)),
    "nothing": (pa.null(), lambda toss: None),
    "kind": (pa.dictionary(pa.int32(), pa.string()), lambda toss: toss.choice("abc")),
}


_NOTES = (None, {"a": "b"})


def rows_of(
    toss: Random, fills: Fills, text_field: str, *, without: Sequence[str] = ()
) -> tuple[Any, list[dict[str, Any]]]:
    """(Arrow schema, rows); the text holds nothing to see in some rows, and is null in none."""
    chosen = [name for name in _COLUMNS if name not in without]
    names = [*toss.sample(chosen, toss.randrange(5)), text_field]
    toss.shuffle(names)
    text_type = toss.choice((pa.string(), pa.string(), pa.large_string()))
    kinds = {name: _COLUMNS[name][0] if name in _COLUMNS else text_type for name in names}
    share = toss.choice((0, 0.3))
    rows = []
    for n in range(toss.choice((1, 2, 5, 12, 30))):
        row = {
            name: None if toss.random() < share else _COLUMNS[name][1](toss)
            for name in names
            if name != text_field
        }
        text = fills.among("x" * (n == 0) + words(toss, ("\n", "\r", "\0")))
        rows.append({name: text if name == text_field else row[name] for name in names})
    fields = [
        pa.field(name, kinds[name], nullable=name != text_field, metadata=toss.choice(_NOTES))
        for name in names
    ]
    return pa.schema(fields, metadata=toss.choice((None, {"who": "we"}))), rows


SUFFIXES = {"lines": ".txt", "paragraphs": ".txt", "jsonl": ".jsonl", "parquet": ".parquet"}
PACKINGS = ("", ".gz", ".zst")


def packed(content: bytes, packing: str) -> bytes:
    """Bytes as a file with this suffix holds them; of a .gz, in two members."""
    if packing == ".gz":
        half = len(content) // 2
        return gzip.compress(content[:half], 1) + gzip.compress(content[half:], 1)
    return pa.compress(content, codec="zstd", asbytes=True) if packing else content


def unpacked(path: Path) -> bytes:
    """The content of a file."""
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    if path.suffix == ".zst":
        with pa.OSFile(str(path)) as raw, pa.CompressedInputStream(raw, "zstd") as stream:
            return bytes(stream.read())
    return path.read_bytes()


class Written:
    """The files of a corpus with their canaries, and what belongs to them."""

    def __init__(
        self,
        here: Path,
        contents: Sequence[bytes],
        plan: lx.Plan,
        layout: str,
        packing: str = "",
        **more: Any,
    ) -> None:
        self.here, self.layout, self.field = here, layout, more.get("text_field", "text")
        self.sources = self.files(here / "in", contents, packing)
        self.manifest = lx.insert_files(
            self.sources, here / "out", plan, layout=layout, existing="set_aside", **more
        )
        self.paths = [here / "out" / "corpus" / path.name for path in self.sources]

    def files(self, directory: Path, contents: Sequence[bytes], packing: str = "") -> list[Path]:
        """Write a corpus of this layout."""
        directory.mkdir(parents=True)
        suffix = SUFFIXES[self.layout] + packing
        paths = [directory / f"part{number}{suffix}" for number, _ in enumerate(contents)]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(packed(content, packing))
        return paths

    def forget_notes(self) -> None:
        """Take the sidecars away."""
        for path in self.paths:
            sidecar_path(path).unlink()


def parquet_bytes(schema: Any, groups: Sequence[Sequence[dict[str, Any]]], packing: str) -> bytes:
    """A Parquet file with these row groups, empty ones included."""
    sink = pa.BufferOutputStream()
    with ParquetWriter(sink, schema, compression=packing) as writer:
        for rows in groups:
            writer.write_table(pa.Table.from_pylist(list(rows), schema=schema))
    return bytes(sink.getvalue())


def row_groups(path: Path) -> tuple[Any, list[list[dict[str, Any]]]]:
    """(schema, the rows of each row group)."""
    with ParquetFile(path) as file:
        groups = [file.read_row_group(n).to_pylist() for n in range(file.num_row_groups)]
        return file.schema_arrow, groups
