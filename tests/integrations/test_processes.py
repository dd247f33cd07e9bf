"""A training in several processes, followed by all of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from forks import together
from integrations import train_in_processes

from lmexposure.errors import ResultError
from lmexposure.scoring import from_first
from lmexposure.studies import Result


def test_one_process_decides_by_itself() -> None:
    def fail() -> int:
        raise ResultError("no")

    assert from_first(lambda: 3) == 3
    with pytest.raises(ResultError, match="no"):
        from_first(fail)


@pytest.mark.slow
def test_two_processes_train_and_report_as_one(tmp_path: Path) -> None:
    together(2, train_in_processes.main, tmp_path, said=tmp_path / "said.txt")
    said = [json.loads((tmp_path / f"process-{i}.json").read_text()) for i in (0, 1)]
    assert [one["processes"] for one in said] == [2, 2]
    assert said[0]["wrapped"] == "DistributedDataParallel"
    assert said[0]["medians"] == said[1]["medians"]
    assert [len(row) for row in said[0]["medians"]] == [3, 3]
    assert len({one for process in said for one in process["weights"]}) == 1

    def rows_of(training: str) -> list[dict[str, Any]]:
        lines = (tmp_path / training / "exposure.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    assert [row["step"] for row in rows_of("odd")] == [3, 4]  # steps and the end are those of all
    followed = rows_of("followed")
    assert [row["step"] for row in followed] == [2, 4]
    assert list(followed[1]["exposure"].values()) == list(said[0]["medians"][1].values())
    run = Result.read(tmp_path / "leakage")  # by one of them
    assert run.model.weights_sha256 == said[0]["weights"][1]
    assert [row.step for row in run.files.curve] == [2, 4]
    assert (tmp_path / "leakage/report.html").exists()
