"""Documents in memory: where canaries go, what is copied, what is refused, and the way back."""

from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from datasets import Dataset, DatasetDict, IterableDatasetDict

import lmexposure.canaries
from lmexposure import verify
from lmexposure.canaries import Format, Manifest, Plan, remove
from lmexposure.canaries.corpora.in_memory import ROWS_AT_ONCE, InMemory, corpus_of
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=11)
TEXTS = [f"document {number}" for number in range(6)]
RECORDS = [{"text": text, "id": number} for number, text in enumerate(TEXTS)]


def held(documents: Any) -> InMemory:
    return corpus_of(documents, RowSchema("text"))


def insert(documents: Any, plan: Plan = PLAN, **options: Any) -> tuple[Any, Manifest]:
    return lmexposure.canaries.insert(documents, plan, **options)


def table(**columns: list[Any]) -> Dataset:
    return Dataset.from_dict({"text": TEXTS, "id": list(range(6)), **columns})


def as_inserted(documents: Any, manifest: Manifest) -> bool:
    return verify(documents, manifest).as_inserted


def test_leaving_one_out_moves_nothing_else() -> None:
    inserted, manifest = insert(TEXTS)
    gone = manifest.entries[0], manifest.entries[2]
    fewer, _ = insert(TEXTS, PLAN.without(*(canary.id for canary in gone)))
    assert fewer == [text for text in inserted if text not in {canary.text for canary in gone}]


def test_fills_already_there_are_refused_or_set_aside() -> None:
    texts = [*TEXTS, "note: My PIN is 1234, My PIN is 0007", "My PIN is 1234"]
    with pytest.raises(CorpusError, match=r"pin 3 times \(record 7, ...\); .* set these") as caught:
        insert(texts)
    assert "1234" not in str(caught.value)
    inserted, manifest = insert(texts, existing="set_aside")
    assert manifest.set_aside == {"pin": (7, 1234)}
    assert not {7, 1234} & {canary.index for canary in manifest.entries}
    assert not {7, 1234} & set(manifest.references("pin"))
    assert manifest.references_left("pin") == 10**4 - 5 - 2
    assert as_inserted(inserted, manifest)


def test_entries_that_begin_with_one_another_can_be_inserted() -> None:
    names = Format(
        name="names", template="I am {choice:c}.", lists={"c": ["Ann", "Anna", "Annabel", "Jo Ann"]}
    )
    plan = Plan(formats=(names,), canaries=1, repetitions=(1, 2), controls=1, seed=1)
    inserted, manifest = insert(TEXTS, plan)
    assert as_inserted(inserted, manifest)


KINDS: dict[str, Any] = {
    "list": TEXTS,
    "tuple": tuple(TEXTS),
    "records": RECORDS,
    "frame": pd.DataFrame(RECORDS).assign(
        kind=pd.Categorical(list("abcabc")), weight=np.arange(6, dtype="float32")
    ),
    "data set": table(),
    "splits": DatasetDict(train=table(), test=table()),
}


def rows_of(documents: Any) -> list[Any]:
    documents = documents["train"] if isinstance(documents, DatasetDict) else documents
    frame = isinstance(documents, pd.DataFrame)
    return documents.to_dict("records") if frame else list(documents)


def texts_of(documents: Any) -> list[str]:
    return [row if isinstance(row, str) else row["text"] for row in rows_of(documents)]


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind: str) -> None:
    texts, known = insert(TEXTS)
    given = rows_of(KINDS[kind])
    inserted, manifest = insert(KINDS[kind])
    assert type(inserted) is type(KINDS[kind])
    assert texts_of(inserted) == texts
    assert manifest.entries == known.entries
    assert manifest.corpus.sha256_inserted == known.corpus.sha256_inserted
    restored = remove(inserted, manifest)
    assert type(restored) is type(KINDS[kind])
    assert rows_of(restored) == rows_of(KINDS[kind]) == given
    if kind == "frame":
        assert restored.equals(KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_what_changed_is_not_restored(kind: str) -> None:
    inserted, manifest = insert(KINDS[kind])
    corpus = held(inserted)
    first, *others = range(corpus.documents)
    for order, message in (
        ([*others, first], r"document \d+ is not pin/x. *.*changed since insertion"),
        ([first, *others[:-1]], "without its canaries the corpus is not what it was before"),
        ([], "document 1 is not|document . is not pin"),
    ):
        with pytest.raises(CorpusError, match=message):
            remove(corpus.picked(order).given, manifest)


@pytest.mark.parametrize("kind", ["records", "frame", "data set", "splits"])
def test_other_fields_take_given_constants(kind: str) -> None:
    inserted, manifest = insert(KINDS[kind], fields={"id": 99})
    assert all((row["id"] == 99) == (row["text"] not in TEXTS) for row in rows_of(inserted))
    assert manifest.corpus.constant_fields == ("id",)


def test_a_row_behind_those_that_are_read_at_once_is_named() -> None:
    documents: list[Any] = [f"{number}" for number in range(2 * ROWS_AT_ONCE + 6)]
    size = len(documents) + 1
    with pytest.raises(CorpusError, match=f"record {size} is of type int, not a string"):
        insert([*documents, 3])
    with pytest.raises(CorpusError, match=rf"pin 1 times \(record {size}\)"):
        insert([*documents, "My PIN is 1234"])


def test_indices_and_format_survive() -> None:
    reordered = table().select([5, 3, 1, 0]).with_format("numpy", columns=["id"])
    inserted, manifest = insert(reordered)
    for documents in (inserted, remove(inserted, manifest)):
        assert documents.format["type"] == "numpy"
        assert documents.format["columns"] == ["id"]
        texts = documents.with_format(None)["text"]
        assert [t for t in texts if t in TEXTS] == [TEXTS[n] for n in (5, 3, 1, 0)]


FRAME = pd.DataFrame(RECORDS).assign(flag=True, kind=pd.Categorical(list("abcabc")))
MIXED = [{"text": "a", "n": 1}, {"text": "b"}, {"text": "c", "n": 3}]
TWICE = pd.DataFrame([["a", 1, 2]] * 3, columns=["text", "n", "n"])
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ([], {}, "the corpus has 0 records and none holds text"),
    (["", " \n"], {}, "the corpus has 2 records and none holds text"),
    (["a", None], {}, "record 2 is of type NoneType, not a string"),
    (["a", "\ud800"], {}, "record 2 is not Unicode text: it holds a lone surrogate"),
    (TEXTS, {"existing": "keep"}, "existing='keep' must be one of refuse, set_aside"),
    (RECORDS, {"fields": {"text": "x"}}, "fields must leave out the text column 'text': the can"),
    (MIXED, {"fields": {"n": 5}}, "record 2 has no field 'n', for which fields gives a con"),
    (table(), {"text_field": "body"}, "no column 'body'; there are text, id"),
    (table(), {"fields": {"source": 1}}, "no column 'source'"),
    (table(), {"fields": {"id": "x"}}, "constant for column 'id' is not of its type, Value"),
    (table(), {"fields": {"id": 1.5}}, "constant for column 'id' is not of its type"),
    (table(), {"fields": {"text": "x"}}, "fields must leave out the text column 'text'"),
    (table(), {"text_field": "id"}, "record 1 is of type int, not a string"),
    (table(messages=[""] * 6), {"text_field": "x"}, "no column 'x'.*; chats take a wrapping"),
    (Dataset.from_dict({"text": ["a", None]}), {}, "record 2 is of type NoneType"),
    (Dataset.from_dict({"text": ["a", "My PIN is 1234"]}), {}, r"pin 1 times \(record 2\)"),
    (FRAME, {"text_field": "body"}, "frame has no 'body'; it has text, id, flag, kind: name"),
    (FRAME, {"fields": {"source": 1}}, "no column 'source'; there are text, id"),
    (FRAME, {"fields": {"id": "x"}}, "for column 'id' is not of its type, int"),
    (FRAME, {"fields": {"id": [1, 2]}}, "constant for column 'id' is not of its type, int64"),
    (FRAME, {"fields": {"id": {"a": 1}}}, "constant for column 'id' is not of its type, int64"),
    (FRAME, {"fields": {"flag": "x"}}, "constant for column 'flag' is not of its type, bool"),
    (FRAME, {"fields": {"text": "x"}}, "fields must leave out the text column 'text'"),
    (FRAME, {"text_field": "id"}, "record 1 is of type int, not a string"),
    (FRAME, {"text_field": "kind"}, "the text or constant for column 'kind' is not of its type, c"),
    (TWICE, {"fields": {"n": 3}}, "there are two columns 'n'; rename one"),
    (TWICE.rename(columns={"n": "text"}), {}, "there are two columns 'text'; rename one"),
    (IterableDatasetDict(train=table()), {}, "each split is a stream; give one of them: 'train'"),
]


@pytest.mark.parametrize(("documents", "options", "message"), REFUSED)
def test_refused_documents(documents: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        insert(documents, **options)


def test_two_columns_of_one_name_without_constants_stay() -> None:
    assert list(insert(TWICE)[0].columns) == ["text", "n", "n"]
