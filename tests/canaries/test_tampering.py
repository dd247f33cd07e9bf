"""What was done to a corpus since insertion: verify counts it, and remove refuses."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from random_corpora import PIN, Written, parquet_bytes, row_groups

import lmexposure as lx
from lmexposure.errors import CorpusError

LAYOUTS = ("lines", "paragraphs", "jsonl", "parquet")
NAMES = [f"document {number}" for number in range(24)]
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
SMALL = lx.Plan(
    formats=(PIN, "ssn"),
    canaries=4,
    repetitions=(1, 3),
    controls=2,
    seed=6,
    inclusion_probability=0.5,
    inclusion_seed=8,
)
# What can happen to a line or row: what is there afterwards, where `other` has another text.
CHANGES: dict[str, Callable[[Any, Any], list[Any]]] = {
    "removed": lambda item, other: [],
    "doubled": lambda item, other: [item, item],
    "replaced": lambda item, other: [other],
    "added": lambda item, other: [item, other],
}


def small_corpus(here: Path, layout: str, parts: int, **more: Any) -> Written:
    """The same 24 documents in each layout, cut into files."""
    size, contents = len(NAMES) // parts, []
    for first in range(0, len(NAMES), size):
        rows = [{"n": len(name), "text": name} for name in NAMES[first : first + size]]
        if layout == "parquet":
            contents.append(parquet_bytes(SCHEMA, [rows], "snappy"))
            continue
        end = "\n\n" if layout == "paragraphs" else "\n"
        lines = [json.dumps(row) if layout == "jsonl" else str(row["text"]) for row in rows]
        contents.append("".join(line + end for line in lines).encode())
    return Written(here, contents, SMALL, layout, **more)


def items_of(path: Path) -> list[Any]:
    """The lines of a text file, or the rows of a Parquet file of one row group."""
    if path.suffix == ".parquet":
        return row_groups(path)[1][0]
    return path.read_bytes().splitlines(keepends=True)


def store(path: Path, items: list[Any]) -> None:
    """Write them back."""
    parquet = path.suffix == ".parquet"
    path.write_bytes(parquet_bytes(SCHEMA, [items], "snappy") if parquet else b"".join(items))


def changed(items: list[Any], change: str, text: str, other: str) -> list[Any]:
    """The items after a change to the first one in which `text` is."""
    at = next(n for n, item in enumerate(items) if text in str(item))
    item = items[at]
    if isinstance(item, dict):
        edited: Any = {**item, "text": other}
    elif isinstance(item, bytes):
        edited = item.replace(text.encode(), other.encode())
    else:
        edited = item.replace(text, other)
    return [*items[:at], *CHANGES[change](item, edited), *items[at + 1 :]]


def fates(manifest: lx.Manifest) -> list[tuple[str, str, str]]:
    """(change, text of a canary, another text): what can happen to canaries."""
    once, *_, often = manifest.canaries
    others = {
        "control": manifest.controls[0].text,
        "held out": manifest.held_out[0].text,
        "reference": PIN.text(manifest.references("pin", 1)[0]),
        "canary": once.text,
        "cut": often.text[:-1],
    }
    assert once.text != often.text
    changes = [("replaced", often.text, other) for other in others.values()]
    changes += [("added", often.text, others[name]) for name in others if name != "cut"]
    changes += [(how, one.text, "") for how in ("removed", "doubled") for one in (once, often)]
    return changes


@pytest.mark.parametrize("layout", [*LAYOUTS, "texts"])
def test_no_change_to_a_canary_escapes_verify(layout: str, tmp_path: Path) -> None:
    if layout == "texts":
        documents, manifest = lx.insert(NAMES, SMALL)
        corpus: Any = documents
        items: list[Any] = list(documents)
    else:
        written = small_corpus(tmp_path, layout, 1)
        manifest, corpus = written.manifest, written.paths
        items = items_of(corpus[0])
    assert lx.verify(corpus, manifest).as_inserted
    for change in fates(manifest):
        edited = changed(items, *change)
        if layout != "texts":
            store(corpus[0], edited)
        found = lx.verify(edited if layout == "texts" else corpus, manifest)
        assert not found.as_inserted, change
    for how in CHANGES:  # documents may come and go
        edited = changed(items, how, "document 7", "dokument 7")
        if layout != "texts":
            store(corpus[0], edited)
        found = lx.verify(edited if layout == "texts" else corpus, manifest)
        assert found.as_inserted, how


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_change_escapes_remove(layout: str, parts: int, tmp_path: Path) -> None:
    written = small_corpus(tmp_path / "corpus", layout, parts)
    path = written.paths[parts - 1]
    items, told = items_of(path), written.manifest
    changes = [(how, "document 23", "dokument 23") for how in CHANGES]
    changes += [change for change in fates(told) if change[1] in str(items)]
    assert len(changes) > len(CHANGES)
    for notes in (True, False):
        if not notes:
            written.forget_notes()
        for change in changes:
            store(path, changed(items, *change))
            check_refused(written.paths, told, tmp_path / "back", (notes, change))
            if notes:
                check_refused([path], told, tmp_path / "back", (notes, change))
        if layout != "parquet":
            for edited in bytes_changed(b"".join(items)):
                path.write_bytes(edited)
                check_refused(written.paths, told, tmp_path / "back", (notes, edited))
        store(path, items)
        lx.remove(written.paths, told, tmp_path / f"back {notes}")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_a_hash_a_missing_canary_is_noticed_all_the_same(
    layout: str, tmp_path: Path
) -> None:
    written = small_corpus(tmp_path / "corpus", layout, 1, verify=False)
    path, told = written.paths[0], written.manifest
    items = items_of(path)
    whole = f"whole{path.suffix}"
    assert not lx.remove(path, told, tmp_path / whole).checked
    assert items_of(tmp_path / whole) == items_of(written.sources[0])
    last = max((canary.positions[-1], canary.text) for canary in told.canaries)[1]
    at = max(number for number, item in enumerate(items) if last in str(item))
    for notes in (True, False):
        if not notes:
            written.forget_notes()
        store(path, items[:at])
        check_refused([path], told, tmp_path / "back", f"the last canary is gone, {notes}")


def bytes_changed(data: bytes) -> list[bytes]:
    """The same with one byte more, less or otherwise, none of them a canary's."""
    at = data.index(b"document 23")
    return [
        data[:at] + b"D" + data[at + 1 :],
        data[:at] + data[at + 1 :],
        data[:at] + data[at : at + 1] + data[at:],
        data[: at + 11] + b"\r" + data[at + 11 :],
        data[:-1],
        data + b"\n",
        b"\xef\xbb\xbf" + data,
    ]


def check_refused(
    paths: Sequence[Path], manifest: lx.Manifest, back: Path, change: object, message: str = "."
) -> None:
    """Nothing is removed, and nothing is left where it should have gone."""
    with pytest.raises(CorpusError, match=message):
        lx.remove(paths, manifest, back)
        pytest.fail(f"remove took {change}")
    assert not back.exists(), change


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_do_not_stand_in_for_each_other(layout: str, tmp_path: Path) -> None:
    written = small_corpus(tmp_path / "corpus", layout, 3)
    paths, manifest = written.paths, written.manifest
    first, last = paths[0].read_bytes(), paths[2].read_bytes()
    paths[0].write_bytes(last)
    paths[2].write_bytes(first)
    check_refused(paths, manifest, tmp_path / "back", "two files took each other's place")
    check_refused([paths[0]], manifest, tmp_path / "back", "one of them alone")
    assert not lx.verify([paths[0]], manifest).as_inserted
    assert not lx.verify([paths[2]], manifest).as_inserted
    paths[0].write_bytes(first)
    paths[2].write_bytes(last)
    other = small_corpus_of_another_plan(tmp_path / "other", layout)
    strange = "belongs to another manifest; give the one of this"
    check_refused(paths, other, tmp_path / "back", "another manifest", strange)
    check_refused(paths[:1], other, tmp_path / "back", "another manifest, one alone", strange)
    check_refused(paths[:2], manifest, tmp_path / "back", "a file is missing")
    with pytest.raises(CorpusError, match="of the 3 files of this corpus, number 3 is missing"):
        lx.verify(paths[:2], manifest)
    written.forget_notes()
    check_refused(paths, other, tmp_path / "back", "another manifest, without sidecars")
    check_refused(paths[:2], manifest, tmp_path / "back", "a file is missing, without sidecars")
    assert not lx.verify(paths[:2], manifest).as_inserted
    assert not lx.verify(paths, other).as_inserted
    assert lx.verify(paths, manifest).as_inserted


def small_corpus_of_another_plan(here: Path, layout: str) -> lx.Manifest:
    """The manifest of the same documents with other canaries."""
    sources = small_corpus(here, layout, 3).sources
    plan = lx.Plan(formats=(PIN, "ssn"), canaries=4, repetitions=(1, 3), controls=2, seed=7)
    return lx.insert_files(sources, here / "another", plan, layout=layout)
