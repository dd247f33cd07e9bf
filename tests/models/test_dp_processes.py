"""The check of a training on two processes, each of which calls it."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from forks import together
from models.dp_trainings import check_in_a_process


@pytest.mark.slow
@pytest.mark.parametrize("double", [False, True])
def test_two_processes_share_the_documents_of_a_step(tmp_path: Path, double: bool) -> None:
    work = functools.partial(check_in_a_process, double=double)
    together(2, work, tmp_path, said=tmp_path / "said.txt")
    for rank in (0, 1):
        found: Any = json.loads((tmp_path / f"process-{rank}.json").read_text())
        failed = {f["name"]: f["message"] for f in found["findings"] if not f["passed"]}
        if double:
            assert set(failed) == {"batch size", "rate"}
            assert (
                "each of 2 processes draws from all documents, and a step" in failed["batch size"]
            )
        else:
            assert failed == {}
