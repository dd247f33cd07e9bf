"""The average of the weights in private training, by a plain loop, and what it leaves alone."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hashes import sha256_tree
from known import known
from models.small_private import PRIVATE, adapted, interrupted_at, lstm, made, trained
from torch import Tensor

from lmexposure.models import TrainingSettings, load_model
from lmexposure.studies import TrainingResult

pytest.importorskip("opacus")
pytestmark = pytest.mark.usefixtures("accounted_once")

AVERAGED = replace(PRIVATE, weight_average=0.7, epochs=1)


def flat(model: Any) -> Tensor:
    """All weights that are trained, in float64."""
    learned = [w.detach() for w in model.parameters() if w.requires_grad]
    return torch.cat([w.flatten() for w in learned]).double().clone()


def naive(raw: list[Tensor], most: float) -> Tensor:
    """After the first step its weights; then a share of the average, and the rest of the new ones.

    As tf.train.ExponentialMovingAverage with num_updates, which De et al. 2022 have.
    """
    average = raw[0]
    for step, weights in enumerate(raw[1:], 1):
        share = min(most, (1 + step) / (10 + step))
        average = share * average + (1 - share) * weights
    return average


@pytest.mark.parametrize("name", ["lstm", "gpt2+lora"])
@pytest.mark.parametrize("most", [0.3, 0.999])
def test_it_is_a_running_average_of_the_weights_after_each_step(
    name: str, most: float, tmp_path: Path
) -> None:
    model, settings = adapted(name, tmp_path)
    method = made(model, replace(settings, weight_average=most))
    before = flat(method.model)
    with method.evaluated() as own:
        assert torch.equal(flat(own), before)
    raw = []
    for step in range(6):
        units = np.arange(step, step + 5 * (step != 2))  # one step without a unit
        method.learn(units, step=step, rate=0.05)
        raw.append(flat(method.model))
        with method.evaluated() as averaged:
            assert averaged is method.model
            assert torch.allclose(flat(averaged), naive(raw, most), atol=1e-6)
        assert torch.equal(flat(method.model), raw[-1])
    assert not torch.allclose(naive(raw, most), raw[-1], atol=1e-3)


def test_whatever_happens_in_an_evaluation_the_weights_come_back() -> None:
    method = made(lstm().model, AVERAGED)
    for step in range(2):
        method.learn(np.arange(4), step=step, rate=0.05)
    raw = flat(method.model)
    with pytest.raises(KeyboardInterrupt), method.evaluated():
        raise KeyboardInterrupt
    assert torch.equal(flat(method.model), raw)


@pytest.mark.slow
def test_a_training_keeps_the_average_and_goes_on_from_the_weights(tmp_path: Path) -> None:
    """Interrupted or not; the weights, the noise and the claim are those of one without it."""
    once = replace(AVERAGED, evaluate_every=10**6)  # at the end

    def followed(name: str, settings: TrainingSettings) -> tuple[TrainingResult, list[Tensor]]:
        loaded, weights = lstm(0.2), list[Tensor]()
        result = trained(
            tmp_path / name, loaded, lambda _: weights.append(flat(loaded.model)), settings
        )
        return result, weights

    whole, raw = followed("whole", once)
    plain, without = followed("plain", replace(once, weight_average=None))
    assert len(raw) == whole.steps == 7
    kept = flat(load_model(whole.model_path).model)
    assert torch.allclose(kept, naive(raw, 0.7), atol=1e-6)
    assert not torch.allclose(kept, raw[-1], atol=1e-3)
    assert all(torch.equal(a, b) for a, b in zip(raw, without, strict=True))
    assert known(whole.claim) == plain.claim
    assert whole.validation_bits != plain.validation_bits
    again = partial(trained, settings=once)
    interrupted_at((1, 4), tmp_path / "out", again)
    resumed = again(tmp_path / "out")
    assert sha256_tree(resumed.model_path) == sha256_tree(whole.model_path)
    assert (resumed.claim, resumed.validation_bits) == (whole.claim, whole.validation_bits)
