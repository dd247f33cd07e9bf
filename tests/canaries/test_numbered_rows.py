"""Insertion into batches of numbered rows, however a corpus is cut into them."""

import pickle
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries import Format, Manifest, Plan, insert_into_texts
from lmexposure.canaries.numbered_rows import InsertionStep, manifest_of_rows
from lmexposure.canaries.placing import manifest_without_corpus
from lmexposure.errors import CorpusError, ManifestError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=11)
TEXTS = [f"document {number}" for number in range(12)]
MANIFEST = manifest_of_rows(PLAN, documents=12)


def by_id(manifest: Manifest = MANIFEST, **options: Any) -> InsertionStep:
    return InsertionStep(manifest=manifest, id_column="id", **options)


@given(st.permutations(range(12)), st.lists(st.integers(0, 12), max_size=7))
def test_any_order_and_any_parts_give_the_same_documents(order: list[int], cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 12]
    step, texts = by_id(), []
    for start, stop in pairwise(edges):
        ids = order[start:stop]
        texts += step({"text": [TEXTS[one] for one in ids], "id": ids})["text"]
    assert Counter(texts) == Counter(insert_into_texts(TEXTS, PLAN)[0])


@given(st.lists(st.integers(0, 12), max_size=7))
def test_in_order_it_is_insertion_into_texts(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 12]
    step, texts = InsertionStep(manifest=MANIFEST), []
    for start, stop in pairwise(edges):
        texts += step({"text": TEXTS[start:stop]}, range(start, stop))["text"]
    whole, manifest = insert_into_texts(TEXTS, PLAN)
    assert texts == whole
    assert MANIFEST.entries == manifest.entries


def test_other_columns_are_copied_or_constant() -> None:
    manifest = manifest_of_rows(PLAN, documents=12, fields=["source"])
    step = by_id(manifest, fields={"source": "canary"})
    batch: dict[str, Any] = {"id": range(12), "source": ["web"] * 12, "text": TEXTS}
    merged = step(batch)
    following = None
    for number, source, text in reversed(list(zip(*merged.values(), strict=True))):
        assert source == ("web" if text in TEXTS else "canary")
        assert text in TEXTS or number == following
        following = number


def test_a_pickled_step_does_the_same() -> None:
    batch: dict[str, Any] = {"text": TEXTS, "id": list(range(12))}
    assert pickle.loads(pickle.dumps(by_id()))(batch) == by_id()(batch)


def test_fills_that_are_set_aside_may_stand_there() -> None:
    aside = manifest_without_corpus(
        PLAN, documents=12, layout="dataset", text_field="text", set_aside={"pin": [1234]}
    )
    texts = ["My PIN is 1234", *TEXTS[1:]]
    assert len(by_id(aside)({"text": texts, "id": list(range(12))})["text"]) == 20


def test_a_manifest_is_taken_as_it_is() -> None:
    assert manifest_of_rows(MANIFEST) is MANIFEST
    assert manifest_of_rows(MANIFEST, documents=12) is MANIFEST


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"documents": 13}, "documents=13, but the manifest was made for 12"),
        ({"text_field": "body"}, "text_field='body', but the manifest was made for 'text'"),
        ({"fields": ["id"]}, r"fields=\['id'\], but the manifest was made for \[\]"),
    ],
)
def test_a_manifest_of_other_rows(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        manifest_of_rows(MANIFEST, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "count its rows and give documents"),
        ({"documents": 0}, "documents=0 must be a whole number at least 1"),
        ({"documents": 5, "fields": ["text"]}, "fields must leave out the text column 'text'"),
    ],
)
def test_what_a_plan_needs(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        manifest_of_rows(PLAN, **options)


@pytest.mark.parametrize(
    ("texts", "ids", "message"),
    [
        (["a"], [12], "there is a document 12, but with documents=12 the last one is 11"),
        (["a"], [-1], "there is a document -1"),
        (["a"], [1.0], "the number 1.0 of type float; documents are numbered by whole numbers"),
        (["a"], [None], "the number None of type NoneType"),
        (["a"], [True], "the number True of type bool"),
        (["a", "b"], [3, 3], "two rows are document 3"),
        (["a", None], [3, 7], "document 7 is of type NoneType, not a string"),
        (["a", "My PIN is 1234"], [3, 7], r"holds fills: pin 1 times \(document 7\), counted from"),
    ],
)
def test_refused_rows(texts: list[Any], ids: list[Any], message: str) -> None:
    with pytest.raises(CorpusError, match=message) as failure:
        by_id()({"text": texts, "id": ids})
    assert "1234" not in str(failure.value)


def test_refused_columns() -> None:
    with pytest.raises(CorpusError, match="no column 'id'; there are text"):
        by_id()({"text": ["a"]})
    with pytest.raises(CorpusError, match="no column 'text'; there are none"):
        InsertionStep(manifest=MANIFEST)({}, [])


def test_what_is_no_batch() -> None:
    with pytest.raises(CorpusError, match="this is one row, and the step takes batches; map with"):
        InsertionStep(manifest=MANIFEST)({"text": "a"}, 0)  # type: ignore[arg-type]
    with pytest.raises(CorpusError, match=r"batch is of type list, .* map the data set with_form"):
        InsertionStep(manifest=MANIFEST)([["a"]], [0])  # type: ignore[arg-type]


def test_nobody_says_which_documents_these_are() -> None:
    with pytest.raises(CorpusError, match="no document numbers; map with with_indices=True"):
        InsertionStep(manifest=MANIFEST)({"text": ["a"]})
