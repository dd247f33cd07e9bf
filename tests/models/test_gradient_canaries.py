"""Canaries in gradients, and two batches: what is read, what noise leaves, what is no fit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from known import known
from models.bare_optimizer import DIMENSION, optimizer, step
from opacus.optimizers import AdaClipDPOptimizer
from scipy import stats
from torch import nn

import lmexposure as lx
from lmexposure.errors import ModelError, NumericalError, SettingsError
from lmexposure.models import TwoBatches, gradient_canaries, two_batches
from lmexposure.models.dp_accounting import epsilon_spent
from lmexposure.models.gradient_canaries import KINDS
from lmexposure.statistics import sampled_epsilon
from lmexposure.studies.white_box import WhiteBoxBounds

DELTA = 1e-5


def directions(canaries: lx.GradientCanaries) -> torch.Tensor:
    """Of the whole training, shape (count, weights)."""
    found = canaries._directions
    assert found is not None
    return torch.stack([found.combined(row) for row in torch.eye(canaries.count)]).double()


def trained(
    steps: int, noise: float = 1.0, claimed: float | None = None, **given: Any
) -> lx.GradientCanaries:
    """Canaries after so many steps; the optimizer may add less noise than it says."""
    made = optimizer(noise_multiplier=claimed or noise)
    settings = {"sample_rate": 0.2, "count": 32, "seed": 3} | given
    canaries = lx.GradientCanaries(made, **settings)
    if claimed is not None:
        original = canaries._original

        def less() -> None:
            made.noise_multiplier = noise
            original()
            made.noise_multiplier = claimed

        canaries._original = less
    for _ in range(steps):
        step(made)
    return canaries


def audited(steps: int, **given: Any) -> WhiteBoxBounds:
    return trained(steps, **given).audit(delta=DELTA).bounds


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_is_added_to_the_clipped_sum(kind: str) -> None:
    """Without noise to speak of a step is the records' clipped sum and the canaries that joined."""
    made = optimizer(noise_multiplier=1e-12)
    canaries = lx.GradientCanaries(made, sample_rate=1.0, count=32, kind=kind, per_step=0, seed=1)
    gradients = torch.randn(5, DIMENSION, generator=torch.Generator().manual_seed(0))
    clipped = gradients * (0.5 / gradients.norm(dim=1, keepdim=True)).clamp(max=1)
    added = step(made, gradients) - clipped.sum(0)
    expected = (directions(canaries)[torch.from_numpy(canaries.coins)] * 0.5).sum(0)
    assert torch.allclose(added.double(), expected, atol=1e-5)
    # Also what is read: the records do not show.
    assert canaries.scores == pytest.approx(canaries.coins * 1.0, abs=1e-6)


def test_scores_are_those_of_a_plain_sum() -> None:
    made = optimizer()
    canaries = lx.GradientCanaries(made, sample_rate=0.5, count=8, per_step=2, seed=5)
    gradients = torch.randn(3, DIMENSION, generator=torch.Generator().manual_seed(0)) * 0.01
    total = sum((step(made, gradients) - gradients.sum(0)).double() for _ in range(20))
    own = torch.zeros(DIMENSION, dtype=torch.float64)
    for number in range(20):  # a further canary of a step is no longer there behind it
        coins = torch.from_numpy(canaries._coins_of_step(number)).double()
        further = canaries._of_step(number)
        assert further is not None
        own += further.combined(coins).double() * 0.5
    expected = directions(canaries) @ (total - own) / 0.5
    assert canaries.scores == pytest.approx(expected.numpy(), abs=1e-4)
    assert canaries.step_scores.shape == canaries.step_coins.shape == (40,)


def test_scores_have_the_distribution_that_is_said() -> None:
    canaries = trained(400, noise=2.0)
    joined = canaries.scores[canaries.coins]
    assert abs(joined.mean() - 400 * 0.2) < 5 * 2.0 * 20 / np.sqrt(joined.size)
    noise = canaries.step_scores - canaries.step_coins
    assert stats.kstest(noise / 2.0, "norm").pvalue > 1e-4
    outside = canaries.scores[~canaries.coins]
    assert stats.kstest(outside / (2.0 * 20), "norm").pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("same_direction", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_right_noise_is_not_refuted_and_half_of_it_is(same_direction: bool) -> None:
    given = {"same_direction": same_direction, "sample_rate": 0.02}
    right = audited(1_500, **given)
    claimed = epsilon_spent([(1.0, 0.02, 1_500)], delta=DELTA).epsilon
    assert 0 < right.largest < claimed
    promise = {"epsilon": claimed, "noise_multiplier": 1.0}
    assert right.could_refute(**promise)
    assert not right.refutes(**promise)
    assert any("the direction is the same" in line for line in right.assumptions) == same_direction
    assert 1 < known(right.noise_at_most) < 1.6  # 1.15 in the mean, and five standard errors
    found = audited(1_500, noise=0.5, claimed=1.0, **given)
    assert found.noise_multiplier == 1.0
    assert known(found.noise_at_most) < 0.6
    assert found.largest > claimed
    assert found.refutes(**promise)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claimed", "rate", "steps", "count"),
    [(1.0, 0.5, 600, 0), pytest.param(2.0, 0.25, 1_200, 64, marks=pytest.mark.slow)],
)
def test_no_noise_at_all_is_refuted(claimed: float, rate: float, steps: int, count: int) -> None:
    """The accountant has no number for so little noise: it once counted as 0."""
    given = {"sample_rate": rate, "count": count}
    found = audited(steps, noise=1e-6, claimed=claimed, **given)
    promised = epsilon_spent([(claimed, rate, steps)], delta=DELTA).epsilon
    assert found.composed is not None
    assert found.largest > 400 > promised
    assert found.noise_at_most == found.noise_attainable
    least = known(found.noise_at_most)
    assert least < claimed
    assert found.refutes(epsilon=promised, noise_multiplier=claimed)
    # A claim of noise is refuted by itself, whatever epsilon is made of it.
    assert found.refutes(epsilon=1e9, noise_multiplier=claimed)
    assert not found.refutes(epsilon=1e9, noise_multiplier=least)


@pytest.mark.slow
def test_what_few_steps_could_have_shown_is_said() -> None:
    few = audited(10, count=4)
    assert few.largest <= few.attainable < epsilon_spent([(0.3, 0.2, 10)], delta=DELTA).epsilon
    assert not few.could_refute(epsilon=30.0, noise_multiplier=0.3)
    more = audited(200, count=64)
    assert more.attainable > few.attainable
    assert more.one_run is not None
    whole = audited(5, per_step=0, count=64)
    runs = map(known, (whole.one_run, whole.one_run_gaussian))
    assert whole.attainable == max(known(run.max_attainable) for run in runs)
    assert whole.noise_attainable is None


@pytest.mark.slow
def test_right_trainings_are_refuted_no_more_often_than_is_said() -> None:
    """At .05, 60 trainings by simulated scores: of the noise, and of epsilon."""
    canaries = trained(0, count=64, per_step=1)
    promise = {
        "epsilon": epsilon_spent([(0.7, 0.2, 100)], delta=DELTA).epsilon,
        "noise_multiplier": 0.7,
    }
    refuted = {0.7: 0, 0.35: 0}
    for noise, trainings in ((0.7, 60), (0.35, 15)):  # that of the promise, and half of it
        for seed in range(trainings):
            draws = np.random.default_rng(seed)
            tosses = {"seed": seed, "steps": 100, "noises": [0.7]}
            canaries.restore(tosses | {"scores": torch.zeros(64), "step_scores": torch.zeros(100)})
            joined = canaries.coins * draws.binomial(100, 0.2, 64)
            whole = torch.from_numpy(joined + draws.normal(size=64) * noise * 10)
            steps = torch.from_numpy(canaries.step_coins + draws.normal(size=100) * noise)
            canaries.restore(tosses | {"scores": whole, "step_scores": steps})
            refuted[noise] += canaries.audit(delta=DELTA).bounds.refutes(**promise)
    assert stats.binomtest(refuted[0.7], 60, 0.05, alternative="greater").pvalue > 0.01
    assert refuted[0.35] > 13


def test_one_experiment_alone_has_all_of_the_significance() -> None:
    of_steps = audited(50, count=0)
    assert known(of_steps.step).significance == 0.05
    assert of_steps.one_run is None
    whole = audited(50, per_step=0)
    assert whole.step is None
    assert whole.composed is None
    assert known(whole.one_run).significance == 0.025


def test_a_training_that_is_resumed_ends_alike() -> None:
    whole, made = trained(0), optimizer()
    whole.detach()
    first = lx.GradientCanaries(made, sample_rate=0.2, count=32, seed=3)
    for _ in range(30):
        step(made)
    state = first.state()
    first.detach()
    second = lx.GradientCanaries(made, sample_rate=0.2, count=32)
    second.restore(state)
    for _ in range(30):
        step(made)
    undisturbed = trained(60)
    assert np.array_equal(second.scores, undisturbed.scores)
    assert np.array_equal(second.step_scores, undisturbed.step_scores)
    assert np.array_equal(second.step_coins, undisturbed.step_coins)


def test_an_optimizer_is_left_as_it_was() -> None:
    made = optimizer()
    before = made.add_noise
    canaries = lx.GradientCanaries(made, sample_rate=0.2, count=4)
    assert made.add_noise != before
    canaries.detach()
    assert made.add_noise == before
    assert "add_noise" not in vars(made)
    with canaries.attached():
        step(made)
    step(made)
    assert canaries.steps == 1


def test_a_changed_noise_is_said_and_one_step_alone_composed() -> None:
    made = optimizer()
    canaries = lx.GradientCanaries(made, sample_rate=0.2, count=16, seed=1)
    step(made)
    made.noise_multiplier = 0.7
    for _ in range(20):
        step(made)
    found = canaries.audit(delta=DELTA).bounds
    one = sampled_epsilon(mu=known(known(found.step).mu), rate=0.2, delta=DELTA)
    assert found.largest == found.composed == one
    assert found.noise_multiplier == 0.7
    assert any("from 1 to 0.7" in line for line in found.assumptions)


def adaptive() -> Any:
    weight = nn.Parameter(torch.zeros(8))
    given = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": 1}
    given |= {"max_clipbound": 1e8, "min_clipbound": 1.0, "unclipped_num_std": 2.0}
    given |= {"target_unclipped_quantile": 0.5, "clipbound_learning_rate": 0.2}
    return AdaClipDPOptimizer(torch.optim.SGD([weight], lr=0.1), **given)


@pytest.mark.parametrize(
    ("made", "given", "error", "said"),
    [
        (optimizer, {"sample_rate": None}, SettingsError, "sample_rate"),
        (optimizer, {"sample_rate": 1.5}, SettingsError, "sample_rate"),
        (optimizer, {"count": 65}, SettingsError, "65 directions"),
        (optimizer, {"count": 65, "kind": "dirac"}, SettingsError, "65 directions"),
        (optimizer, {"per_step": 100}, SettingsError, "100 directions"),
        (optimizer, {"count": -1}, SettingsError, "count"),
        (optimizer, {"kind": "random"}, SettingsError, "hadamard, dirac"),
        (lambda: optimizer(noise_multiplier=0.0), {}, SettingsError, "without noise"),
        (adaptive, {}, SettingsError, "follows the documents"),
        (lambda: torch.optim.SGD([nn.Parameter(torch.zeros(2))]), {}, ModelError, "DPOptimizer"),
    ],
)
def test_what_is_no_such_training_is_refused(
    made: Callable[[], Any], given: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        lx.GradientCanaries(made(), **({"sample_rate": 0.1, "count": 4} | given))


def test_nothing_is_said_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="no step was taken"):
        trained(0).audit(delta=DELTA)
    few = audited(3, count=4)
    assert few.largest == 0.0
    assert few.weights == DIMENSION
    monkeypatch.setattr(gradient_canaries, "world_size", lambda: 2)
    with pytest.raises(SettingsError, match="there are 2"):
        trained(0)


CPU = torch.device("cpu")


def matrix(kind: str, dimension: int, count: int, seed: int = 1) -> torch.Tensor:
    """All directions, shape (count, dimension)."""
    made = KINDS[kind](dimension, count, seed=seed, device=CPU)
    return torch.stack([made.combined(row) for row in torch.eye(count)]).double()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dimension", "count"), [(1, 1), (64, 64), (1003, 37), (130, 2)])
def test_directions_have_length_1_and_are_at_right_angles(
    kind: str, dimension: int, count: int
) -> None:
    rows = matrix(kind, dimension, count)
    assert torch.allclose(rows @ rows.T, torch.eye(count).double(), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_products_and_sums_are_those_of_the_matrix(kind: str) -> None:
    rows, made = matrix(kind, 1003, 37), KINDS[kind](1003, 37, seed=1, device=CPU)
    generator = torch.Generator().manual_seed(3)
    vector = torch.randn(1003, generator=generator)
    weights = torch.randn(37, generator=generator)
    assert torch.allclose(made.along(vector), rows @ vector.double(), atol=1e-5)
    assert torch.allclose(made.combined(weights).double(), weights.double() @ rows, atol=1e-5)


def test_a_fixed_vector_looks_alike_from_all_of_them() -> None:
    """Also where all of its length is in few weights, or in every other one."""
    for vector in (torch.ones(4096), torch.eye(4096)[7], torch.arange(4096) % 2 * 1.0):
        products = KINDS["hadamard"](4096, 64, seed=4, device=CPU).along(vector)
        assert float((products**2).mean()) < 3 * float((vector**2).sum()) / 4096


@pytest.mark.parametrize(("kind", "count"), [("hadamard", 65), ("dirac", 101)])
def test_more_than_weights_are_refused(kind: str, count: int) -> None:
    with pytest.raises(SettingsError, match=f"{count} directions.*give at most"):
        KINDS[kind](100, count, seed=0, device=CPU)


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
