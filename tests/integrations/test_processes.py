"""A training in several processes, followed by all of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from forks import together
from integrations import train_in_processes

from lmexposure.errors import ResultError
from lmexposure.integrations.callback import from_first
from lmexposure.records import open_run


def test_one_process_decides_by_itself() -> None:
    def fail() -> int:
        raise ResultError("no")

    assert from_first(lambda: 3) == 3
    with pytest.raises(ResultError, match="no"):
        from_first(fail)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("processes")
    together(2, train_in_processes.main, out, said=out / "said.txt")
    return out


@pytest.fixture(scope="module")
def said(out: Path) -> list[dict[str, Any]]:
    return [json.loads((out / f"process-{i}.json").read_text()) for i in (0, 1)]


def test_two_processes_get_the_same_exposures(said: list[dict[str, Any]]) -> None:
    assert [one["processes"] for one in said] == [2, 2]
    assert said[0]["wrapped"] == "DistributedDataParallel"
    assert said[0]["medians"] == said[1]["medians"]
    assert [len(row) for row in said[0]["medians"]] == [3, 3]


def test_their_weights_are_those_of_a_training_without(said: list[dict[str, Any]]) -> None:
    assert len({one for process in said for one in process["weights"]}) == 1


def test_one_file_holds_the_trajectory(out: Path, said: list[dict[str, Any]]) -> None:
    rows = [json.loads(line) for line in (out / "followed/exposure.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 4]
    assert list(rows[1]["exposure"].values()) == list(said[0]["medians"][1].values())


def test_steps_and_the_end_are_those_of_all(out: Path, said: Any) -> None:
    rows = [json.loads(line) for line in (out / "odd/exposure.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [3, 4]


def test_one_process_writes_the_report(out: Path, said: list[dict[str, Any]]) -> None:
    run = open_run(out / "leakage")
    assert run.result.model.weights_sha256 == said[0]["weights"][1]
    assert [row.step for row in run.curve] == [2, 4]
    assert (out / "leakage/report.html").exists()
