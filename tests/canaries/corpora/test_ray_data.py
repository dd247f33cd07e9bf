"""Insertion into Ray Data sets, on a local Ray; and the pipeline in scripts/examples."""

import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from canaries import test_chats_in_engines as chats
from naive_insertion import with_canaries

import lmexposure as lx
from lmexposure.canaries import Format, InsertionStep, Manifest, Plan
from lmexposure.canaries.documents import insert_into_ray, number_documents
from lmexposure.errors import CorpusError, ManifestError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

EXAMPLES = Path(__file__).parents[3] / "scripts" / "examples"
PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=11)
SIZE = 60
TEXTS = [f"document {number}" for number in range(SIZE)]
MANIFEST = InsertionStep.of(PLAN, total=SIZE).manifest
WHOLE = Counter(with_canaries(TEXTS, MANIFEST))


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    found = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        found.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        found.data.DataContext.get_current().enable_progress_bars = False
        yield found
        found.shutdown()


def table(ray: Any, blocks: int = 3, texts: Any = TEXTS, ids: Any = range(SIZE)) -> Any:
    rows = [{"text": text, "id": one} for text, one in zip(texts, ids, strict=True)]
    return ray.data.from_items(rows).repartition(blocks)


def inserted(source: Any, **options: Any) -> tuple[Any, Manifest]:
    return insert_into_ray(source, PLAN, **{"total": SIZE, "id_column": "id", **options})


def texts_of(dataset: Any) -> list[str]:
    return [row["text"] for row in dataset.take_all()]


@pytest.mark.parametrize("blocks", [1, 3, 8])
def test_any_number_of_parts_gives_the_same(ray: Any, blocks: int) -> None:
    dataset, manifest = inserted(table(ray, blocks))
    assert Counter(texts_of(dataset)) == WHOLE
    assert manifest.sha256 == MANIFEST.sha256


def test_documents_are_counted_where_their_number_is_not_given(ray: Any) -> None:
    for id_column in (None, "id"):
        dataset, manifest = lx.insert(table(ray), PLAN, id_column=id_column)
        assert Counter(texts_of(dataset)) == WHOLE
        assert manifest == MANIFEST


def test_shuffled_rows_and_constants(ray: Any) -> None:
    dataset, _ = inserted(table(ray).random_shuffle(seed=2), fields={"id": -1}, check_ids=False)
    rows = dataset.take_all()
    assert Counter(row["text"] for row in rows) == WHOLE
    assert all((row["id"] == -1) == (row["text"] not in TEXTS) for row in rows)


def lines(ray: Any, folder: Path, blocks: int) -> Any:
    for part in range(3):
        texts = TEXTS[part * 20 : part * 20 + 20]
        (folder / f"{part}.txt").write_text("".join(text + "\n" for text in texts))
    paths = [str(folder / f"{part}.txt") for part in range(3)]
    return ray.data.read_text(paths, override_num_blocks=blocks)


@pytest.mark.parametrize("blocks", [1, 8])
def test_numbers_follow_the_source(ray: Any, tmp_path: Path, blocks: int) -> None:
    source = lines(ray, tmp_path, blocks)
    kept = source.context.execution_options.preserve_order
    numbered = number_documents(source, id_column="id")
    assert {row["id"]: row["text"] for row in numbered.take_all()} == dict(enumerate(TEXTS))
    assert source.context.execution_options.preserve_order == kept
    assert Counter(texts_of(inserted(numbered)[0])) == WHOLE
    with pytest.raises(CorpusError, match="there is a column 'id' already; choose another"):
        number_documents(numbered, id_column="id")


@pytest.mark.parametrize("total", [None, SIZE])
def test_without_numbers_they_are_those_of_the_source(
    ray: Any, tmp_path: Path, total: int | None
) -> None:
    source = lines(ray, tmp_path, 8)
    numbered = source.map_batches(
        lambda table: table.append_column("document", table["text"]), batch_format="pyarrow"
    )
    for rows in (source, numbered):
        dataset, manifest = inserted(rows, total=total, id_column=None)
        assert manifest == MANIFEST
        assert dataset.columns() == rows.columns()
        assert Counter(texts_of(dataset)) == WHOLE
    again, _ = insert_into_ray(source, MANIFEST)
    assert Counter(texts_of(again)) == WHOLE
    with pytest.raises(CorpusError, match="there are 60 rows, but total=61; count them again"):
        inserted(source, total=SIZE + 1, id_column=None, check_ids=False)
    with pytest.raises(CorpusError, match="there is a document 59, but with total=59"):
        inserted(source, total=SIZE - 1, id_column=None)
    other = InsertionStep.of(PLAN, total=SIZE + 1).manifest
    with pytest.raises(ManifestError, match="total=60, but the manifest was made for 61"):
        insert_into_ray(source, other)


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        (range(SIZE), {"total": SIZE + 1}, "there are 60 rows, but total=61; count them again"),
        (range(SIZE), {"total": SIZE - 1}, "there is a document 59, but with total=59"),
        ([*range(SIZE - 1), 5], {}, "column 'id' holds a number twice and lacks another"),
        ([str(one) for one in range(SIZE)], {}, "the number '0' of type str"),
        (range(SIZE), {"text_field": "body"}, "no column 'body'; there are text, id"),
        (
            range(SIZE),
            {"fields": {"document": 1}, "id_column": None},
            "no column 'document'; there are text, id",
        ),
    ],
)
def test_refused_data_sets(ray: Any, ids: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        inserted(table(ray, 8, ids=ids), **options)


def test_the_example(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, out, manifest = (tmp_path / name for name in ("corpus.txt", "out", "manifest.json"))
    corpus.write_text("".join(text + "\n" for text in TEXTS))
    monkeypatch.setattr("sys.argv", ["ray_data.py", str(corpus), str(out), str(manifest)])
    runpy.run_path(str(EXAMPLES / "ray_data.py"))
    texts = texts_of(ray.data.read_parquet(str(out)))
    assert len(texts) == SIZE + 36 + 7  # the last are copies of a witness
    whole = with_canaries(TEXTS, Manifest.read(manifest))
    assert Counter(texts) == Counter(whole)


def test_chats_as_in_a_list(ray: Any) -> None:
    records = chats.records()
    wanted, manifest = lx.insert(records, chats.PLAN, wrapping=chats.ANSWER)
    rows, same = lx.insert(ray.data.from_items(records), chats.PLAN, wrapping=chats.ANSWER)
    assert same.entries == manifest.entries
    assert sorted(map(str, rows.take_all())) == sorted(map(str, wanted))
    again, _ = lx.insert(ray.data.from_items(records), same)
    assert sorted(map(str, again.take_all())) == sorted(map(str, wanted))
