import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.statistics import (
    min_k,
    min_k_plus_plus,
    negative_log_perplexity,
    reference_difference,
    zlib_ratio,
)

ROWS = st.lists(
    st.lists(st.floats(0, 40, allow_subnormal=False), min_size=1, max_size=30),
    min_size=1,
    max_size=8,
)


def test_higher_means_more_likely_in() -> None:
    assert negative_log_perplexity([3, 9]).tolist() == [-3, -9]
    assert reference_difference([3, 9], [9, 9]).tolist() == [6, 0]
    same = zlib_ratio([30, 90], ["abcdefgh", "abcdefgh"])
    assert same[0] > same[1]


def test_zlib_counts_bits_of_utf8() -> None:
    texts = ["The random number is 281265017", "ä" * 50]
    expected = [-40 / (8 * len(zlib.compress(text.encode()))) for text in texts]
    assert zlib_ratio([40, 40], texts).tolist() == expected


@given(ROWS, st.sampled_from([0.1, 0.2, 0.5, 1.0]))
def test_min_k_against_a_slow_version(rows: list[list[float]], share: float) -> None:
    expected = []
    for row in rows:
        worst = sorted(row, reverse=True)[: max(1, int(share * len(row) + 1e-9))]
        expected.append(-sum(worst) / len(worst))
    np.testing.assert_allclose(min_k(rows, share=share), expected, atol=1e-9)


@given(ROWS, st.sampled_from([0.1, 0.2, 0.5, 1.0]))
def test_min_k_plus_plus_against_a_slow_version(rows: list[list[float]], share: float) -> None:
    rng = np.random.default_rng(1)
    means = [rng.uniform(0, 5, len(row)) for row in rows]
    spreads = [rng.uniform(0.1, 3, len(row)) for row in rows]
    expected = []
    for row, mean, spread in zip(rows, means, spreads, strict=True):
        found = sorted((m - b) / s for b, m, s in zip(row, mean, spread, strict=True))
        found = found[: max(1, int(share * len(row) + 1e-9))]
        expected.append(sum(found) / len(found))
    np.testing.assert_allclose(
        min_k_plus_plus(rows, means, spreads, share=share), expected, atol=1e-9
    )


def test_a_flat_distribution_gives_no_signal() -> None:
    """Rounding in float32 leaves a spread of about 1e-7 there, and must not be divided by."""
    rows = [[6.0 + 1e-7, 6.0], [6.0 - 3e-7, 6.0, 6.0]]
    flat = [np.full(len(row), 1e-7) for row in rows]
    assert min_k_plus_plus(rows, [[6, 6], [6, 6, 6]], flat).tolist() == [0, 0]


def test_a_hundred_thousand_texts() -> None:
    rng = np.random.default_rng(2)
    rows = list(rng.uniform(0, 9, (10**5, 10)))
    np.testing.assert_allclose(min_k(rows), [-np.sort(row)[-2:].mean() for row in rows])
