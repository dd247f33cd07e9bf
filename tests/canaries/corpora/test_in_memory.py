"""Documents in memory: where canaries go, what is copied, what is refused, and the way back."""

import json
import random
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from datasets import Dataset, DatasetDict, IterableDatasetDict

import lmexposure.canaries
from lmexposure import verify
from lmexposure.canaries import Format, Manifest, Plan, remove
from lmexposure.canaries.corpora.in_memory import ROWS_AT_ONCE, InMemory, corpus_of
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.errors import CorpusError, PlanError

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


def test_canaries_are_before_the_documents_that_the_manifest_names() -> None:
    inserted, manifest = insert(TEXTS)
    assert len(inserted) == 6 + 2 * (1 + 3)
    assert [text for text in inserted if text in TEXTS] == TEXTS
    for canary in manifest.entries:
        before = []
        for place, text in enumerate(inserted):
            if text == canary.text:
                following = next(t for t in inserted[place:] if t in TEXTS)
                before.append(TEXTS.index(following))
        assert tuple(before) == canary.positions
    assert inserted[-1] == TEXTS[-1]


def test_leaving_one_out_moves_nothing_else() -> None:
    inserted, manifest = insert(TEXTS)
    gone = manifest.entries[2]
    fewer, _ = insert(TEXTS, PLAN.without(gone.id))
    assert fewer == [text for text in inserted if text != gone.text]


def test_the_manifest_tells_the_corpus() -> None:
    inserted, manifest = insert(TEXTS)
    assert (manifest.layout, manifest.separator, manifest.corpus.documents) == ("texts", None, 6)
    assert manifest.corpus.text_field is None
    for texts, known in (
        (TEXTS, manifest.corpus.sha256),
        (inserted, manifest.corpus.sha256_inserted),
    ):
        lines = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        assert sha256(lines.encode()).hexdigest() == known


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
    with pytest.raises(CorpusError, match="existing='keep' must be one of refuse, set_aside"):
        insert(texts, existing="keep")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "the corpus has 0 records and none holds text"),
        (["", " \n"], "the corpus has 2 records and none holds text"),
        (["a", None], "record 2 is of type NoneType, not a string"),
        (["a", "\ud800"], "record 2 is not Unicode text: it holds a lone surrogate"),
    ],
)
def test_refused_texts(texts: list[str], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        insert(texts)


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
    "frame": pd.DataFrame(RECORDS),
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
    with pytest.raises(CorpusError, match="fields must leave out the text column 'text': the can"):
        insert(KINDS[kind], fields={"text": "x"})


@pytest.mark.parametrize("kind", ["records", "frame", "data set"])
def test_other_fields_are_copied_from_the_row_that_follows(kind: str) -> None:
    inserted, _ = insert(KINDS[kind])
    rows = rows_of(inserted)
    for row, following in pairwise(rows):
        if row["text"] not in TEXTS:
            assert row["id"] == following["id"]
    assert [row["id"] for row in rows if row["text"] in TEXTS] == list(range(6))


def test_many_rows_are_read_some_at_a_time() -> None:
    size = 2 * ROWS_AT_ONCE + 7
    documents = [f"{number}" for number in range(size)]
    inserted, manifest = insert(documents)
    rows, same = insert(Dataset.from_dict({"text": documents}))
    assert rows["text"][:] == inserted
    assert same.corpus.sha256_inserted == manifest.corpus.sha256_inserted
    assert remove(inserted, manifest) == documents
    with pytest.raises(CorpusError, match=f"record {size} is of type int, not a string"):
        insert([*documents[:-1], 3])
    with pytest.raises(CorpusError, match=rf"pin 1 times \(record {size}\)"):
        insert([*documents[:-1], "My PIN is 1234"])


def test_random_texts_against_a_naive_inserter() -> None:
    draw = random.Random(3)
    for seed in range(50):
        texts = [draw.choice(["ä", "a\nb", "", "x"]) + str(n) for n in range(draw.randint(3, 40))]
        plan = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=seed)
        inserted, manifest = insert(texts, plan)
        expected = []
        for number, text in enumerate(texts):
            before = [c for c in manifest.entries if number in c.positions]
            expected += [canary.text for canary in sorted(before, key=lambda c: c.id)] + [text]
        assert inserted == expected
        assert remove(inserted, manifest) == texts


def test_features_of_a_data_set_stay() -> None:
    tags = [["a", "b"], [], None, ["c"], [], []]
    inserted, manifest = insert(table(tags=tags, nested=[{"k": [{"n": n}]} for n in range(6)]))
    assert inserted.features == table(tags=tags, nested=[{"k": [{"n": 0}]}] * 6).features
    rows = list(inserted)
    for row, following in pairwise(rows):
        if row["text"] not in TEXTS:
            assert (row["tags"], row["nested"]) == (following["tags"], following["nested"])
    assert (manifest.layout, manifest.separator) == ("dataset", None)
    assert manifest.corpus.text_field == "text"


def test_only_the_train_split_changes() -> None:
    splits = DatasetDict({"train": table(), "test": table()})
    inserted, manifest = insert(splits)
    assert len(inserted["train"]) == 14
    assert list(inserted["test"]) == list(splits["test"])
    assert manifest.corpus.documents == 6


def test_indices_and_format_survive() -> None:
    reordered = table().select([5, 3, 1, 0]).with_format("numpy", columns=["id"])
    inserted, manifest = insert(reordered)
    for documents in (inserted, remove(inserted, manifest)):
        assert documents.format["type"] == "numpy"
        assert documents.format["columns"] == ["id"]
        texts = documents.with_format(None)["text"]
        assert [t for t in texts if t in TEXTS] == [TEXTS[n] for n in (5, 3, 1, 0)]


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (table(), {"text_field": "body"}, "no column 'body'; there are text, id"),
        (table(), {"fields": {"source": 1}}, "no column 'source'"),
        (table(), {"fields": {"id": "x"}}, "constant for column 'id' is not of its type, Value"),
        (table(), {"fields": {"id": 1.5}}, "constant for column 'id' is not of its type"),
        (table(), {"fields": {"text": "x"}}, "fields must leave out the text column 'text'"),
        (table(), {"text_field": "id"}, "record 1 is of type int, not a string"),
        (table(messages=[""] * 6), {"text_field": "x"}, "no column 'x'.*; chats take a wrapping"),
        (Dataset.from_dict({"text": ["a", None]}), {}, "record 2 is of type NoneType"),
        (Dataset.from_dict({"text": ["a", "My PIN is 1234"]}), {}, r"pin 1 times \(record 2\)"),
    ],
)
def test_refused_data_sets(dataset: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        insert(dataset, **options)


def test_too_few_rows() -> None:
    with pytest.raises(PlanError, match="the corpus has 2: repeat at most 2 times"):
        insert(table().select([0, 1]))


def test_types_of_a_frame_stay_and_its_index_begins_anew() -> None:
    frame = pd.DataFrame(RECORDS, index=range(6, 0, -1)).assign(
        kind=pd.Categorical(list("abcabc")), weight=[1.5, float("nan")] * 3
    )
    inserted, manifest = insert(frame, fields={"kind": "b"})
    assert list(inserted.dtypes) == list(frame.dtypes)
    assert list(inserted.index) == list(range(14))
    new = ~inserted["text"].isin(TEXTS)
    assert set(inserted["kind"][new]) == {"b"}
    restored = remove(inserted, manifest)
    assert restored.equals(frame.reset_index(drop=True))


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (pd.DataFrame({"body": TEXTS}), {}, "frame has no 'text'; it has body: name the text_fi"),
        (
            pd.DataFrame(RECORDS),
            {"fields": {"source": 1}},
            "no column 'source'; there are text, id",
        ),
        (pd.DataFrame(RECORDS), {"fields": {"id": "x"}}, "for column 'id' is not of its type, int"),
        (pd.DataFrame({"text": [1]}), {}, "record 1 is of type int, not a string"),
        (
            pd.DataFrame({"text": pd.Categorical(TEXTS)}),
            {},
            "the text or constant for column 'text' is not of its type, category",
        ),
        (
            pd.DataFrame(RECORDS).assign(flag=True),
            {"fields": {"flag": "x"}},
            "constant for column 'flag' is not of its type, bool",
        ),
    ],
)
def test_refused_frames(frame: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        insert(frame, **options)


def test_constants_would_mark_canaries() -> None:
    records = [{"text": "a", "n": 1}, {"text": "b"}, {"text": "c", "n": 3}]
    with pytest.raises(CorpusError, match="record 2 has no field 'n', for which fields gives a co"):
        insert(records, fields={"n": 5})
    frame = pd.DataFrame({"text": ["a", "b", "c"], "n": [1, 2, 3]})
    for value in ([1, 2], {"a": 1}):
        with pytest.raises(CorpusError, match="constant for column 'n' is not of its type, int64"):
            insert(frame, fields={"n": value})


def test_two_columns_of_one_name() -> None:
    frame = pd.DataFrame([["a", 1, 2]] * 3, columns=["text", "n", "n"])
    assert list(insert(frame)[0].columns) == ["text", "n", "n"]
    with pytest.raises(CorpusError, match="there are two columns 'n'; rename one"):
        insert(frame, fields={"n": 3})
    with pytest.raises(CorpusError, match="there are two columns 'text'; rename one"):
        insert(frame.rename(columns={"n": "text"}))


def test_splits_that_are_streams() -> None:
    splits = IterableDatasetDict(train=table().to_iterable_dataset())
    with pytest.raises(CorpusError, match="each split is a stream; give one of them: 'train'"):
        insert(splits)
