import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special

from lmexposure.statistics import (
    area_under_curve,
    label_logits,
    min_k,
    min_k_plus_plus,
    rmia,
    rmia_matrix,
    zlib_ratio,
)
from lmexposure.statistics.arrays import Flags, Floats

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

    def ratios(bits: Floats, references: Floats) -> Floats:
        marginal = ((1 + a) * (2.0**-references).mean(axis=0) + 1 - a) / 2
        found: Floats = 2.0**-bits / marginal
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


def _cells(seed: int, models: int, texts: int, drop: float) -> tuple[Floats, Flags, Floats]:
    """Bits of texts of unequal hardness, `drop` lower where a model saw one; and of documents."""
    rng = np.random.default_rng(seed)
    coins = rng.random((models, texts)) < 0.5
    bits = rng.uniform(40, 400, texts) - drop * coins + rng.normal(0, 2, coins.shape)
    documents = rng.uniform(40, 400, 60) + rng.normal(0, 2, (models, 60))
    return bits, coins, documents


def _slow(bits: Floats, coins: Flags, documents: Floats, shadows: Flags, gamma: float) -> Floats:
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


Matches = list[Flags]


def _match_cells(
    seed: int, models: int, lengths: list[int], more: float, shown: float = 0.2
) -> tuple[Matches, Flags]:
    """Matches, `more` likely in the first half of a vector where the model saw the text."""
    rng = np.random.default_rng(seed)
    coins = rng.random((models, len(lengths))) < 0.5
    vectors = []
    for text, length in enumerate(lengths):
        chance = shown + more * coins[:, [text]] * (np.arange(length) < length / 2)
        vectors.append(rng.random((models, length)) < chance)
    return vectors, coins


def _slow_logits(
    vectors: Matches, coins: Flags, kinds: list[str], shadows: Flags, ridge: float
) -> Floats:
    """Cell by cell, each fit by a general minimiser."""
    found = np.empty(coins.shape)
    for model, text in np.ndindex(coins.shape):
        others = shadows & (np.arange(len(coins)) != model)
        alike = [
            j
            for j, kind in enumerate(kinds)
            if (kind, vectors[j].shape[1]) == (kinds[text], vectors[text].shape[1])
        ]
        x = np.concatenate([vectors[j][others] for j in alike]).astype(float)
        y = np.concatenate([coins[others, j] for j in alike])
        if y.all() or not y.any():
            found[model, text] = np.nan
            continue

        def loss(weights: Floats, x: Floats = x, y: Flags = y) -> tuple[float, Floats]:
            z = weights[0] + x @ weights[1:]
            missed = special.expit(z) - y
            slope = np.append(missed.sum(), x.T @ missed + ridge * weights[1:])
            value = (np.logaddexp(0, z) - y * z).sum() + ridge / 2 * (weights[1:] ** 2).sum()
            return float(value), slope

        fit = optimize.minimize(
            loss, np.zeros(x.shape[1] + 1), jac=True, tol=1e-12, options={"maxiter": 1000}
        )
        found[model, text] = vectors[text][model] @ fit.x[1:]
    return found


@pytest.mark.parametrize("ridge", [0.1, 1.0])
@pytest.mark.parametrize("shadows", [None, [1, 1, 0, 1, 1, 1, 0, 1]])
def test_against_a_slow_version(ridge: float, shadows: list[int] | None) -> None:
    lengths = [4, 4, 4, 6, 6, 4]
    vectors, coins = _match_cells(1, 8, lengths, 0.5)
    kinds = ["pin", "pin", "pin", "pin", "pin", "key"]
    found = label_logits(vectors, coins, kinds=kinds, shadows=shadows, ridge=ridge)
    mask = np.array(shadows or [1] * 8, dtype=bool)
    np.testing.assert_allclose(found, _slow_logits(vectors, coins, kinds, mask, ridge), atol=1e-4)


def test_weights_find_the_places_that_tell() -> None:
    """Half of the places are noise: a share of matches counts them as much as the others."""
    lengths = [40] * 60
    vectors, coins = _match_cells(2, 32, lengths, 0.12, shown=0.4)
    found = label_logits(vectors, coins, kinds=["a"] * 60)
    share = np.stack([x.mean(axis=1) for x in vectors], axis=1)
    areas = [area_under_curve(s[coins], s[~coins]).value for s in (found, share)]
    assert areas[0] > areas[1] + 0.05


def test_matches_that_do_not_vary_say_nothing() -> None:
    rng = np.random.default_rng(3)
    coins = rng.random((6, 5)) < 0.5
    for value in (True, False):
        vectors = [np.full((6, 4), value)] * 5
        found = label_logits(vectors, coins, kinds=["a"] * 5)
        np.testing.assert_array_equal(found, np.zeros((6, 5)))


def test_matches_that_separate_in_from_out_stay_finite() -> None:
    rng = np.random.default_rng(4)
    coins = rng.random((20, 10)) < 0.5
    vectors = [np.repeat(coins[:, [text]], 6, axis=1) for text in range(10)]
    found = label_logits(vectors, coins, kinds=["a"] * 10, ridge=1e-3)
    assert np.isfinite(found).all()
    assert found[coins].min() > 5 > 0 == found[~coins].max()


def test_models_that_were_all_in_have_no_fit() -> None:
    vectors, coins = _match_cells(6, 4, [3, 3], 0.4)
    coins[:] = True
    assert np.isnan(label_logits(vectors, coins, kinds=["a", "a"])).all()
    coins[0] = False  # without it, all others were in
    found = label_logits(vectors, coins, kinds=["a", "a"])
    np.testing.assert_array_equal(np.isnan(found), np.arange(4)[:, None] + [[0, 0]] == 0)


def test_few_models_need_steps_of_their_own() -> None:
    """Without one of three models the fit is far from that of all."""
    vectors, coins = _match_cells(7, 3, [5] * 12, 0.7)
    kinds = ["a"] * 12
    found = label_logits(vectors, coins, kinds=kinds, ridge=0.01)
    np.testing.assert_allclose(
        found, _slow_logits(vectors, coins, kinds, np.ones(3, dtype=bool), 0.01), atol=2e-3
    )


ROWS = st.lists(
    st.lists(st.floats(0, 40, allow_subnormal=False), min_size=1, max_size=30),
    min_size=1,
    max_size=8,
)


def test_higher_means_more_likely_in() -> None:
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
