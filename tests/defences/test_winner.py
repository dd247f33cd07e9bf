"""Of how many comparisons in which nobody shows least a winner is named, and of others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tiny_defences import made_row

from lmexposure.defences.attacks import paid_level, shows_less_p, strongest
from lmexposure.statistics import binomial_interval, rate_parts, tpr_at_fpr
from lmexposure.studies import DefenceAttack, DefenceRow
from lmexposure.studies.defences import alike_to

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


def _tpr(row: Any) -> float:
    return float(row.strongest.tpr)


def _named(rows: Sequence[DefenceRow]) -> int | None:
    none, *others = rows
    others = sorted(others, key=_tpr)
    return (
        int(others[0].name) if len(alike_to(others[0], [*others, none], level=0.95)) == 1 else None
    )


def _winner(hits: NDArray[np.int64]) -> int | None:
    """Of hits of each method (none first) under each attack, who is named."""
    return _named([_row(str(number), own) for number, own in enumerate(hits.tolist())])


def _hits(rates: NDArray[np.float64], times: int, seed: int) -> NDArray[np.int64]:
    """Cells that are found, alike in all methods as they share coins: (times, methods, attacks)."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(times, 1, 1, CELLS))
    own = rng.normal(size=(times, *rates.shape, CELLS))
    found = stats.norm.cdf(0.6 * shared + 0.8 * own) < rates[..., None]
    return np.asarray(found.sum(axis=-1))


@pytest.mark.parametrize(
    ("rates", "seed"),
    [
        (np.full((METHODS, ATTACKS), 0.3), 1),
        (np.repeat([[0.9], [0.2], [0.2], [0.9]], 3, axis=1), 2),
    ],
)
def test_a_winner_among_equals_is_named_at_most_as_often_as_the_level_allows(
    rates: NDArray[np.float64], seed: int
) -> None:
    false = sum(_winner(hits) is not None for hits in _hits(rates, 2_000, seed=seed))
    assert stats.binomtest(false, 2_000, 0.05, alternative="greater").pvalue >= 0.01


def test_who_shows_far_less_is_named() -> None:
    rates = np.array([[0.9] * 3, [0.05] * 3, [0.7] * 3, [0.6] * 3])
    named = [_winner(hits) for hits in _hits(rates, 200, seed=3)]
    assert set(named) <= {1, None}
    assert named.count(1) >= 190


def test_the_interval_is_of_the_largest_rate_whichever_attack_has_it() -> None:
    first, second = _row("first", [30]).attacks[0], _row("second", [29]).attacks[0]
    wide = second.model_copy(update={"low": 0.0, "high": 0.99})
    found: Any = strongest([first, wide])
    assert (found.tpr, found.low, found.high) == (first.tpr, first.low, 0.99)
    assert strongest([first.model_copy(update={"tpr": None})]) is None
    assert paid_level(0.95, 2, goldfish=True, methods=5) == pytest.approx(1 - 0.05 / 40)


def _paired(seed: int, effects: Sequence[float]) -> tuple[list[DefenceRow], list[DefenceRow]]:
    """Rows of methods (none first) over the same coins and canaries, without p and with it."""
    rng = np.random.default_rng([seed, 9])
    coins = rng.random((16, 80)) < 0.5
    hard, shared = np.exp(0.5 * rng.normal(size=80)), rng.normal(size=coins.shape)
    rows, parts = [], []
    for number, effect in enumerate(effects):
        of_method = shared + rng.normal(size=coins.shape) + 0.5 * rng.normal(size=(16, 1))
        attacks, own = [], dict[Any, Any]()
        for name in ("secret_tokens", "log_perplexity", "label_only"):
            x = effect * hard * coins + of_method / 2 + rng.normal(size=coins.shape) / 2
            own["pin/x1", name] = rate_parts(x, coins, texts=range(80), fpr=0.01)
            rate = tpr_at_fpr(x[coins], x[~coins], fpr=0.01, level=1 - 0.05 / 9)
            values = {"tpr": rate.value, "low": rate.low, "high": rate.high}
            attacks.append(made_row(name).attacks[0].model_copy(update={"score": name, **values}))
        attacks.sort(key=lambda attack: attack.tpr or 0.0, reverse=True)
        row = made_row(str(number), strongest=strongest(attacks), attacks=tuple(attacks))
        rows.append(row)
        parts.append(own)
    best = min((1, 2), key=lambda m: _tpr(rows[m]))
    told = [
        row.model_copy(update={"above_p": min(1.0, 2 * 2 * shows_less_p(parts[best], own))})
        if row is not rows[best]
        else row
        for row, own in zip(rows, parts, strict=True)
    ]
    return rows, told


@pytest.mark.parametrize("effects", [(2.0, 2.0, 2.0), (4.0, 1.0, 1.0), (0.0, 0.0, 0.0)])
def test_models_compared_in_pairs_name_no_winner_among_equals(effects: Sequence[float]) -> None:
    false = sum(_named(_paired(seed, effects)[1]) is not None for seed in range(60))
    assert stats.binomtest(false, 60, 0.05, alternative="greater").pvalue >= 0.01


def test_models_compared_in_pairs_name_who_shows_less_where_intervals_do_not() -> None:
    rows = [_paired(seed, (3.0, 1.4, 2.4)) for seed in range(40)]
    by_intervals = [_named(own) for own, _ in rows]
    in_pairs = [_named(own) for _, own in rows]
    assert set(in_pairs) <= {1, None}
    assert all(own == found for own, found in zip(by_intervals, in_pairs, strict=True) if own)
    assert (in_pairs.count(1) >= 32, by_intervals.count(1) <= 16) == (True, True)


def test_two_methods_are_told_apart_by_their_p_or_by_their_intervals() -> None:
    best, near, far = (made_row(str(rate), rate) for rate in (0.3, 0.4, 0.9))

    def alike(row: DefenceRow, p: float | None, level: float = 0.95) -> bool:
        return row.name in {
            own.name
            for own in alike_to(best, [best, row.model_copy(update={"above_p": p})], level=level)
        }

    assert alike(near, None)
    assert alike(near, 0.06)
    assert not alike(near, 0.04)
    assert alike(near, 0.04, level=0.99)
    assert not alike(far, 1.0)
