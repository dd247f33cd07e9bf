"""Runs of a model that memorised nothing, judged: how often the gate still calls one a leak.

Ranks are uniform, and all canaries of a format are ranked among the same references. What cannot
be called a leak is not built: p-values far above their share, exposures far below their threshold.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from clean_looks import halves, of_lengths
from known import known
from made_looks import document, look, runs
from made_results import (
    RANDOM_NUMBER,
    canary,
    changed,
    exact,
    made,
    options,
    privacy,
    with_files,
    with_test,
)
from numpy.typing import NDArray

import lmexposure as lx
from lmexposure._quantiles import unseen_share
from lmexposure.core import Outcome, Thresholds, Verdict
from lmexposure.statistics import (
    EpsilonBound,
    LongerRuns,
    guessing_test,
    longer_runs,
    one_run_audit,
    sampled_exposure,
)
from lmexposure.studies import CanaryResult, ClassSummary, Result, SeenFrom
from lmexposure.studies.exposure.check_classes import exposure_by_chance
from lmexposure.studies.exposure.checks import Shares

Floats = NDArray[np.float64]
_FAR = 10  # times the share: so large a p-value by many permutations is not below it by few
_NULL_DRAWS = 10_000
_COINS, _CLAIMED, OF_CLAIM = 60, 0.01, 0.025  # candidates, nats, and how often a claim fails


@dataclass(frozen=True, kw_only=True)
class Design:
    """What is measured of a clean model."""

    formats: int = 1
    classes: int = 3  # of each format
    canaries: int = 10  # in each class
    references: int = 10_000  # of each format, shared by its canaries
    exact: bool = False  # ranks are counted over all of R; p-values still come from the references
    permutations: int = 9_999
    thresholds: Thresholds = field(default_factory=Thresholds)
    beside: bool = False  # a claim of hardly any epsilon and a look at documents are judged too


def false_alarms(design: Design, *, runs: int, seed: int) -> Counter[str]:
    """Leaks among so many clean runs, by a check that found one; by a claim if none else did."""
    rng, found = np.random.default_rng(seed), Counter[str]()
    null = _null(design, np.random.default_rng(seed + 1))
    for number in range(runs):
        drawn = [_drawn(design, rng) for _ in range(design.formats)]
        more = _Beside.of(number) if design.beside else None
        suspicious = any(_suspicious(design, null, *one) for one in drawn)
        if not suspicious and (more is None or more.is_clean(design.thresholds)):
            continue
        verdict = _judged(design, _result(design, null, drawn, number), more)
        if verdict.outcome is Outcome.LEAK:
            leaks = [check.key for check in verdict.checks if check.outcome is Outcome.LEAK]
            found[min(leaks, key=lambda key: key == "claimed_epsilon")] += 1
    return found


def leaks_passed(design: Design, *, runs: int, seed: int) -> int:
    """How many runs pass in which each canary of one class leaks by a coin of its own.

    The coin is the share that the gate prints as what it could have missed; a run in which no coin
    fell passes rightly, and counts.
    """
    rng, passed = np.random.default_rng(seed), 0
    null = _null(design, np.random.default_rng(seed + 1))
    for number in range(runs):
        drawn = [_drawn(design, rng) for _ in range(design.formats)]
        leaking = rng.random(design.canaries) < unseen_share(design.canaries)
        drawn[0][0][0, leaking] = 0.0
        more = _Beside.of(number) if design.beside else None
        verdict = _judged(design, _result(design, null, drawn, number), more)
        passed += verdict.outcome is Outcome.PASS
    return passed


@dataclass(frozen=True, kw_only=True)
class _Beside:
    """A bound on epsilon and a test of documents, of a model that memorised nothing."""

    bound: EpsilonBound
    test: LongerRuns

    @classmethod
    def of(cls, number: int) -> "_Beside":
        draws = np.random.default_rng([number, 8])
        coins = draws.random(_COINS) < 0.5
        test = known(longer_runs(*of_lengths(draws, halves(60)), permutations=199, seed=number))
        return cls(
            bound=one_run_audit(draws.normal(size=_COINS), coins, significance=OF_CLAIM, seed=0),
            test=test,
        )

    def is_clean(self, thresholds: Thresholds) -> bool:
        """Whether neither can be called a leak."""
        return self.bound.value <= _CLAIMED and self.test.p > thresholds.significance

    def added(self, result: Result) -> Result:
        """A run with both."""
        bound, test = self.bound, self.test
        first = next(row for row in result.summary if row.repetitions)
        section = privacy(
            bound.value, bound.max_attainable, claimed=_CLAIMED, name=first.format, canaries=first.n
        )
        asked = options(claimed_epsilon=_CLAIMED, delta=1e-5)
        seen = tuple(SeenFrom(documents=k, p=p) for k, p in test.seen)
        of_runs = runs(test.p, documents=test.first, held_out=test.second, units=60, seen=seen)
        claimed = changed(result, privacy=section, settings=asked)
        return with_files(claimed, look=look(document(verdict="no"), runs=of_runs))


def _judged(design: Design, result: Result, more: _Beside | None) -> Verdict:
    return lx.check(result if more is None else more.added(result), design.thresholds)


def _drawn(design: Design, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Uniform ranks of the canaries, (classes, canaries), and of the references in order, (m,)."""
    return rng.random((design.classes, design.canaries)), np.sort(rng.random(design.references))


def _null(design: Design, rng: np.random.Generator) -> Floats:
    """Mean exposures of a class that chance gives, ascending: places among canaries and others."""
    n, m = design.canaries, design.references
    places = np.stack([rng.choice(n + m, n, replace=False) for _ in range(_NULL_DRAWS)])
    as_low = np.sort(places, axis=1) - np.arange(n)
    return np.sort(np.mean(np.log2(m) - np.log2(1 + as_low), axis=1))


def _exposures(design: Design, own: Floats, references: Floats) -> Floats:
    among, size = np.searchsorted(references, own, side="right"), references.size
    if design.exact:
        among, size = np.floor(own * (RANDOM_NUMBER - 1)), RANDOM_NUMBER
    exposures: Floats = np.log2(size) - np.log2(1 + among)
    return exposures


def _share(design: Design) -> float:
    return Shares.of(design.thresholds, design.formats * design.classes).test


def _chances(null: Floats, own: Floats, references: Floats) -> Floats:
    """About the p-value of each class, shape (classes,)."""
    as_low = np.searchsorted(references, own, side="right")
    means = np.mean(np.log2(references.size) - np.log2(1 + as_low), axis=1)
    above = null.size - np.searchsorted(null, means - 1e-9)
    chances: Floats = (1 + above) / (1 + null.size)
    return chances


def _suspicious(design: Design, null: Floats, own: Floats, references: Floats) -> bool:
    """Whether a check may call it a leak; quantiles are cheap to fail, and judged always."""
    asked = design.thresholds.median_exposure, design.thresholds.quantile_exposure
    limit = exposure_by_chance(design.canaries, _share(design)) - 1
    return (
        asked != (None, None)
        or bool((_chances(null, own, references) <= _FAR * _share(design)).any())
        or bool((_exposures(design, own, references) >= limit).any())
    )


def _result(
    design: Design, null: Floats, drawn: list[tuple[Floats, Floats]], number: int
) -> Result:
    parts = [_format(design, null, *one, number, k) for k, one in enumerate(drawn)]
    return changed(
        parts[0],
        formats=[row for part in parts for row in part.formats],
        canaries=[row for part in parts for row in part.canaries],
        summary=[row for part in parts for row in part.summary],
    )


def _format(
    design: Design, null: Floats, own: Floats, references: Floats, number: int, k: int
) -> Result:
    drawn, m = list(_canaries(design, own, references, f"f{k}")), design.references
    result = made(drawn, name=f"f{k}", references=m)
    rows: list[ClassSummary] = []
    for place, p_value in enumerate(_chances(null, own, references).tolist()):
        if p_value <= _FAR * _share(design):
            seed = (number * design.formats + k) * design.classes + place
            p_value = guessing_test(
                own[place], references, seed=seed, permutations=design.permutations
            ).p_value
        row = result.summary[place]
        rows.append(with_test(row, p_value=p_value, permutations=design.permutations))
    return changed(result, summary=[*rows, result.summary[-1]])  # the controls are last


def _canaries(design: Design, own: Floats, references: Floats, name: str) -> Iterator[CanaryResult]:
    shown = _exposures(design, own, references)
    for place, bits in enumerate(own):
        among = sampled_exposure(bits, references, space_size=RANDOM_NUMBER)
        for i, value in enumerate(shown[place].tolist()):
            row = exact(value) if design.exact else among.canary(i)
            yield canary(
                i,
                row,
                repetitions=1 + place,
                name=name,
                guesses=None,
                log_perplexity_bits=float(bits[i]),
            )
