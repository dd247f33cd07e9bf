"""Of how many comparisons in which nobody shows least a winner is named, and of others."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tiny_defences import made_row

from lmexposure.defences.attacks import paid_level, strongest
from lmexposure.records import DefenceAttack, DefenceRow
from lmexposure.reporting.defences import alike_to
from lmexposure.statistics import binomial_interval

METHODS, ATTACKS, CELLS = 4, 3, 60
LEVEL = paid_level(0.95, 1, goldfish=False, methods=METHODS)
ENDS = binomial_interval(np.arange(CELLS + 1), CELLS, level=LEVEL)


def _row(name: str, hits: Sequence[int]) -> DefenceRow:
    attacks = [
        DefenceAttack(
            kind="pin/x1",
            score="secret_tokens",
            attack="lira",
            among=ATTACKS,
            tpr=k / CELLS,
            low=float(ENDS.low[k]),
            high=float(ENDS.high[k]),
        )
        for k in sorted(hits, reverse=True)
    ]
    return made_row(name, strongest=strongest(attacks), attacks=tuple(attacks))


def _winner(hits: NDArray[np.int64]) -> int | None:
    """Of hits of each method (none first) under each attack, who is named."""
    none, *others = [_row(str(number), own) for number, own in enumerate(hits.tolist())]
    others.sort(key=lambda row: row.strongest.tpr if row.strongest and row.strongest.tpr else 0)
    return int(others[0].name) if len(alike_to(others[0], [*others, none], level=0.95)) == 1 else None


def _hits(rates: NDArray[np.float64], times: int, seed: int) -> NDArray[np.int64]:
    """Cells that are found, alike in all methods as they share coins: (times, methods, attacks)."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(times, 1, 1, CELLS))
    own = rng.normal(size=(times, *rates.shape, CELLS))
    found = stats.norm.cdf(0.6 * shared + 0.8 * own) < rates[..., None]
    return np.asarray(found.sum(axis=-1))


def test_a_winner_among_equals_is_named_at_most_as_often_as_the_level_allows() -> None:
    rates = np.full((METHODS, ATTACKS), 0.3)
    false = sum(_winner(hits) is not None for hits in _hits(rates, 2_000, seed=1))
    assert stats.binomtest(false, 2_000, 0.05, alternative="greater").pvalue >= 0.01


def test_two_that_show_least_together_are_not_parted() -> None:
    rates = np.array([[0.9] * 3, [0.2] * 3, [0.2] * 3, [0.9] * 3])
    false = sum(_winner(hits) is not None for hits in _hits(rates, 2_000, seed=2))
    assert stats.binomtest(false, 2_000, 0.05, alternative="greater").pvalue >= 0.01


def test_who_shows_far_less_is_named() -> None:
    rates = np.array([[0.9] * 3, [0.05] * 3, [0.7] * 3, [0.6] * 3])
    named = [_winner(hits) for hits in _hits(rates, 200, seed=3)]
    assert set(named) <= {1, None}
    assert named.count(1) >= 190


def test_the_interval_is_of_the_largest_rate_whichever_attack_has_it() -> None:
    first, second = _row("first", [30]).attacks[0], _row("second", [29]).attacks[0]
    wide = second.model_copy(update={"low": 0.0, "high": 0.99})
    found = strongest([first, wide])
    assert found is not None
    assert (found.tpr, found.low, found.high) == (first.tpr, first.low, 0.99)
    assert strongest([first.model_copy(update={"tpr": None})]) is None
    assert paid_level(0.95, 2, goldfish=True, methods=5) == pytest.approx(1 - 0.05 / 40)
