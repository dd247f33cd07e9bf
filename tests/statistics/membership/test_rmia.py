import numpy as np
import pytest
from numpy.typing import NDArray

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    area_under_curve,
    rmia,
)

Bits = NDArray[np.float64]

# privacytrustlab/ml_privacy_meter run on the input: offline, reference models never saw the
# targets. Probabilities, targets x models.
TARGET = [0.9, 0.5, 0.2]
REFERENCES = [[0.5, 0.6], [0.4, 0.5], [0.3, 0.1]]
POPULATION = [0.4, 0.6, 0.3, 0.8]
POPULATION_REFERENCES = [[0.4, 0.5], [0.5, 0.6], [0.4, 0.3], [0.6, 0.9]]


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


def test_refusals() -> None:
    with pytest.raises(SettingsError, match=r"a=1.5 must lie in \[0, 1\]"):
        rmia([1], [[1]], [1], [[1]], a=1.5)
    with pytest.raises(SettingsError, match="gamma=0 must be a finite number above 0"):
        rmia([1], [[1]], [1], [[1]], gamma=0)
    with pytest.raises(InputError, match=r"reference_bits has shape \(1, 2\); give one row"):
        rmia([1], [[1, 2]], [1], [[1]])
    with pytest.raises(InputError, match="population_bits has shape"):
        rmia([1], [[1]], [], [[1]])
