"""The table of a comparison: a row a method, from its sweep and its one run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lmexposure._files import canonical_json, sha256_bytes, sha256_file
from lmexposure.defences.attacks import (
    adapted_attacks,
    attack_parts,
    shows_less_p,
    strongest,
)
from lmexposure.defences.catalogue import Defence
from lmexposure.defences.comparison import Comparison
from lmexposure.statistics import CellRate
from lmexposure.studies import (
    ClassSummary,
    DefenceExposure,
    DefenceRow,
    DefenceSearch,
    Result,
    SweepModel,
    SweepResult,
)
from lmexposure.sweeps import SweepDirectory, read_matrices

_GUESSES = 10  # that an attacker has for a repeated secret


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A method whose models are trained."""

    defence: Defence  # the method
    search: DefenceSearch  # of its settings
    training: Mapping[str, Any]  # these settings
    # of its sweep, and of the run with repeated canaries
    results: tuple[SweepResult, Result | None]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Everything that a comparison says."""

    comparison: Comparison
    measured: Sequence[Measured]
    failed: Mapping[str, str]  # methods that have no models, and why
    forecast_seconds: float | None  # what was expected before the first training

    @property
    def first(self) -> SweepResult:
        """Of the undefended training."""
        return self.measured[0].results[0]

    @property
    def corpus_sha256(self) -> str:
        """Of the corpus that was read."""
        hashes = [sha256_file(path) for path in self.comparison.files]
        return hashes[0] if len(hashes) == 1 else sha256_bytes(canonical_json(hashes))

    def rows(self) -> tuple[DefenceRow, ...]:
        """A row a method."""
        undefended = self.first.utility.mean
        rows = [_row(self.comparison, method, undefended) for method in self.measured]
        sweeps = {m.defence.name: self.comparison.sweep_of(m.defence) for m in self.measured}
        return told_apart(rows, sweeps, fpr=self.comparison.settings.fpr)

    def warnings(self) -> tuple[str, ...]:
        """Of all sweeps; what several say alike is said once, with their names."""
        names: dict[str, list[str]] = {}
        for method in self.measured:
            for line in method.results[0].warnings:
                names.setdefault(line, []).append(method.defence.name)
        return tuple(f"{', '.join(own)}: {line}" for line, own in names.items())


def _row(comparison: Comparison, method: Measured, undefended: float) -> DefenceRow:
    settings, (swept, repeated) = comparison.settings, method.results
    directory = SweepDirectory.open(comparison.sweep_of(method.defence))
    matrices = read_matrices(directory.out, directory.plan)
    attacks = adapted_attacks(
        directory,
        matrices,
        fpr=settings.fpr,
        level=settings.sweep.level,
        methods=len(comparison.defences),
    )
    ordinary = _population(swept, settings.fpr)
    target = 1.0 if method.defence.at_undefended or method.defence.knob is None else settings.target
    ratio = swept.utility.mean / undefended
    why = _why_not(method, ratio, target, settings.tolerance)
    epsilon, delta = _claimed(directory)
    worst = swept.worst
    return DefenceRow(
        name=method.defence.name,
        meaning=method.defence.meaning,
        promises_not=method.defence.promises_not,
        search=method.search,
        training=dict(method.training),
        target=target,
        models=swept.models,
        bits=swept.utility.mean,
        sd=swept.utility.sd,
        ratio=ratio,
        ranked=why is None,
        why=why,
        population=None if ordinary is None else ordinary.value,
        population_low=None if ordinary is None else ordinary.low,
        population_high=None if ordinary is None else ordinary.high,
        strongest=strongest(attacks),
        attacks=tuple(attacks),
        above_p=None,
        worst=None if worst is None else worst.id,
        worst_p=None if worst is None else worst.p,
        exposure=None if repeated is None else _exposure(repeated, settings.repeated),
        epsilon=epsilon,
        delta=delta,
        seconds=swept.utility.seconds,
    )


def told_apart(
    rows: Sequence[DefenceRow], sweeps: Mapping[str, Path], *, fpr: float
) -> tuple[DefenceRow, ...]:
    """The rows, with how surely each ranked one shows more than the defence with the lowest TPR.

    Each p is paid for twice, since half of the level is left to the intervals, and for each defence
    that could have been that one; see `reporting.defences.alike_to`.
    """
    ranked = [row for row in rows if row.ranked and row.strongest is not None]
    defences = [row for row in ranked if row.name != rows[0].name]
    if not defences:
        return tuple(rows)
    best = min(defences, key=_tpr)
    told = []
    for row in rows:
        p = None
        if row in ranked and row is not best:
            p = _paired_p((best, row), sweeps, fpr)
        paid = None if p is None else min(1.0, 2 * len(defences) * p)
        told.append(row.model_copy(update={"above_p": paid}))
    return tuple(told)


def _tpr(row: DefenceRow) -> float:
    return 1.0 if row.strongest is None or row.strongest.tpr is None else row.strongest.tpr


def _paired_p(
    pair: tuple[DefenceRow, DefenceRow], sweeps: Mapping[str, Path], fpr: float
) -> float | None:
    """Whether the first shows less, over the models that both have; None where no attack tells."""
    directories = [SweepDirectory.open(sweeps[row.name]) for row in pair]
    matrices = [read_matrices(directory.out, directory.plan) for directory in directories]
    shared = np.intersect1d(matrices[0].numbers, matrices[1].numbers)
    both = []
    for row, directory, its in zip(pair, directories, matrices, strict=True):
        parts = attack_parts(directory, its.of_models(np.isin(its.numbers, shared)), fpr=fpr)
        known = {(attack.kind, attack.score) for attack in row.attacks if attack.tpr is not None}
        both.append({name: own for name, own in parts.items() if name in known})
    return shows_less_p(both[0], both[1]) if all(both) else None


def _why_not(method: Measured, ratio: float, target: float, tolerance: float) -> str | None:
    """Why a method is not ranked; None where it is at its target."""
    away = ratio / target - 1
    if abs(away) <= tolerance:
        return None
    side = "less useful" if away > 0 else "more useful"
    searched = "" if method.search.why is None else f"; the search: {method.search.why}"
    return f"{side} than the target by {abs(away):.1%} in these models{searched}"


def _population(swept: SweepResult, fpr: float) -> CellRate | None:
    row = next((r for r in swept.scores if r.group == "population" and r.primary), None)
    return None if row is None else next(rate for rate in row.rates if rate.fpr == fpr)


def _claimed(directory: SweepDirectory) -> tuple[float | None, float | None]:
    """The largest epsilon that a model claims, and the delta next to it."""
    models = (directory.done(number) for number in range(directory.plan.models))
    claims = [m.training.claim for m in models if isinstance(m, SweepModel) and m.training.claim]
    largest = max(claims, key=lambda claim: claim.epsilon, default=None)
    return (None, None) if largest is None else (largest.epsilon, largest.delta)


def _exposure(result: Result, repetitions: int) -> DefenceExposure | None:
    """Of the class of repeated canaries; of several formats that which leaks most."""
    rows = [row for row in result.summary if row.repetitions == repetitions]
    if not rows:
        return None
    row = max(rows, key=lambda row: row.median.value)
    found, by = _found(row)
    value = row.median.value if math.isfinite(row.median.value) else None
    return DefenceExposure(
        repetitions=repetitions,
        canaries=row.n,
        median=value,
        low=row.median.low,
        high=row.median.high,
        found=found,
        by=by,
    )


def _found(row: ClassSummary) -> tuple[int, Literal["best_first", "beam", "greedy"] | None]:
    """Secrets that are found by whichever search finds most, and which that is."""
    guesses = [guess for guess in row.guesses if guess.guesses <= _GUESSES]
    counts: dict[Literal["best_first", "beam", "greedy"], int] = {
        tried.method: tried.found for tried in row.extraction if tried.revealed == 0
    }
    if guesses:
        counts["best_first"] = max(guesses, key=lambda guess: guess.guesses).found
    if not counts:
        return 0, None
    best = max(counts, key=lambda method: counts[method])
    return counts[best], best
