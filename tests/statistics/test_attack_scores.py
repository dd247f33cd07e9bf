import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    area_under_curve,
    min_k,
    min_k_plus_plus,
    negative_log_perplexity,
    reference_difference,
    rmia,
    zlib_ratio,
)

ROWS = st.lists(
    st.lists(st.floats(0, 40, allow_subnormal=False), min_size=1, max_size=30),
    min_size=1,
    max_size=8,
)
Bits = NDArray[np.float64]

# privacytrustlab/ml_privacy_meter run on the input: offline, reference models never saw the
# targets. Probabilities, targets x models.
TARGET = [0.9, 0.5, 0.2]
REFERENCES = [[0.5, 0.6], [0.4, 0.5], [0.3, 0.1]]
POPULATION = [0.4, 0.6, 0.3, 0.8]
POPULATION_REFERENCES = [[0.4, 0.5], [0.5, 0.6], [0.4, 0.3], [0.6, 0.9]]


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


def test_refusals() -> None:
    with pytest.raises(InputError, match=r"base_bits has shape \(1,\); give one for each of 2"):
        reference_difference([1, 2], [1])
    with pytest.raises(InputError, match=r"target_bits\[1\]=nan is not finite"):
        negative_log_perplexity([1, float("nan")])
    with pytest.raises(InputError, match="texts must be a list of 2 strings"):
        zlib_ratio([1, 2], "ab")
    with pytest.raises(InputError, match="token_bits holds no texts"):
        min_k([])
    with pytest.raises(InputError, match=r"token_bits\[1\] has shape \(0,\)"):
        min_k([[1], []])
    with pytest.raises(InputError, match="std_bits must hold one number for each"):
        min_k_plus_plus([[1, 2]], [[1, 2]], [[1]])
    with pytest.raises(InputError, match="std_bits holds -1; a standard deviation"):
        min_k_plus_plus([[1]], [[1]], [[-1]])
    for share in (0, 1.1, float("nan")):
        with pytest.raises(SettingsError, match="must lie above 0 and not above 1"):
            min_k([[1]], share=share)


@pytest.mark.parametrize(("a", "score"), [(1.0, [1, 1, 0.5]), (0.3, [1, 0.5, 0])])
def test_published_scores(a: float, score: list[float]) -> None:
    bits = [-np.log2(np.array(x)) for x in (TARGET, REFERENCES, POPULATION, POPULATION_REFERENCES)]
    assert rmia(bits[0], bits[1].T, bits[2], bits[3].T, a=a) == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize("a", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_against_probabilities_pair_by_pair(a: float, gamma: float) -> None:
    rng = np.random.default_rng(1)
    own, refs, others, other_refs = (rng.uniform(0.5, 6, n) for n in (30, (4, 30), 50, (4, 50)))

    def ratios(bits: Bits, references: Bits) -> Bits:
        marginal = ((1 + a) * (2.0**-references).mean(axis=0) + 1 - a) / 2
        found: Bits = 2.0**-bits / marginal
        return found

    x, z = ratios(own, refs), ratios(others, other_refs)
    expected = [np.mean([one / other > gamma for other in z]) for one in x]
    found = rmia(own, refs, others, other_refs, a=a, gamma=gamma)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_long_texts_do_not_underflow() -> None:
    rng = np.random.default_rng(2)
    hardness = rng.uniform(3000, 9000, 400)
    own = hardness - np.where(np.arange(400) < 200, 20.0, 0) + rng.normal(0, 3, 400)
    refs, others = hardness + rng.normal(0, 3, (4, 400)), rng.uniform(3000, 9000, 300)
    found = rmia(own, refs, others + rng.normal(0, 3, 300), others + rng.normal(0, 3, (4, 300)))
    assert area_under_curve(found[:200], found[200:]).value > 0.95


def test_no_signal_ties_and_lists() -> None:
    rng = np.random.default_rng(3)
    bits = rng.uniform(5, 50, 600)
    own, refs = bits + rng.normal(0, 1, 600), bits + rng.normal(0, 1, (4, 600))
    found = rmia(own[:300], refs[:, :300], own[300:], refs[:, 300:])
    assert found.mean() == pytest.approx(0.5, abs=0.05)
    assert rmia([3, 3], [[3, 3]], [3, 3, 3], [[3, 3, 3]]).tolist() == [0, 0]


def test_rmia_refusals() -> None:
    with pytest.raises(SettingsError, match=r"a=1.5 must lie in \[0, 1\]"):
        rmia([1], [[1]], [1], [[1]], a=1.5)
    with pytest.raises(SettingsError, match="gamma=0 must be a finite number above 0"):
        rmia([1], [[1]], [1], [[1]], gamma=0)
    with pytest.raises(InputError, match=r"reference_bits has shape \(1, 2\); give one row"):
        rmia([1], [[1, 2]], [1], [[1]])
    with pytest.raises(InputError, match="population_bits has shape"):
        rmia([1], [[1]], [], [[1]])
