import numpy as np
import pytest
from scipy import stats

from lmexposure.statistics.bounds.from_scores import (
    _chance_of_at_most,
    _chance_of_more,
    _least_exceeded,
)


@pytest.mark.parametrize("trials", [1, 2, 30, 1_000, 300_000])
@pytest.mark.parametrize("share", [1e-9, 1e-4, 0.3, 0.5, 0.97])
def test_tails_are_those_of_scipy_stats(trials: int, share: float) -> None:
    law = stats.binom(trials, share)
    counts = np.unique(np.clip(law.ppf([1e-12, 0.01, 0.5, 0.99, 1 - 1e-12]), 0, trials - 1))
    counts = counts.astype(np.int64)
    below = _chance_of_at_most(counts, trials, share)
    above = [_chance_of_more(int(count), trials, share) for count in counts]
    np.testing.assert_allclose(below, law.cdf(counts), rtol=1e-9)
    np.testing.assert_allclose(above, law.sf(counts), rtol=1e-9)


@pytest.mark.parametrize("chance", [0.4, 0.05, 1e-3, 1e-8])
@pytest.mark.parametrize(("trials", "share"), [(1, 0.5), (7, 0.9), (1_000, 1e-5), (90_000, 0.01)])
def test_the_least_count_that_is_exceeded_so_seldom(
    chance: float, trials: int, share: float
) -> None:
    law = stats.binom(trials, share)
    naive = next(count for count in range(trials + 1) if law.sf(count) <= chance)
    assert _least_exceeded(chance, trials, share) == naive


def test_an_exact_count() -> None:
    # 10 fair coins: 8 or fewer heads but for 11 of 1,024 times.
    assert _chance_of_at_most(np.array([8]), 10, 0.5).item() == pytest.approx(1013 / 1024)
    assert _chance_of_more(8, 10, 0.5) == pytest.approx(11 / 1024)
    assert _least_exceeded(11 / 1024 + 1e-12, 10, 0.5) == 8
    assert _least_exceeded(11 / 1024 - 1e-12, 10, 0.5) == 9
