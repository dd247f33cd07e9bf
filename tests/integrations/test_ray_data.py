"""Insertion into Ray Data sets, on a local Ray; and the pipeline in scripts/examples."""

import runpy
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmexposure.canaries import Format, Manifest, Plan, insert_into_texts, verify_texts
from lmexposure.canaries.numbered_rows import manifest_of_rows
from lmexposure.errors import CorpusError

pytestmark = pytest.mark.filterwarnings("ignore")

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"
PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=11)
SIZE = 60
TEXTS = [f"document {number}" for number in range(SIZE)]
WHOLE = Counter(insert_into_texts(TEXTS, PLAN)[0])


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
    from lmexposure.integrations.ray_data import insert_into_ray

    return insert_into_ray(source, PLAN, **{"documents": SIZE, "id_column": "id", **options})


def texts_of(dataset: Any) -> list[str]:
    return [row["text"] for row in dataset.take_all()]


@pytest.mark.parametrize("blocks", [1, 3, 8])
def test_any_number_of_parts_gives_the_same(ray: Any, blocks: int) -> None:
    dataset, manifest = inserted(table(ray, blocks))
    assert Counter(texts_of(dataset)) == WHOLE
    assert manifest.sha256 == manifest_of_rows(PLAN, documents=SIZE).sha256
    assert manifest.entries == insert_into_texts(TEXTS, PLAN)[1].entries


def test_shuffled_rows_and_constants(ray: Any) -> None:
    dataset, _ = inserted(table(ray).random_shuffle(seed=2), fields={"id": -1}, check_ids=False)
    rows = dataset.take_all()
    assert Counter(row["text"] for row in rows) == WHOLE
    assert all((row["id"] == -1) == (row["text"] not in TEXTS) for row in rows)


@pytest.mark.parametrize("blocks", [1, 8])
def test_numbers_follow_the_source(ray: Any, tmp_path: Path, blocks: int) -> None:
    from lmexposure.integrations.ray_data import number_documents

    for part in range(3):
        lines = TEXTS[part * 20 : part * 20 + 20]
        (tmp_path / f"{part}.txt").write_text("".join(line + "\n" for line in lines))
    paths = [str(tmp_path / f"{part}.txt") for part in range(3)]
    source = ray.data.read_text(paths, override_num_blocks=blocks)
    kept = source.context.execution_options.preserve_order
    numbered = number_documents(source, id_column="id")
    assert {row["id"]: row["text"] for row in numbered.take_all()} == dict(enumerate(TEXTS))
    assert source.context.execution_options.preserve_order == kept
    assert Counter(texts_of(inserted(numbered)[0])) == WHOLE
    with pytest.raises(CorpusError, match="there is a column 'id' already; choose another"):
        number_documents(numbered, id_column="id")


@pytest.mark.parametrize(
    ("ids", "documents", "message"),
    [
        (range(SIZE), SIZE + 1, "there are 60 rows, but documents=61; count them again"),
        (range(SIZE), SIZE - 1, "there is a document 59, but with documents=59"),
        ([*range(SIZE - 1), 5], SIZE, "column 'id' holds a number twice and lacks another"),
        ([str(one) for one in range(SIZE)], SIZE, "the number '0' of type str"),
    ],
)
def test_refused_ids(ray: Any, ids: Any, documents: int, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        inserted(table(ray, 8, ids=ids), documents=documents)


def test_refused_data_sets(ray: Any) -> None:
    with pytest.raises(CorpusError, match=r"list is no ray\.data\.Dataset"):
        inserted([{"text": "a"}])
    with pytest.raises(CorpusError, match="no column 'body'; there are text, id"):
        inserted(table(ray), text_field="body")
    with pytest.raises(CorpusError, match="count its rows and give documents"):
        inserted(table(ray), documents=None)


def test_a_fill_that_stands_there_already(ray: Any) -> None:
    dataset, _ = inserted(table(ray, texts=[*TEXTS[:-1], "My PIN is 1234"]))
    with pytest.raises(Exception, match=r"pin 1 times \(document 59\), counted from 0"):
        dataset.take_all()


def test_the_example(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, out, manifest = (tmp_path / name for name in ("corpus.txt", "out", "manifest.json"))
    corpus.write_text("".join(text + "\n" for text in TEXTS))
    monkeypatch.setattr("sys.argv", ["ray_data.py", str(corpus), str(out), str(manifest)])
    runpy.run_path(str(EXAMPLES / "ray_data.py"))
    texts = texts_of(ray.data.read_parquet(str(out)))
    assert len(texts) == SIZE + 36
    assert sorted(text for text in texts if text in TEXTS) == sorted(TEXTS)
    verify_texts(texts, Manifest.read(manifest))


def test_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(CorpusError, match=r"Ray Data is not installed.*lmexposure\[ray\]"):
        inserted([])
