import numpy as np
import pytest
from numpy.typing import NDArray

from lmexposure.statistics import area_under_curve, rmia, rmia_matrix

Bits = NDArray[np.float64]
Coins = NDArray[np.bool_]

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


def _cells(seed: int, models: int, texts: int, drop: float) -> tuple[Bits, Coins, Bits]:
    """Bits of texts of unequal hardness, `drop` lower where a model saw one; and of documents."""
    rng = np.random.default_rng(seed)
    coins = rng.random((models, texts)) < 0.5
    bits = rng.uniform(40, 400, texts) - drop * coins + rng.normal(0, 2, coins.shape)
    documents = rng.uniform(40, 400, 60) + rng.normal(0, 2, (models, 60))
    return bits, coins, documents


def _slow(bits: Bits, coins: Coins, documents: Bits, shadows: Coins, gamma: float) -> Bits:
    """Cell by cell, with probabilities; the bits must be few."""
    found = np.full(bits.shape, np.nan)
    for model, text in np.ndindex(bits.shape):
        others = shadows & (np.arange(len(bits)) != model)
        seen, not_seen = others & coins[:, text], others & ~coins[:, text]
        if not seen.any() or not not_seen.any():
            continue
        chance = 2.0 ** -bits[:, text]
        ratio = chance[model] / ((chance[seen].mean() + chance[not_seen].mean()) / 2)
        theirs = 2.0 ** -documents[model] / (2.0 ** -documents[others]).mean(axis=0)
        order = np.log2(ratio / gamma)
        among_equals = (1 + order / (1 + abs(order))) / 2
        found[model, text] = (np.sum(ratio / theirs > gamma) + among_equals) / (theirs.size + 1)
    return found


@pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("shadows", [None, [1, 1, 0, 1, 1, 0, 0, 1]])
def test_matrix_against_probabilities(gamma: float, shadows: list[int] | None) -> None:
    rng = np.random.default_rng(4)
    bits, documents = rng.uniform(0.5, 6, (8, 12)), rng.uniform(0.5, 6, (8, 30))
    coins = rng.random(bits.shape) < 0.5
    coins[:, 0], coins[:, 1] = True, np.arange(8) == 3
    mask = np.array(shadows or [1] * 8, dtype=bool)
    found = rmia_matrix(bits, coins, documents, shadows=shadows, gamma=gamma)
    np.testing.assert_allclose(found, _slow(bits, coins, documents, mask, gamma), atol=1e-12)
    assert np.isnan(found[:, 0]).all()
    assert np.isnan(found[3, 1])


def test_matrix_of_long_texts_of_unequal_hardness() -> None:
    bits, coins, documents = _cells(5, 32, 40, 6.0)
    plain = area_under_curve(-bits[coins], -bits[~coins]).value
    assert plain < 0.6
    for tokens in (1, 100):
        found = rmia_matrix(bits / tokens, coins, documents / tokens)
        assert area_under_curve(found[coins], found[~coins]).value > plain + 0.3


def test_equal_ratios_do_not_win() -> None:
    found = rmia_matrix(np.full((3, 1), 5), [[1], [0], [1]], np.full((3, 4), 9))
    np.testing.assert_array_equal(found, [[0.1], [np.nan], [0.1]])


def test_equally_many_wins_are_in_the_order_of_their_ratios() -> None:
    bits = np.array([[9, 8, 7, 6, 1], [9, 9, 9, 9, 9], [9, 9, 9, 9, 9]]) / 10
    coins = np.array([[0] * 5, [1] * 5, [0] * 5], dtype=bool)
    found = rmia_matrix(bits, coins, np.full((3, 2), 0.95))[0]
    assert (np.diff(found) > 0).all()
    assert (np.floor(found * 3) == [0, 2, 2, 2, 2]).all()
