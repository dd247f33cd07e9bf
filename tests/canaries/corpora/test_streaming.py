"""Insertion into streams: in order or by an id, through shuffles, shards, nodes and loaders."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from datasets import Dataset, IterableDataset
from datasets.distributed import split_dataset_by_node
from naive_insertion import with_canaries

from lmexposure.canaries import (
    Format,
    InsertionStep,
    Manifest,
    Plan,
)
from lmexposure.canaries.corpora.streams import insert_into_stream
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


@pytest.mark.parametrize("workers", [0, 2])
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


@pytest.mark.parametrize("processes", [None, 2])
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


def test_a_fill_that_is_there_already() -> None:
    spoilt = Dataset.from_dict({"text": [*TEXTS[:-1], "My PIN is 1234"]}).to_iterable_dataset()
    rows, _ = inserted(spoilt)
    with pytest.raises(CorpusError, match=r"pin 1 times \(document 249\), counted from 0"):
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
