import math

import numpy as np
import pytest
from scipy import stats

from lmexposure.statistics import one_run_epsilon, one_run_p_value

# Steinke, Nasr, Jagielski 2023 (arXiv 2305.08846), Theorem 5.2 and Appendix D. The first four rows
# of CASES are published there; jax_privacy and ml_privacy_meter print the others alike.
# (canaries, guesses, correct, epsilon, delta, p-value)
P_VALUES = [
    (100, 100, 75, math.log(3), 0.0, 0.553470823848),
    (1000, 100, 100, 1.0, 1e-5, 0.0005633089841),
    (100, 100, 75, 1.0, 0.0, 0.3827218673),
]
# (canaries, guesses, correct, delta, epsilon) at significance 0.05
CASES = [
    (100, 100, 75, 0.0, 0.70221402),
    (100, 100, 75, 1e-4, 0.699466911),
    (1000, 100, 75, 1e-4, 0.67298473),
    (10000, 10000, 9820, 1e-5, 3.871316849),
    (100, 100, 100, 0.0, 3.492965),
    (100, 100, 90, 0.0, 1.630823),
    (1000, 1000, 600, 1e-5, 0.297227),
    (1000, 1000, 900, 1e-5, 2.020646),
    (1000, 100, 95, 1e-5, 2.165176),
]
CEILINGS = [(16, 1.580323), (100, 3.492965), (1000, 5.809068), (10000, 8.113002)]


def slow_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Theorem 5.2, term by term."""
    count = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    most = max(
        (math.fsum(count.pmf(np.arange(correct - i, correct))) / i for i in range(1, correct + 1)),
        default=0.0,
    )
    return min(1.0, float(count.sf(correct - 1)) + 2 * canaries * delta * most)


def test_published_values() -> None:
    for m, k, correct, epsilon, delta, p in P_VALUES:
        counts = {"canaries": m, "guesses": k, "correct": correct}
        found = one_run_p_value(**counts, epsilon=epsilon, delta=delta)
        assert found == pytest.approx(p, abs=1e-9)
    for m, k, correct, delta, epsilon in CASES:
        bound = one_run_epsilon(canaries=m, guesses=k, correct=correct, delta=delta)
        assert bound.value == pytest.approx(epsilon, abs=1e-6)
    for m, epsilon in CEILINGS:
        bound = one_run_epsilon(canaries=m, guesses=m, correct=m // 2)
        assert bound.max_attainable == pytest.approx(epsilon, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, 9.0])
@pytest.mark.parametrize(
    ("guesses", "correct"), [(1, 0), (1, 1), (60, 1), (60, 20), (60, 45), (60, 60), (400, 390)]
)
def test_p_value_term_by_term(guesses: int, correct: int, epsilon: float) -> None:
    found = one_run_p_value(
        canaries=500, guesses=guesses, correct=correct, epsilon=epsilon, delta=2e-4
    )
    slow = slow_p_value(500, guesses, correct, epsilon, 2e-4)
    assert found == pytest.approx(slow, rel=1e-9, abs=1e-15)


def test_coverage_of_randomised_response() -> None:
    generator = np.random.default_rng(11)
    bounds = [
        one_run_epsilon(canaries=400, guesses=400, correct=int(count)).value
        for count in generator.binomial(400, 1 / (1 + math.exp(-1)), 500)
    ]
    # Above 49 of 500 in fewer than 2 of 100,000 at the exact level.
    assert sum(bound > 1 for bound in bounds) <= 49
