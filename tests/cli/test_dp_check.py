"""`lmexposure dp-check`: its exit codes, of a training that is right, wrong, and not seen."""

from pathlib import Path
from typing import Any

import pytest
import torch
from cli.conftest import Call, Outcome
from corpora import write_corpus

from lmexposure.models import dp_sgd


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus.txt", 120)


def checked(call: Call, corpus: Path) -> Outcome:
    shape = ("--set", "layers=1", "--set", "units=8", "--set", "block_size=16")
    return call("dp-check", corpus, *shape, "--epsilon", 8, "--delta", "1e-3")


class Asking(torch.optim.AdamW):
    """Moves by something that a copy of the weights does not have."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            p.grad *= p.scale
        super().step()


def asking(model: Any, settings: Any) -> Any:
    weights = list(model.parameters())
    for p in weights:
        p.scale = 0.5
    return Asking(weights, lr=0.1)


class Clean(torch.optim.AdamW):
    """Adds the sum without its noise to the noisy one."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            p.grad += p.summed_grad.view_as(p)
        super().step()


@pytest.mark.slow
def test_a_right_training_is_exit_code_0(call: Call, corpus: Path) -> None:
    seen = checked(call, corpus)
    assert seen.code == 0, seen
    assert "a pass does not cover what is named above" in seen.out


def test_a_wrong_training_is_exit_code_1(
    call: Call, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dp_sgd, "new_optimizer", lambda m, s: Clean(m.parameters(), lr=0.1))
    seen = checked(call, corpus)
    assert seen.code == 1, seen
    assert "WRONG  update: documents get past the noise into" in seen.out
    assert "WRONG: this is not the training that its epsilon is for" in seen.out


def test_a_training_that_is_not_seen_is_exit_code_2(
    call: Call, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dp_sgd, "new_optimizer", asking)
    seen = checked(call, corpus)
    assert seen.code == 2, seen
    assert "not seen  update: Asking cannot be replayed on the noisy gradient" in seen.out
    assert "not known: some of it could not be looked at" in seen.out
    assert "WRONG" not in seen.out
