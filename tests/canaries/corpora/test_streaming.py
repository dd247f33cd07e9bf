"""Insertion into streams: in order or by an id, through shuffles, shards, nodes and loaders."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset, IterableDataset
from datasets.distributed import split_dataset_by_node
from hypothesis import given
from hypothesis import strategies as st
from naive_insertion import with_canaries

from lmexposure.canaries import Format, InsertionStep, Manifest, Plan
from lmexposure.canaries.documents import hash_sum, id_sums, insert_into_stream, with_numbers
from lmexposure.canaries.plan import draw
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=11)
SIZE = 250
TEXTS = [f"document {number}" for number in range(SIZE)]
WHOLE = with_canaries(TEXTS, InsertionStep.of(PLAN, total=SIZE).manifest)


def table() -> Dataset:
    return Dataset.from_dict({"text": TEXTS, "id": list(range(SIZE))})


def stream(shards: int = 4) -> IterableDataset:
    return table().to_iterable_dataset(num_shards=shards)


def inserted(source: Any = None, **options: Any) -> tuple[Any, Manifest]:
    source = stream() if source is None else source
    return insert_into_stream(source, PLAN, **{"total": SIZE, **options})


def texts(rows: Any) -> list[str]:
    return [row["text"] for row in rows]


def test_a_stream_has_the_texts_of_the_data_set() -> None:
    rows, manifest = inserted()
    assert texts(rows) == WHOLE
    assert rows.features == stream().features
    assert manifest.entries == draw(PLAN, documents=SIZE, set_aside={})
    assert (manifest.layout, manifest.separator, manifest.corpus.sha256) == ("dataset", None, "")


def test_a_manifest_in_place_of_the_plan() -> None:
    _, manifest = inserted()
    rows, same = insert_into_stream(stream(shards=1), manifest)
    assert same is manifest
    assert texts(rows) == WHOLE


def test_what_may_follow_insertion() -> None:
    rows, _ = inserted()
    assert texts(rows.skip(50).take(20)) == WHOLE[50:70]
    assert Counter(texts(rows.shuffle(seed=1, buffer_size=30))) == Counter(WHOLE)
    nodes = [split_dataset_by_node(rows, rank=rank, world_size=2) for rank in range(2)]
    assert Counter(text for node in nodes for text in texts(node)) == Counter(WHOLE)
    rows.set_epoch(1)
    assert texts(rows) == WHOLE


def test_reading_goes_on_where_it_stopped() -> None:
    rows, _ = inserted()
    first = texts(islice(rows, 130))
    state = rows.state_dict()
    again, _ = inserted()
    again.load_state_dict(state)
    assert first + texts(again) == WHOLE


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore")
def test_loader_workers(workers: int) -> None:
    from torch.utils.data import DataLoader

    rows, _ = inserted()
    assert texts(DataLoader(rows, batch_size=None, num_workers=workers)) == WHOLE
    rows, _ = inserted(id_column="id")
    loaded = texts(DataLoader(rows, batch_size=None, num_workers=workers))
    assert Counter(loaded) == Counter(WHOLE)


def test_with_ids_the_order_does_not_matter() -> None:
    _, manifest = inserted()
    shuffled = stream().shuffle(seed=3, buffer_size=20)
    rows, same = inserted(shuffled, id_column="id")
    assert same.sha256 == manifest.sha256
    assert rows.num_shards == 4
    assert Counter(texts(rows)) == Counter(WHOLE)
    nodes = [split_dataset_by_node(stream(), rank=rank, world_size=2) for rank in range(2)]
    parts = [texts(inserted(node, id_column="id")[0]) for node in nodes]
    assert Counter(parts[0] + parts[1]) == Counter(WHOLE)


def test_the_format_survives() -> None:
    for id_column in (None, "id"):
        rows, _ = inserted(stream().with_format("numpy"), id_column=id_column)
        assert type(next(iter(rows))["id"]).__module__ == "numpy"


def test_a_stream_without_known_columns() -> None:
    def source() -> Any:
        yield from ({"text": text} for text in TEXTS)

    rows, _ = inserted(IterableDataset.from_generator(source))
    assert texts(rows) == WHOLE
    rows, _ = inserted(IterableDataset.from_generator(source), text_field="body")
    with pytest.raises(CorpusError, match="no column 'body'; there are text"):
        next(iter(rows))


@pytest.mark.parametrize("processes", [None, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore")
def test_a_step_for_map(processes: int | None) -> None:
    step = InsertionStep.of(inserted()[1])
    rows = table().map(step, batched=True, with_indices=True, batch_size=7, num_proc=processes)
    assert texts(rows) == WHOLE
    arrow = table().with_format("arrow")
    rows = arrow.map(step, batched=True, with_indices=True, batch_size=7, num_proc=processes)
    assert texts(rows.with_format(None)) == WHOLE
    rows = stream(shards=1).map(step, batched=True, with_indices=True, batch_size=7)
    assert texts(rows) == WHOLE


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.filterwarnings("ignore")
def test_a_step_that_cannot_know_its_documents(workers: int) -> None:
    from torch.utils.data import DataLoader, IterableDataset

    class Refusals(IterableDataset[str]):
        """The step's refusal as data: a loader takes seconds to end workers that raise."""

        def __iter__(self) -> Iterator[str]:
            try:
                InsertionStep.of(inserted()[1])({"text": ["a"]}, [0])
            except CorpusError as refusal:
                yield str(refusal)

    refusals = list(DataLoader(Refusals(), batch_size=None, num_workers=workers))
    assert len(refusals) == (2 if workers == 2 else 0)
    several = "several loader workers each count their rows from 0"
    assert all(several in refusal for refusal in refusals)


@pytest.mark.parametrize(
    ("total", "message"),
    [
        (SIZE + 9, "the stream ended after 250 documents, but total=259; canaries are missing"),
        (SIZE - 9, "there is a document 241, but with total=241 the last one is 240"),
    ],
)
def test_a_wrong_number_of_documents(total: int, message: str) -> None:
    rows, _ = inserted(total=total)
    with pytest.raises(CorpusError, match=message):
        list(rows)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (stream, {"total": None}, "count its rows and give total"),
        (stream, {"text_field": "body"}, "no column 'body'; there are text, id"),
        (stream, {"id_column": "number"}, "no column 'number'"),
        (stream, {"fields": {"source": 1}}, "no column 'source'"),
        (stream, {"fields": {"id": "x"}}, "constant for column 'id' is not of its type, Value"),
        (lambda: stream().shuffle(seed=1), {}, "shuffled already.*insert first and shuffle then"),
        (lambda: stream().shuffle(seed=1).take(9), {}, "shuffled already"),
        (
            lambda: split_dataset_by_node(stream(), rank=0, world_size=2),
            {},
            "split by node already",
        ),
    ],
)
def test_refused_streams(
    source: Callable[[], IterableDataset], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        inserted(source(), **options)


def mixed(number: int) -> int:
    """SplitMix64, in whole numbers of any size."""
    mask = 2**64 - 1
    z = number * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


@given(st.lists(st.integers(0, 2**63), max_size=9))
def test_sums_of_hashes(numbers: list[int]) -> None:
    expected = sum(map(mixed, numbers)) % 2**64
    assert hash_sum(np.array(numbers, dtype=np.uint64)) == expected


def test_sums_of_ids_tell_a_fault() -> None:
    found = id_sums(pa.table({"id": [2, 0, 1]}), id_column="id", total=3)
    hashes = str(hash_sum(np.arange(3, dtype=np.uint64)))
    assert found == {"count": ["3"], "hashes": [hashes], "fault": [""]}
    found = id_sums(pa.table({"id": [2, 3]}), id_column="id", total=3)
    assert found["fault"][0].startswith("there is a document 3")


def test_numbers_for_rows() -> None:
    table = pa.table({"text": ["a", "b"]})
    assert with_numbers(table, 5, "n").to_pydict() == {"text": ["a", "b"], "n": [5, 6]}
