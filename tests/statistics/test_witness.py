"""Identifiers beside fresh draws and a random split, and witnesses: slow counts, no signal."""

import math
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.stats import binomtest

from lmexposure.statistics import (
    beside_held_out,
    draws_needed,
    identifiers,
    witness_certificate,
    witness_looks,
    witness_p_value,
    witness_settled,
)
from lmexposure.statistics.arrays import Floats


@pytest.fixture
def fewer_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the choices: the p-value is as exact of any number of them, and 1,000 are made."""
    monkeypatch.setattr(identifiers, "PERMUTATIONS", 2_000)


def random_model(rng: np.random.Generator, size: int) -> np.ndarray:
    """Bits of each of `size` fills under some model: probabilities that sum to at most 1."""
    p = rng.dirichlet(np.full(size, rng.choice([0.01, 0.1, 1.0])))
    return -np.log2(np.maximum(p, 1e-300))


@pytest.mark.parametrize(
    ("drawn", "sizes"),
    [
        *((list(permutations(range(6), k)), 6) for k in (1, 2, 3)),
        # Two different witnesses, the first drawn from 3 fills, the second from all 6.
        ([(i, j) for i in range(3) for j in range(6) if i != j], [3, 6]),
    ],
)
def test_the_certificate_is_an_e_value_whatever_the_model(drawn: Any, sizes: Any) -> None:
    """Over all ways to draw different witnesses its expectation is at most 1: enumerated."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        bits = random_model(rng, 6)
        values = [2 ** witness_certificate(bits[list(some)], sizes=sizes) for some in drawn]
        assert np.mean(values) <= 1 + 1e-9


def test_a_certificate_by_hand() -> None:
    # Two of 16 fills, at 1 and 3 bits: gains of 3 and 1; the mean of 2^3 and 2^1 is 5, times
    # 15 / 16 for what is drawn twice; the product 2^4 / (16 / 15) = 15; half of each.
    expected = math.log2(0.5 * 5 * 15 / 16 + 0.5 * 15)
    assert witness_certificate([1.0, 3.0], sizes=16) == pytest.approx(expected)


def test_a_uniform_model_certifies_nothing_and_impossible_witnesses_less() -> None:
    assert witness_certificate([40.0] * 4, sizes=2**40) == pytest.approx(0.0, abs=1e-6)
    assert witness_certificate([4000.0] * 4, sizes=2**40) < -3000


def test_the_p_value_is_that_of_all_subsets() -> None:
    """Slow and naive: every way to choose the witnesses among all texts."""
    rng = np.random.default_rng(1)
    own, drawn = rng.normal(-0.7, 1, 3), rng.normal(size=10)
    pool = np.concatenate([own, drawn])
    sums = [pool[list(c)].sum() for c in combinations(range(13), 3)]
    exact = np.mean(np.array(sums) <= own.sum() + 1e-12)
    assert witness_p_value(own, drawn, seed=0) == pytest.approx(exact, abs=0.01)


def test_ties_count_against_the_witness() -> None:
    assert witness_p_value([1.0], [1.0] * 9, seed=0) == 1.0
    assert witness_p_value([0.1 + 0.2, 0.3], [0.3] * 50, seed=0) == 1.0


@pytest.mark.usefixtures("fewer_choices")
@pytest.mark.parametrize("k", [1, 2, 4])
def test_no_signal_is_called_as_rarely_as_its_level(k: int) -> None:
    """Bits of a model that never read them, with heavy tails and ties: 1,000 at 5 %."""
    rng = np.random.default_rng(k)
    texts = np.round(rng.standard_t(2, (1_000, k + 60)), 1)
    low = sum(witness_p_value(row[:k], row[k:], seed=i) <= 0.05 for i, row in enumerate(texts))
    assert binomtest(low, 1_000, 0.05, alternative="greater").pvalue >= 0.01


@pytest.mark.usefixtures("fewer_choices")
@pytest.mark.parametrize("k", [1, 2, 3])
def test_texts_of_fewer_tokens_are_compared_with_their_like(k: int) -> None:
    """A tokenizer that read the witnesses: fewer tokens, fewer bits, in any model."""
    rng, low = np.random.default_rng(k), 0
    for i in range(1_000):
        own, drawn = rng.integers(4, 6, k), rng.integers(4, 13, 120)
        bits = [n * 9 + rng.normal(size=n.size) for n in (own, drawn)]
        low += witness_p_value(bits[0], bits[1], tokens=(own, drawn), seed=i) <= 0.05
    assert binomtest(low, 1_000, 0.05, alternative="greater").pvalue >= 0.01
    # Without regard to tokens they would all seem known.
    assert witness_p_value(np.full(k, 45.0), np.full(119, 72.0), seed=0) <= 0.01


@pytest.mark.usefixtures("fewer_choices")
@pytest.mark.parametrize("k", [1, 2, 4])
def test_looks_cost_nothing(k: int) -> None:
    """Of a model that never read them: 4,000 comparisons, each ended as a measurement ends it."""
    rng, found, read = np.random.default_rng(k), [], []
    for i in range(4_000):
        texts = rng.standard_t(2, k + draws_needed(k))
        for looked in witness_looks(k):
            p = witness_p_value(texts[:k], texts[k : k + looked], seed=i)
            if witness_settled(p, draws=looked, witnesses=k):
                break
        found.append(p)
        read.append(looked)
    for level in (0.5, 0.1, 0.05, 0.02, 0.01, 0.002):
        called = int((np.array(found) <= level).sum())
        assert binomtest(called, 4_000, level, alternative="greater").pvalue >= 0.005, level
    assert np.mean(np.array(read) == 25) > 0.85


def test_a_witness_that_leads_is_compared_with_all() -> None:
    assert witness_looks(2) == [25, 100, 300]
    assert witness_looks(1)[-3:] == [3_600, 3_900, 4_000]
    assert not witness_settled(0.0999, draws=25, witnesses=2)
    assert not witness_settled(0.0199, draws=100, witnesses=2)
    assert not witness_settled(1 / 301, draws=300, witnesses=1)
    assert witness_settled(1 / 300, draws=300, witnesses=1)


def test_a_witness_that_has_no_like_shows_nothing() -> None:
    drawn = [5] * 50
    assert witness_p_value([1.0], [2.0] * 50, tokens=([4], drawn), seed=0) == 1.0
    assert witness_p_value([1.0, 1.0], [2.0] * 50, tokens=([4, 4], drawn), seed=0) == 1.0


def test_one_witness_has_the_rank_of_the_first_draw_that_is_as_low() -> None:
    assert witness_p_value([1.0], [3.0, 2.0, 0.5, 9.0, 0.1], seed=0) == pytest.approx(1 / 3)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_known_witnesses_fall_below_what_the_gate_asks(k: int) -> None:
    rng = np.random.default_rng(0)
    drawn = rng.normal(60, 5, draws_needed(k))
    assert witness_p_value([20.0] * k, drawn, seed=0) < 0.00025


READ, HELD_OUT = 41, 60  # few enough for the exact distribution


def _p_values(read: Floats, held_out: Floats) -> Floats:
    return np.array([beside_held_out(*rows).p_value for rows in zip(read, held_out, strict=True)])


def _ranks(rng: np.random.Generator, shape: tuple[int, int], power: float) -> Floats:
    """Ranks of a source whose identifiers are no random draws: far too low, with many ties."""
    return np.floor(1000 * rng.random(shape) ** power) + 1


def test_it_is_a_slow_count_over_all_splits() -> None:
    read, held_out = [1, 4, 7, 12], [2, 9, 10, 13, 14]
    found = beside_held_out(read, held_out)
    everything = [*read, *held_out]

    def above(chosen: tuple[int, ...]) -> int:
        rest = [n for n in range(9) if n not in chosen]
        return sum(everything[i] < everything[j] for i in chosen for j in rest)

    splits = list(combinations(range(9), 4))
    seen = above((0, 1, 2, 3))
    assert found.area == seen / 20
    assert found.p_value == pytest.approx(
        sum(above(split) >= seen for split in splits) / len(splits)
    )


@pytest.mark.parametrize(("level", "times"), [(0.05, 2_000), (0.01, 20_000)])
def test_a_random_split_is_called_membership_at_most_as_often_as_the_level(
    level: float, times: int
) -> None:
    """Of a source whose identifiers lie far below fresh draws, with and without ties."""
    rng = np.random.default_rng(3)
    shape = (times, READ + HELD_OUT)
    for both in (rng.standard_t(3, shape) * 8 - 50, _ranks(rng, shape, 6.0)):
        found = _p_values(both[:, :READ], both[:, READ:])
        false = int((found <= level).sum())
        assert stats.binomtest(false, times, level, alternative="greater").pvalue >= 0.01


@pytest.mark.slow
def test_many_ranks_are_shuffled_at_the_same_level() -> None:
    rng = np.random.default_rng(4)
    both = _ranks(rng, (60, 300), 6.0)
    assert (_p_values(both[:, :160], both[:, 160:]) <= 0.05).sum() <= 7


def test_identifiers_that_were_read_are_found() -> None:
    """A third of those that were read are known, so that they rank first."""
    rng = np.random.default_rng(5)
    read, held_out = _ranks(rng, (300, READ), 1.0), _ranks(rng, (300, HELD_OUT), 1.0)
    read[rng.random(read.shape) < 1 / 3] = 1
    assert (_p_values(read, held_out) <= 0.05).mean() > 0.8


def test_the_wrong_direction_is_no_finding() -> None:
    found = beside_held_out([900] * 30, [1] * 30)
    assert (found.area, found.p_value, found.shows) == (0, 1, False)
    tied = beside_held_out([5] * 30, [5] * 30)
    assert (tied.area, tied.p_value) == (0.5, 1)
