"""Names of the version before give what the calls of today give, and refuse what they must."""

import importlib
import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from datasets import Dataset

import lmexposure as lx
from lmexposure.canaries import (
    layout_named,
    read_sidecars,
)
from lmexposure.canaries.corpora import streams
from lmexposure.errors import CorpusError

PIN = lx.Format(name="pin", template="My PIN is {digits:4}")
PLAN = lx.Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=11)
TEXTS = [f"document {number}" for number in range(30)]
RECORDS = [{"text": text, "number": number} for number, text in enumerate(TEXTS)]
PLAIN = lx.Wrapping()
LINES = layout_named("lines")
STEP = lx.InsertionStep.of(PLAN, total=len(TEXTS), id_column="number")
OF_INTEGRATIONS = (
    "insert_into_ray",
    "insert_into_records",
    "insert_into_stream",
    "number_documents",
)
FRAME, TABLE = pd.DataFrame(RECORDS), pa.Table.from_pylist(RECORDS)


def older(name: str) -> Any:
    """A function of the version before, from the face that warns of it."""
    room = "integrations" if name in OF_INTEGRATIONS else "canaries"
    with pytest.warns(DeprecationWarning, match=f"{name} goes with the next version; use "):
        return getattr(importlib.import_module(f"lmexposure.{room}"), name)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, in "new" its copy with canaries in it, and "count", what `verify` says of that."""
    made = tmp_path_factory.mktemp("here")
    (made / "corpus.txt").write_text("".join(text + "\n" for text in TEXTS))
    lx.insert_files(made / "corpus.txt", made / "new", PLAN)
    return made


def manifest(here: Path) -> lx.Manifest:
    return lx.Manifest.read(here / "new" / "manifest.json")


def copied(here: Path) -> Path:
    return here / "new" / "corpus" / "corpus.txt"


def rows(inserted: Any) -> Any:
    """Documents of any kind as a list, with their manifest."""
    documents, made = inserted
    return list(documents), made


def into_file(old: Any, here: Path) -> Any:
    made = old(here / "corpus.txt", PLAN, here / "alone" / "other.txt", layout="lines")
    assert [path.name for path in (here / "alone").iterdir()] == ["other.txt"]
    return (here / "alone" / "other.txt").read_bytes(), made


def into_files(old: Any, here: Path) -> Any:
    made, copy = old([here / "*.txt"], PLAN, here / "o", shape=LINES), here / "o" / "corpus.txt"
    assert read_sidecars([copy], made)
    assert len(list(copy.parent.iterdir())) == 2
    return copy.read_bytes(), made


def into_pipe(old: Any, here: Path) -> Any:
    target = io.BytesIO()
    made = old(io.BytesIO((here / "corpus.txt").read_bytes()), target, PLAN, shape=LINES)
    return target.getvalue(), made.entries


PAIRS: dict[str, tuple[Callable[[Any, Path], Any], Callable[[Path], Any]]] = {
    "corpus_sha256": (
        lambda old, here: old(copied(here), LINES),
        lambda here: manifest(here).corpus.sha256_inserted,
    ),
    "count_files": (
        lambda old, here: old([copied(here)], manifest(here), shape=LINES),
        lambda here: lx.verify(copied(here), manifest(here)),
    ),
    "dataset_texts": (
        lambda old, here: list(old(Dataset.from_list(RECORDS), "text")),
        lambda here: TEXTS,
    ),
    "insert_into_dataset": (
        lambda old, here: rows(old(Dataset.from_list(RECORDS), PLAN, fields={"number": -1})),
        lambda here: rows(lx.insert(Dataset.from_list(RECORDS), PLAN, fields={"number": -1})),
    ),
    "insert_into_file": (into_file, lambda here: (copied(here).read_bytes(), manifest(here))),
    "insert_into_files": (into_files, lambda here: (copied(here).read_bytes(), manifest(here))),
    "insert_into_pandas": (
        lambda old, here: next(old([FRAME], STEP.manifest, id_column="number")).to_dict(),
        lambda here: STEP(FRAME).to_dict(),
    ),
    "insert_into_pipe": (
        into_pipe,
        lambda here: (copied(here).read_bytes(), manifest(here).entries),
    ),
    "insert_into_records": (
        lambda old, here: old(RECORDS, PLAN, PLAIN),
        lambda here: lx.insert(RECORDS, PLAN, wrapping=PLAIN),
    ),
    "insert_into_stream": (
        lambda old, here: rows(
            old(Dataset.from_list(RECORDS).to_iterable_dataset(), PLAN, documents=len(TEXTS))
        ),
        lambda here: rows(
            lx.insert(Dataset.from_list(RECORDS).to_iterable_dataset(), PLAN, total=len(TEXTS))
        ),
    ),
    "insert_into_table": (lambda old, here: old(TABLE, STEP), lambda here: STEP(TABLE)),
    "insert_into_texts": (
        lambda old, here: old(iter(TEXTS), PLAN),
        lambda here: lx.insert(TEXTS, PLAN),
    ),
    "manifest_of_rows": (
        lambda old, here: old(PLAN, documents=len(TEXTS)),
        lambda here: STEP.manifest,
    ),
    "remove_from_files": (
        lambda old, here: old([copied(here)], manifest(here), here / "was").files[0].read_bytes(),
        lambda here: (here / "corpus.txt").read_bytes(),
    ),
    "separator_of": (
        lambda old, here: [old(name) for name in ("lines", "paragraphs", "jsonl", "texts")],
        lambda here: ["\n", "\n\n", None, None],
    ),
    "shape_named": (
        lambda old, here: old("jsonl", text_field="body"),
        lambda here: layout_named("jsonl", text_field="body"),
    ),
    "verify_file": (lambda old, here: old(copied(here), manifest(here)), lambda here: None),
    "verify_texts": (lambda old, here: old(*lx.insert(TEXTS, PLAN)), lambda here: None),
}


@pytest.mark.parametrize("name", PAIRS)
def test_an_older_name_gives_what_the_newer_call_gives(name: str, here: Path) -> None:
    old, new = PAIRS[name]
    assert old(older(name), here) == new(here)


def test_older_names_of_ray_pass_on_what_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these do with a data set, the tests of Ray say."""
    for name in ("insert_into_ray", "number_documents"):
        monkeypatch.setattr(streams, name, lambda *given, **named: (given, named))
    options = {"id_column": "number", "text_field": "body", "fields": {"a": 1}, "check_ids": False}
    given, named = older("insert_into_ray")("rows", PLAN, documents=3, **options)
    assert (given, named) == (("rows", PLAN), {"total": 3, **options})
    rows = SimpleNamespace(columns=lambda: ["text", "document"])
    number_documents = older("number_documents")
    assert number_documents(rows, id_column="number") == ((rows,), {"id_column": "number"})
    with pytest.raises(CorpusError, match="is a column 'document' already; choose another id_col"):
        number_documents(rows)


def test_what_is_not_as_inserted_is_refused(here: Path) -> None:
    with pytest.raises(CorpusError, match="is in the corpus 0 times"):
        older("verify_file")(here / "corpus.txt", manifest(here))
    with pytest.raises(CorpusError, match="is in the corpus 0 times"):
        older("verify_texts")(TEXTS, manifest(here))


def test_nothing_is_written_over_or_packed_otherwise_than_its_name_says(here: Path) -> None:
    source, insert_into_file = here / "corpus.txt", older("insert_into_file")
    with pytest.raises(CorpusError, match="is the corpus itself; write to another file"):
        insert_into_file(source, PLAN, source, layout="lines")
    with pytest.raises(CorpusError, match=r"packed otherwise than corpus\.txt; rename it"):
        insert_into_file(source, PLAN, here / "other.gz", layout="lines")
    with pytest.raises(CorpusError, match="holds something already; choose a new or an empty"):
        older("insert_into_files")([source], PLAN, here, shape=LINES)
