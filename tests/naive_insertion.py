"""What insertion must give, the slow way: all in memory, one line or row after another.

Written from what the documents promise, and not from the code that keeps it. Of a manifest it takes
only the canaries: their ids, texts and places.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import lmexposure as lx

BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n\x0b\x0c"  # a line of these alone is blank
Place = dict[str, Any]  # of an inserted document: id, document, offset, length


@dataclass(kw_only=True)
class Part:
    """One file of a corpus as it must be after insertion."""

    content: bytearray  # unpacked
    documents: list[str]  # texts, inserted ones included
    first: int  # number of its first document in the whole corpus, from 0
    before: int = 0  # how many documents it had
    places: list[Place] = field(default_factory=list)  # in bytes


@dataclass(kw_only=True)
class Group:
    """A row group of a Parquet file after insertion, with the places of inserted rows."""

    rows: list[dict[str, Any]]
    places: list[Place]


def canaries_before(manifest: lx.Manifest) -> dict[int, list[tuple[str, str]]]:
    """Number of a document -> (id, text) of the canaries before it, by their ids."""
    found: dict[int, list[tuple[str, str]]] = {}
    for canary in (entry for entry in manifest.entries if entry.inserted):
        assert len(set(canary.positions)) == len(canary.positions) == canary.inserted, canary.id
        for place in canary.positions:
            found.setdefault(place, []).append((canary.id, canary.text))
    return {place: sorted(those) for place, those in found.items()}


def lines_of(content: bytes) -> tuple[bytes, list[bytes]]:
    """(byte order mark, lines with their line ends); lines end at line feeds only."""
    mark = BOM if content.startswith(BOM) else b""
    return mark, io.BytesIO(content[len(mark) :]).readlines()


def is_blank(line: bytes) -> bool:
    """Whether there is nothing to see in a line."""
    return not line.strip(_BLANK)


def line_end(line: bytes) -> bytes:
    """With which bytes the line ends."""
    if line.endswith(b"\r\n"):
        return b"\r\n"
    return b"\n" if line.endswith(b"\n") else b""


def begins(line: bytes, previous: bytes, layout: str) -> bool:
    """Whether a document begins with this line; before the first one stands a blank line."""
    if layout == "lines":
        return True
    if layout == "jsonl":
        return not is_blank(line)
    return not is_blank(line) and is_blank(previous)


def parts_with_canaries(
    contents: Sequence[bytes], manifest: lx.Manifest, layout: str, text_field: str = "text"
) -> list[Part]:
    """The files of a corpus of lines, paragraphs or JSON records with their canaries."""
    ends = [line_end(line) for content in contents for line in lines_of(content)[1]]
    first_end = next(filter(None, ends), b"\n")
    waiting, number, parts = canaries_before(manifest), 0, []
    for content in contents:
        mark, lines = lines_of(content)
        part = Part(content=bytearray(mark), documents=[], first=number)
        previous = b""
        for line in lines:
            if begins(line, previous, layout):
                for name, text in waiting.pop(number, ()):
                    added = _rendered(text, line, layout, text_field, line_end(line) or first_end)
                    part.places.append(_place(name, number, len(part.content), len(added)))
                    part.content += added
                    part.documents.append(text)
                part.documents.append(_begun(line, layout, text_field))
                number += 1
            elif layout == "paragraphs" and not is_blank(line):
                part.documents[-1] += line.decode()
            part.content += line
            previous = line
        part.before = number - part.first
        if layout == "paragraphs":
            part.documents = [_without_end(text) for text in part.documents]
        parts.append(part)
    assert not waiting, f"canaries before documents {sorted(waiting)} of {number}"
    return parts


def _rendered(text: str, following: bytes, layout: str, text_field: str, end: bytes) -> bytes:
    if layout == "jsonl":
        record = json.loads(following)
        record[text_field] = text
        return json.dumps(record).encode() + end
    return text.encode() + end * (2 if layout == "paragraphs" else 1)


def _begun(line: bytes, layout: str, text_field: str) -> str:
    """The text of a document that begins with this line; of a paragraph, its first line."""
    if layout == "jsonl":
        return str(json.loads(line)[text_field])
    return line.decode() if layout == "paragraphs" else _without_end(line.decode())


def _without_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _place(name: str, document: int, offset: int, length: int) -> Place:
    return {"id": name, "document": document, "offset": offset, "length": length}


def order(manifest: lx.Manifest, documents: int) -> Iterator[tuple[int, str, str | None]]:
    """Row by row: (number of the document that it is or copies, id, text), "" and None if it is."""
    waiting = canaries_before(manifest)
    for number in range(documents):
        for name, text in waiting.pop(number, ()):
            yield number, name, text
        yield number, "", None
    assert not waiting, f"canaries before documents {sorted(waiting)} of {documents}"


def with_canaries(texts: Sequence[str], manifest: lx.Manifest) -> list[str]:
    """Texts with their canaries."""
    return [texts[n] if canary is None else canary for n, _, canary in order(manifest, len(texts))]


def rows_with_canaries(
    rows: Sequence[dict[str, Any]], manifest: lx.Manifest, text_field: str = "text"
) -> list[dict[str, Any]]:
    """Records with their canaries, which copy all but the text from the record that follows."""
    return [
        rows[n] if canary is None else {**rows[n], text_field: canary}
        for n, _, canary in order(manifest, len(rows))
    ]


def groups_with_canaries(
    files: Sequence[Sequence[Sequence[dict[str, Any]]]], manifest: lx.Manifest, text_field: str
) -> list[list[Group]]:
    """The row groups of the files of a corpus with their canaries; a place is a row of its file."""
    waiting, number, made = canaries_before(manifest), 0, []
    for groups in files:
        made.append([Group(rows=[], places=[]) for _ in groups])
        offset = 0
        for group, rows in zip(made[-1], groups, strict=True):
            for row in rows:
                for name, text in waiting.pop(number, ()):
                    group.places.append(_place(name, number, offset, 1))
                    group.rows.append({**row, text_field: text})
                    offset += 1
                group.rows.append(row)
                offset, number = offset + 1, number + 1
    assert not waiting, f"canaries before documents {sorted(waiting)} of {number}"
    return made


def sha256_of_texts(texts: Iterable[str]) -> str:
    """The hash over texts as JSON strings, one a line."""
    lines = (json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
