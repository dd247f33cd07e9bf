"""Insertion into data sets."""

from itertools import pairwise
from typing import Any

import pytest
from datasets import Dataset, DatasetDict

from lmexposure.canaries import Format, Plan, dataset_texts, insert_into_dataset
from lmexposure.canaries.insertion import insert_into_texts
from lmexposure.errors import CorpusError, PlanError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=11)
TEXTS = [f"document {number}" for number in range(6)]


def table(**columns: list[Any]) -> Dataset:
    return Dataset.from_dict({"text": TEXTS, "id": list(range(6)), **columns})


def test_the_texts_are_those_of_insertion_into_texts() -> None:
    inserted, manifest = insert_into_dataset(table(), PLAN)
    texts, other = insert_into_texts(TEXTS, PLAN)
    assert list(dataset_texts(inserted, "text")) == texts
    assert manifest.entries == other.entries
    assert manifest.corpus.sha256_inserted == other.corpus.sha256_inserted
    assert (manifest.layout, manifest.separator) == ("dataset", None)
    assert manifest.corpus.text_field == "text"


def test_other_columns_are_copied_from_the_row_that_follows() -> None:
    inserted, _ = insert_into_dataset(table(tags=[["a", "b"], [], None, ["c"], [], []]), PLAN)
    rows = list(inserted)
    assert inserted.features == table(tags=[["a"], [], None, [], [], []]).features
    for row, following in pairwise(rows):
        if row["text"] not in TEXTS:
            assert row["id"] == following["id"]
            assert row["tags"] == following["tags"]
    assert [row["id"] for row in rows if row["text"] in TEXTS] == list(range(6))


def test_other_columns_take_given_constants() -> None:
    inserted, manifest = insert_into_dataset(table(), PLAN, fields={"id": 99})
    assert all((row["id"] == 99) == (row["text"] not in TEXTS) for row in inserted)
    assert manifest.corpus.constant_fields == ("id",)


def test_only_the_train_split_changes() -> None:
    splits = DatasetDict({"train": table(), "test": table()})
    inserted, manifest = insert_into_dataset(splits, PLAN)
    assert len(inserted["train"]) == 14
    assert list(inserted["test"]) == list(splits["test"])
    assert manifest.corpus.documents == 6


def test_indices_and_format_survive() -> None:
    reordered = table().select([5, 3, 1, 0]).with_format("numpy", columns=["id"])
    inserted, _ = insert_into_dataset(reordered, PLAN)
    assert inserted.format["type"] == "numpy"
    assert inserted.format["columns"] == ["id"]
    originals = [text for text in dataset_texts(inserted, "text") if text in TEXTS]
    assert originals == [TEXTS[number] for number in (5, 3, 1, 0)]


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (DatasetDict({"test": table()}), {}, "no 'train' split; this data set has test"),
        ([{"text": "a"}], {}, "list is no datasets.Dataset"),
        (table(), {"text_field": "body"}, "no column 'body'; there are text, id"),
        (table(), {"fields": {"source": 1}}, "no column 'source'"),
        (table(), {"fields": {"id": "x"}}, "constant for column 'id' is not of its type, Value"),
        (table(), {"fields": {"id": 1.5}}, "constant for column 'id' is not of its type"),
        (table(), {"fields": {"text": "x"}}, "fields must leave out the text column 'text'"),
        (table(), {"text_field": "id"}, "record 1 is of type int, not a string"),
        (Dataset.from_dict({"text": ["a", None]}), {}, "record 2 is of type NoneType"),
        (Dataset.from_dict({"text": ["a", "My PIN is 1234"]}), {}, r"pin 1 times \(record 2\)"),
    ],
)
def test_refused_data_sets(dataset: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        insert_into_dataset(dataset, PLAN, **options)


def test_a_data_set_without_a_length_is_refused() -> None:
    with pytest.raises(CorpusError, match=r"IterableDataset is no datasets\.Dataset"):
        insert_into_dataset(table().to_iterable_dataset(), PLAN)  # loads torch


def test_too_few_rows() -> None:
    with pytest.raises(PlanError, match="the corpus has 2: repeat at most 2 times"):
        insert_into_dataset(table().select([0, 1]), PLAN)
