"""Two batches that differ in one document: right noise, half of it, clipping, and no fit."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from models.bare_optimizer import DIMENSION, optimizer
from scipy import stats

from lmexposure.errors import NumericalError, SettingsError
from lmexposure.models import TwoBatches, two_batches

GRADIENTS = torch.randn(6, DIMENSION, generator=torch.Generator().manual_seed(2))


def batch(made: Any, rows: torch.Tensor) -> Callable[[], None]:
    def backward() -> None:
        (weight,) = made.params
        weight.grad_sample = rows.clone()

    return backward


def found(made: Any, *, document: torch.Tensor = GRADIENTS[5:], **given: Any) -> TwoBatches:
    with_document = torch.cat([GRADIENTS[:5], document])
    return two_batches(
        made,
        batch(made, GRADIENTS[:5]),
        batch(made, with_document),
        **({"delta": 1e-5, "draws": 2_000, "seed": 4} | given),
    )


def test_right_noise_hides_as_much_as_it_says() -> None:
    right = found(optimizer(noise_multiplier=1.0))
    assert right.shift == pytest.approx(1.0, abs=1e-4)
    assert right.claimed_mu == 1.0
    assert 0.8 < right.bound.mu < 1.0
    assert not right.broken


def test_half_of_the_noise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    made = optimizer(noise_multiplier=1.0)
    original = made.add_noise

    def less() -> None:
        made.noise_multiplier = 0.5
        original()
        made.noise_multiplier = 1.0

    monkeypatch.setattr(made, "add_noise", less)
    seen = found(made)
    assert seen.bound.mu > 1.5
    assert seen.broken


def test_no_clipping_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    made = optimizer(noise_multiplier=1.0, clip=0.5)

    def all_of_it() -> None:
        (weight,) = made.params
        weight.summed_grad = weight.grad_sample.sum(0)

    monkeypatch.setattr(made, "clip_and_accumulate", all_of_it)
    seen = found(made)
    assert seen.shift == pytest.approx(float(GRADIENTS[5].norm()) / 0.5, rel=1e-4)
    assert seen.broken


def test_bounds_lie_above_the_truth_rarely() -> None:
    above = sum(found(optimizer(seed=s), draws=100, seed=s).bound.mu > 1.0 for s in range(200))
    assert above <= stats.binom.ppf(1 - 1e-4, 200, 0.05)


def test_what_tells_nothing_is_refused() -> None:
    with pytest.raises(SettingsError, match="nothing to tell"):
        found(optimizer(), document=torch.zeros(1, DIMENSION))
    with pytest.raises(NumericalError, match="not finite"):
        found(optimizer(), document=torch.full((1, DIMENSION), float("nan")))
    with pytest.raises(SettingsError, match="draws"):
        found(optimizer(), draws=10)
