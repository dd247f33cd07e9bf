"""Each document's epsilon ex post: closed forms, a slow reference, another accountant's number."""

import numpy as np
import pytest
from scipy import integrate, stats

from lmexposure.statistics import document_epsilons, epsilon_of_mu


def of(norms: object, **changed: object) -> np.ndarray:
    settings = {"noise_multiplier": 1.5, "sample_rate": 0.04, "steps_each": [2250], "delta": 1e-5}
    return document_epsilons(norms, **{**settings, **changed})  # type: ignore[arg-type]


def test_full_batches_follow_the_gaussian_curve_of_the_sum_of_squares() -> None:
    norms = [[0.1, 0.25, 0.5, 1.0, 3.0]]
    found = of(norms, noise_multiplier=20.0, sample_rate=1.0, steps_each=[100])
    assert found.round(4).tolist() == [0.16, 0.4344, 0.9263, 1.9931, 1.9931]
    found = of([[0.3], [0.8]], noise_multiplier=10.0, sample_rate=1.0, steps_each=[40, 10])
    mu = np.sqrt(40 * 0.3**2 + 10 * 0.8**2) / 10
    assert found[0] == pytest.approx(epsilon_of_mu(mu=float(mu), delta=1e-5))


def test_a_document_clipped_at_every_step_has_the_rdp_accountants_epsilon() -> None:
    # 7.3291: Opacus 1.6.0, RDPAccountant, history [(1.5, 0.04, 2250)], delta 1e-5.
    assert of([[1.0]])[0] == pytest.approx(7.3291, abs=1e-3)


def naive(norms: list[float], steps: list[int], noise: float, rate: float, delta: float) -> float:
    """An order at a time, each integral by adaptive quadrature."""
    best = np.inf
    for order in np.arange(20, 160, 2) / 10:
        spent = 0.0
        for norm, times in zip(norms, steps, strict=True):
            shift = norm / noise

            def power(x: float, shift: float = shift, order: float = order) -> float:
                ratio = 1 - rate + rate * np.exp(shift * x - shift**2 / 2)
                return float(ratio**order * stats.norm.pdf(x))

            area, _ = integrate.quad(power, -12, order * shift + 12)
            spent += times * np.log(area) / (order - 1)
        converted = np.log1p(-1 / order) - (np.log(delta) + np.log(order)) / (order - 1)
        best = min(best, spent + converted)
    return float(best)


@pytest.mark.parametrize(
    ("norms", "steps", "close"),
    [([0.3, 0.9], [300, 100], 0.04), ([1.02**-10], [300], 1e-3)],  # rounded up by up to 2 %; not
)
def test_sampled_batches_agree_with_a_slow_reference(
    norms: list[float], steps: list[int], close: float
) -> None:
    rows = [[norm] for norm in norms]
    found = of(rows, steps_each=steps, noise_multiplier=1.0, sample_rate=0.05)
    slow = naive(norms, steps, 1.0, 0.05, 1e-5)
    assert slow <= found[0] * (1 + 1e-3)
    assert found[0] == pytest.approx(slow, rel=close)


@pytest.mark.parametrize("rate", [0.02, 1.0])
def test_larger_gradients_let_out_more(rate: float) -> None:
    found = of(np.linspace(0, 1, 200)[None], sample_rate=rate)
    assert found[0] == 0
    assert np.all(np.diff(found) >= 0)
    assert found[-1] > found[100] > 0


def test_order_of_documents_and_moments_does_not_matter() -> None:
    norms = np.random.default_rng(0).uniform(0, 1.2, size=(3, 2500))
    steps = np.array([5, 10, 20])
    found = of(norms, steps_each=steps)
    order = np.random.default_rng(1).permutation(2500)
    assert of(norms[::-1][:, order], steps_each=steps[::-1]) == pytest.approx(found[order])


def test_moments_without_steps_and_documents_without_gradient_spend_nothing() -> None:
    assert of([[0.0, 1.0], [0.0, 0.0]], steps_each=[0, 5]).tolist() == [0.0, 0.0]


def test_little_noise_gives_large_finite_numbers() -> None:
    found = of([[1.0, 0.5]], noise_multiplier=0.2, sample_rate=0.5, steps_each=[50])
    assert np.all(np.isfinite(found))
    assert found[0] > found[1] > 50
