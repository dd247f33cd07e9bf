"""Loops and steps that let documents past the noise: faults that two steps' second moments hide."""

from typing import Any

import pytest
import torch
from models.dp_faults import FAULTS, all_to_the_bound, clipped_by, in_the_loop
from models.dp_trainings import Training, loss_of_documents, one_turn, training_of

import lmexposure as lx

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
Planted = tuple[Training, dict[str, Any]]


def checked(planted: Planted) -> Any:
    training, more = planted
    more = {"loss": loss_of_documents, "accountant": training.engine, **more}
    return lx.dp_check(*training.given(), **more)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str) -> None:
    """All but the one of which `not_covered` says that it is not looked for."""
    fault = FAULTS[name]
    found = checked(fault.plant())
    if not fault.where:
        assert found.passed, str(found)
        assert "documents that are in the corpus more than once" in found.not_covered
        return
    said = {finding.name: finding.message for finding in found.failed}
    assert fault.where in said, str(found)
    assert fault.words in said[fault.where], said[fault.where]


def test_right_trainings_beside_the_faults_pass() -> None:
    for planted in (
        (training_of("tokens"), {}),
        (training_of("tied"), {}),
        clipped_by(all_to_the_bound),
    ):
        found = checked(planted)
        assert found.passed, str(found)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_right_loops_pass(optimizer: Any) -> None:
    training = training_of("gpt2", optimizer=optimizer, lr=1e-3)
    found = checked((training, {"step": one_turn(training)}))
    assert found.passed, str(found)


def test_a_schedule_within_the_loop_is_not_seen() -> None:
    steps = [0]

    def schedule(training: Training, batch: Any, loss: torch.Tensor) -> None:
        steps[0] += 1
        training.optimizer.param_groups[0]["lr"] = 0.1 / steps[0]

    found = checked(in_the_loop(schedule))
    assert [finding.name for finding in found.not_seen] == ["update"], str(found)
    assert not found.failed
