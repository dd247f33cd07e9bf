import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lmexposure.errors import NumericalError
from lmexposure.statistics.bounds import from_scores
from lmexposure.statistics.bounds.from_scores import Staircase, _log_prefix_ratio

ROUNDING = 1e-7


def _naive(steps: list[tuple[int, int]], n: int, m: int, epsilon: float) -> float:
    """Condition on how many others lie below e^-epsilon: all orders of those are as likely."""
    total = 0.0
    for a in range(m + 1):
        weight = stats.binom.pmf(a, m, math.exp(-epsilon))
        ways = np.zeros((n + 1, a + 1), dtype=object)
        for k in range(n + 1):
            for y in range(a + 1):
                free = 1 if k == y == 0 else 0
                free += ways[k, y - 1] if y else 0
                # Arriving at the k-th point with y others before it.
                arrived = ways[k - 1, y] if k else 0
                crossed = any(k == rank and y <= count for rank, count in steps)
                ways[k, y] = free + (0 if crossed else arrived)
        total += weight * (1 - ways[n, a] / math.comb(n + a, n))
    return float(total)


@settings(max_examples=60)
@given(st.data())
def test_chance_against_counting_orders(data: st.DataObject) -> None:
    n, m = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    length = data.draw(st.integers(1, min(n, m)))
    some = st.lists(st.integers(1, n), min_size=length, max_size=length, unique=True)
    ranks = sorted(data.draw(some))
    low = st.lists(st.integers(0, m - 1), min_size=length, max_size=length, unique=True)
    counts = sorted(data.draw(low))
    epsilon = data.draw(st.sampled_from([0.0, 0.3, 1.0, 4.0]))
    stairs = Staircase(ranks=tuple(ranks), counts=tuple(counts), size=n, others=m)
    expected = _naive(list(zip(ranks, counts, strict=True)), n, m, epsilon)
    assert stairs.probability(epsilon, 0.0) == pytest.approx(min(1, expected + ROUNDING), abs=1e-9)


@pytest.mark.parametrize(("n", "m"), [(40, 90), (90, 40), (2000, 1500)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.7, 0.0), (0.7, 0.02), (0.0, 0.0)])
def test_chance_against_simulation(n: int, m: int, epsilon: float, delta: float) -> None:
    rng, draws = np.random.default_rng(3), 2_000
    spared = int(stats.binom.isf(1e-3, n, delta)) if delta else 0
    ranks = [spared + 1 + n // 8, spared + n // 3, n - n // 4]
    expected = [k * m / n * math.exp(-epsilon) for k in ranks]
    counts = [int(share * y) for share, y in zip((0.5, 0.75, 0.9), expected, strict=True)]
    hit = 0
    for _ in range(draws):
        points = np.sort(np.maximum(rng.random(n) - delta, 0)) * math.exp(-epsilon)
        others = np.sort(rng.random(m))
        before = np.searchsorted(others, points[np.array(ranks) - 1])
        hit += bool((before <= counts).any())
    found = Staircase(
        ranks=tuple(ranks), counts=tuple(counts), size=n, others=m, spared=spared
    ).probability(epsilon, delta)
    error = 4 * math.sqrt(0.25 / draws)
    assert found >= hit / draws - error
    # With delta each range of spared points is given the chance of its upper end.
    assert found <= hit / draws + error + (0.08 if delta else 0)


def test_one_step_is_a_beta_binomial() -> None:
    n, m, k, b, epsilon = 50, 3000, 20, 700, 0.5
    v = stats.beta(k, n - k + 1).ppf((np.arange(200_000) + 0.5) / 200_000)
    expected = stats.binom.cdf(b, m, v * math.exp(-epsilon)).mean()
    found = Staircase(ranks=(k,), counts=(b,), size=n, others=m).probability(epsilon, 0.0)
    assert found == pytest.approx(expected, abs=1e-6)


def test_it_grows_with_epsilon_and_delta() -> None:
    stairs = Staircase(ranks=(20, 60), counts=(5, 40), size=100, others=100, spared=8)
    chances = [stairs.probability(epsilon, 0.0) for epsilon in np.linspace(0, 4, 30)]
    assert (np.diff(chances) > -1e-9).all()
    assert stairs.probability(0.5, 0.0) < stairs.probability(0.5, 0.01)
    assert stairs.probability(0.5, 0.01) < stairs.probability(0.5, 0.05)
    assert Staircase(ranks=(), counts=(), size=3, others=3).probability(1.0, 0.0) == 0


def test_where_the_walk_is_kept_makes_no_difference() -> None:
    settings_ = {"ranks": (300, 900), "counts": (200, 800), "size": 2000, "others": 2500}
    near = Staircase(**settings_, spacing=0.001).probability(0.22, 0.0)  # type: ignore[arg-type]
    far = Staircase(**settings_, spacing=0.15).probability(0.22, 0.0)  # type: ignore[arg-type]
    assert near == pytest.approx(far, abs=1e-7)


def test_a_kept_walk_overlaps_the_one_that_is_wanted() -> None:
    # A walk .24 away has its mass elsewhere: weighted, it was "alive" with probability 2.97.
    settings_ = {"ranks": (7500, 9919), "counts": (1, 3), "size": 10378, "others": 1581}
    for epsilon in (0.0, 0.25, 0.5):
        far = Staircase(**settings_, spacing=0.493)  # type: ignore[arg-type]
        assert far.probability(epsilon, 0.0) == pytest.approx(ROUNDING, abs=1e-8)


@pytest.mark.parametrize("size", [399, 400, 401])
def test_a_sample_that_is_used_up_is_interpolated_as_well(size: int) -> None:
    # Near the last point the weights bend like a logarithm; even knots gave .04229 at 400.
    counts = (0, 1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 24, 29, 36)
    ranks = (56, 74, 85, 98, 113, 130, 150, 172, 198, 228, 262, 301, 346, 398)
    stairs = Staircase(ranks=ranks, counts=counts, size=size, others=400)
    chances = [stairs.probability(epsilon, 0.0) for epsilon in (0.0, 0.01, 0.02, 0.05)]
    assert chances == pytest.approx([ROUNDING] * 4, rel=0.05)


def test_it_is_smooth_over_sizes_and_epsilons() -> None:
    rng = np.random.default_rng(11)
    for n, m in np.exp(rng.uniform(0, math.log(20_000), (60, 2))).astype(int).tolist():
        m = n if rng.random() < 0.3 else m
        ranks = np.unique(np.geomspace(1, n, 12).astype(int))
        counts = np.maximum.accumulate((rng.uniform(0.05, 0.9) * ranks * m / n).astype(int))
        first = np.unique(counts, return_index=True)[1]
        stairs = Staircase(
            ranks=tuple(ranks[first].tolist()),
            counts=tuple(counts[first].tolist()),
            size=n,
            others=m,
            spacing=0.2,
        )
        step = 0.02 / math.sqrt(n + m)
        chances = [stairs.probability(k * step, 0.0) for k in range(24)]
        assert np.diff(chances).min() > -1e-8, (n, m)
        assert np.abs(np.diff(chances, 3)).max() < 1e-4, (n, m)


def test_a_chance_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        from_scores, "_log_prefix_ratio", lambda *a, **k: _log_prefix_ratio(*a, **k) + 1e-3
    )
    with pytest.raises(
        NumericalError, match=r"chance of no event is 1\.001.* 20 points, 30 others"
    ):
        Staircase(ranks=(20,), counts=(0,), size=20, others=30).probability(0.0, 0.0)


def test_a_prefix_without_privacy_loss_is_one_of_all_arrangements() -> None:
    n, m = 7, 5
    found = _log_prefix_ratio(
        np.array([2.0, 7.0]), np.array([3.0, 0.0]), sizes=(n, m), slope=1.0, theta=0.4
    )
    for value, (a, b) in zip(found, [(2, 3), (7, 0)], strict=True):
        exact = math.comb(n + m - a - b, n - a) / math.comb(n + m, n)
        assert value == pytest.approx(math.log(exact / (0.4**a * 0.6**b)), abs=1e-10)


@pytest.mark.parametrize("slope", [1.0, 1.5, 20.0])
@pytest.mark.parametrize(("n", "m"), [(200_000, 20_000), (9_000, 90_000), (30, 40), (1, 900)])
def test_laws_of_one_rank_add_up_to_1(n: int, m: int, slope: float) -> None:
    # Weighted by the ratio, the negative binomial law of others before the k-th point becomes the
    # true one, whose sum is 1; k = n has its peak at the end of the range.
    theta = slope * n / (slope * n + m)
    for k in {1, min(2, n), n // 9 + 1, n // 3 + 1, n - n // 7, n}:
        law = stats.nbinom(k, theta)
        middle, reach = law.mean(), 12 * law.std() + 40 / theta
        y = np.arange(max(0, int(middle - reach)), min(m, int(middle + reach)) + 1, dtype=float)
        ratio = _log_prefix_ratio(np.full_like(y, k), y, sizes=(n, m), slope=slope, theta=theta)
        assert np.exp(ratio + law.logpmf(y)).sum() == pytest.approx(1, abs=1e-8)
