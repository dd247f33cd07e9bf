"""False alarms and power of what a look at memorised text tests: scripts/benchmark_verbatim.

Part `alarms`: each test where no model read anything, 2,000 times at 5 % and 20,000 times at 1 %,
and the share of false names where some documents leak. A case is above its level where a one-sided
binomial test says so at 1 %, by Holm's rule over all cases. Part `power`: leaks planted among 200
documents beside 200 held-out ones, found by the test of runs, and by shuffling mean runs among all
documents, which was the test until 2026-11; and as many leaks as a clean look says it would show.
Each line is a claim, "reached" or "MISSED"; the exit code counts the missed. One is: two leaks of
200 at 5 % (51 of 400 against 63); both of them fall on one side in one of four shuffles.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from clean_looks import OF_LENGTHS, Split, halves, of_lengths
from regurgitation.clean_texts import OF_TEXTS
from scipy import stats

from lmexposure.statistics import (
    beside_held_out,
    conformal_p,
    false_shares,
    longer_runs,
    ranks_among_draws,
    shuffled_groups_p,
)

_TIMES = {0.05: 2_000, 0.01: 20_000}
_LEAST = 0.01  # p of a case that is not above its level
_SHUFFLES = 99  # p of 1 % is one of 100: the level is exact
_NAMED, _HELD_OUT = 40, 2_000
_SEEN = 0.95  # share of looks that show as many leaks as a pass names

Draws = np.random.Generator
P = Callable[[Draws], float]  # of one look


def _runs(null: Callable[[Draws], Split]) -> P:
    def p(draws: Draws) -> float:
        found = longer_runs(*null(draws), permutations=_SHUFFLES, seed=int(draws.integers(1 << 30)))
        return 1.0 if found is None else found.p

    return p


def _groups(null: Callable[[Draws], Split]) -> P:
    """The group test, of bits that are the lower, the longer a run is."""

    def p(draws: Draws) -> float:
        scores, sides, strata = null(draws)
        bits = draws.gamma(4, size=scores.size) - scores
        return shuffled_groups_p(
            bits[sides],
            bits[~sides],
            strata=(strata[sides], strata[~sides]),
            permutations=_SHUFFLES,
            seed=int(draws.integers(1 << 30)),
        )

    return p


def _held_out(draws: Draws) -> float:
    """Identifiers of a source that no draw is like, most of them tied."""
    ranks = np.floor(1_000 * draws.random(100) ** 6) + 1
    return beside_held_out(ranks[:41], ranks[41:], seed=int(draws.integers(1 << 30))).p_value


def _fresh(draws: Draws) -> float:
    return ranks_among_draws(draws.integers(1, 1_001, size=50), 999).p_value


def _false_share(leaks: int, level: float, draws: Draws) -> float:
    """Of the documents named in a look at 40, of which some leak, the share of the others."""
    sides = np.arange(_NAMED + _HELD_OUT) < _NAMED
    scores, *_ = of_lengths(draws, sides, leaks=leaks)
    named = false_shares(conformal_p(scores[sides], scores[~sides])) <= level
    return float(named[leaks:].sum() / max(1, named.sum()))


def cases() -> Iterator[tuple[str, P]]:
    """Each test where nothing is memorised."""
    for name, null in (OF_LENGTHS | OF_TEXTS).items():
        yield f"runs, {name}", _runs(null)
    for name in ("one law", "twice as long", "heavy ties"):
        yield f"groups, {name}", _groups(OF_LENGTHS[name])
    yield "identifiers beside held-out ones", _held_out
    yield "identifiers among fresh draws", _fresh


def alarms(most: int, only: str) -> int:
    """How many cases are above their level; each line as it is measured.

    Args:
        most: replicates of a case.
        only: cases with this text in their name.
    """
    found: list[tuple[str, float]] = []
    times = {level: min(n, most) for level, n in _TIMES.items()}

    def tell(name: str, level: float, said: str, p: float, begun: float) -> None:
        found.append((f"{name}, {level:.0%}", p))
        seconds = time.process_time() - begun
        print(f"         {name}, {level:.0%}: {said}, p {p:.3g} ({seconds:.0f} s)", flush=True)

    for name, test in cases():
        if only not in name:
            continue
        begun = time.process_time()
        every = np.array([test(np.random.default_rng([n, 9])) for n in range(times[0.01])])
        for level, n in times.items():
            count = int((every[:n] <= level).sum())
            tell(
                name, level, f"{count} of {n:,}", float(stats.binom.sf(count - 1, n, level)), begun
            )
    for leaks in (0, 2, 20):
        name = f"false names, {leaks} of {_NAMED} leak"
        for level, n in times.items() if only in name else ():
            begun = time.process_time()
            shares = [_false_share(leaks, level, np.random.default_rng([k, 9])) for k in range(n)]
            mean, error = float(np.mean(shares)), float(np.std(shares)) / n**0.5
            p = float(stats.norm.sf((mean - level) / max(error, 1e-12)))
            tell(name, level, f"mean share {mean:.5f} in {n:,}", p, begun)
    return _above(found)


def _above(found: list[tuple[str, float]]) -> int:
    """How many are above their level by Holm's rule."""
    ordered = sorted(found, key=lambda row: row[1])
    count = 0
    while count < len(found) and ordered[count][1] * (len(found) - count) < _LEAST:
        count += 1
    for name, p in ordered[:count]:
        print(f"MISSED   {name}: above its level (p {p:.2g})")
    if not count:
        name, p = ordered[0]
        least = min(1.0, p * len(found))
        print(
            f"reached  none of {len(found)} is above its level (least {name}: Holm p {least:.2g})"
        )
    return count


_ALL = np.where(halves(200), 0.56, 0.5)  # coins of documents that come out a little longer
PLANTED: dict[str, Callable[[Draws], Split]] = {
    "1 % come out": lambda draws: of_lengths(draws, halves(200), leaks=2),
    "5 % come out": lambda draws: of_lengths(draws, halves(200), leaks=10),
    "20 % come out": lambda draws: of_lengths(draws, halves(200), leaks=40),
    "all are a little longer": lambda draws: of_lengths(draws, halves(200), chance=_ALL),
}


def power(times: int) -> int:
    """In how many cases of planted leaks the test of runs finds fewer than the old one.

    Args:
        times: looks of each case.
    """
    missed = 0
    for name, planted in PLANTED.items():
        rows = [_both(planted, seed) for seed in range(times)]
        for level in _TIMES:
            new, old = (np.array(rows) <= level).T
            less, more = int((old & ~new).sum()), int((new & ~old).sum())
            fewer = stats.binom.sf(less - 1, less + more, 0.5) < _LEAST if less else False
            missed += fewer
            print(
                f"{'MISSED ' if fewer else 'reached'}  {name}, {level:.0%}: {new.sum()} of {times} "
                f"found, {old.sum()} by shuffled means",
                flush=True,
            )
    for level in _TIMES:
        hits = sum(_at_the_limit(level, seed) for seed in range(200))
        fewer = stats.binom.cdf(hits, 200, _SEEN) < _LEAST
        missed += fewer
        print(
            f"{'MISSED ' if fewer else 'reached'}  as many as a pass says, {level:.0%}: {hits} of "
            f"200 found, {_SEEN:.0%} meant",
            flush=True,
        )
    return missed


def _at_the_limit(level: float, seed: int) -> bool:
    """Whether as many documents as a clean look says are found in another one of the same law."""
    draws = np.random.default_rng([seed, 9])
    clean = longer_runs(*of_lengths(draws, halves(60)), permutations=999, seed=seed)
    scores, sides, strata = of_lengths(draws, halves(60))
    assert clean is not None
    limit = next(count for count, p in clean.seen if p <= level)
    scores[:limit] = scores.max() + 1
    found = longer_runs(scores, sides, strata, permutations=999, seed=seed)
    return found is not None and found.p <= level


def _both(planted: Callable[[Draws], Split], seed: int) -> tuple[float, float]:
    """P of the test of runs, and of means shuffled among all documents."""
    scores, sides, strata = planted(np.random.default_rng([seed, 9]))
    new = longer_runs(scores, sides, strata, permutations=499, seed=seed)
    old = shuffled_groups_p(-scores[sides], -scores[~sides], permutations=499, seed=seed)
    return 1.0 if new is None else new.p, old


def main() -> int:
    """The part that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("alarms", "power"))
    parser.add_argument("--most", type=int, default=20_000, help="replicates of a case of alarms")
    parser.add_argument("--only", default="", help="cases of alarms with this text in their name")
    given = parser.parse_args()
    return alarms(given.most, given.only) if given.part == "alarms" else power(400)


if __name__ == "__main__":
    sys.exit(main())
