"""What classes of scores say of privacy together: bounds, membership metrics, one verdict.

`score_classes` sorts scores into classes that may be compared, by repetitions, and by format or
over all formats; `privacy_of` bounds epsilon over all classes.

At the end: what a training by DP-SGD let out about each document, from the gradients it really had.
A claim is of the worst document: one whose gradient is clipped at every step. Most gradients are
smaller than the clip, and the same noise hides them better.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from lmexposure._validate import bits_array, fraction, integer, positive
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.arrays import Flags, Floats, midranks
from lmexposure.statistics.bounds.bound import Claim, Terms, refuse_unlikely_coins
from lmexposure.statistics.bounds.gaussian import epsilon_of_mu
from lmexposure.statistics.bounds.joint import claim_power, joint_bounds
from lmexposure.statistics.membership import area_under_curve, membership_metrics
from lmexposure.statistics.results import (
    EpsilonBound,
    JointBounds,
    PrimaryBound,
    Privacy,
    PrivacyClass,
)

ROLES = ("canary", "held_out", "reference", "control")


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreClass:
    """The scores of candidates of one number of repetitions."""

    formats: tuple[str, ...]  # names of the formats that they are of
    repetitions: int  # copies of each candidate that went in
    scores: Floats  # of the m candidates, shape (m,); higher = more likely in
    included: Flags  # whether each went in, shape (m,)
    references: Floats  # scores of n texts that were no candidates and never in, shape (n,)
    references_left_out: int = 0  # of these formats, since places among them would not compare

    @property
    def outside(self) -> Floats:
        """Scores of all that was never in: candidates left out, then references."""
        return np.concatenate([self.scores[~self.included], self.references])


def score_classes(
    scores: ArrayLike,
    roles: ArrayLike,
    repetitions: ArrayLike,
    formats: ArrayLike,
    *,
    pooled: bool,
    seed: int = 0,
) -> list[ScoreClass]:
    """Sort scores into classes; those of different repetitions are never pooled.

    Formats are not alike, so where several are pooled a score is replaced by its place among the
    scores of its own format and class, as a share of their number. It depends on who was in
    through the scores alone, so bounds that rest on coins hold whatever is compared with what.

    Bounds and metrics that compare those in with all others need more: where nothing leaks, the
    places of both must have one law. A text's place is uniform on the N steps of its format's
    ladder, so texts of several formats have the same law only where each format is as large a part
    of the references as of the candidates. Therefore each format keeps q references for each g of
    its candidates, drawn by the seed, with g the greatest common divisor of the formats' numbers of
    candidates and q the most that every format has. All are kept by one format, which keeps its
    scores too, and by formats with equal numbers of both. None is kept where a format has none:
    then, all places known, the coins alone decide who is in, and any choice of those in is as
    likely as any other of as many.

    With references the share of candidates above a place varies (N - 1/F) / (N - 1) times as much
    over F formats of N texts as among places that are exchangeable, as much as without formats for
    all but the smallest N, where ties, which count against every bound, take more than this gives.

    Source: proof in this docstring.
    """
    values, role = bits_array("scores", scores), np.atleast_1d(np.asarray(roles, dtype=str))
    copies = np.atleast_1d(np.asarray(repetitions, dtype=np.float64))
    copies = np.where(np.isfinite(copies), copies, 0.5)  # refused where it matters
    form = np.atleast_1d(np.asarray(formats, dtype=str))
    if len({values.size, role.size, copies.size, form.size}) > 1:
        raise InputError(
            f"{values.size} scores, {role.size} roles, {copies.size} repetitions and {form.size} "
            "formats; give one of each for each text"
        )
    unknown = set(np.unique(role).tolist()) - set(ROLES)
    if unknown:
        raise InputError(f"{len(unknown)} roles are none of {', '.join(ROLES)}")
    candidate = (role == "canary") | (role == "held_out")
    bad = np.flatnonzero(candidate & ((copies < 1) | (copies != np.floor(copies))))
    if bad.size:
        raise InputError(
            f"row {bad[0] + 1} has {copies[bad[0]]:g} repetitions; give a whole number from 1: a "
            "candidate that was left out carries the number that it would have had"
        )
    names = list(dict.fromkeys(form.tolist()))
    groups = [tuple(names)] if pooled else [(name,) for name in names]
    generator = np.random.default_rng(integer("seed", seed, low=0))
    columns = values, role, np.where(candidate, copies, 0), form
    return [found for group in groups for found in _classes(columns, group, generator)]


@dataclass(frozen=True)
class _Part:
    """The texts of one format in a class: candidates (m,), whether they were in, references."""

    format: str
    scores: Floats
    included: Flags
    references: Floats

    def thinned(self, kept: int, generator: np.random.Generator) -> Floats:
        """As many references, in their order."""
        if kept == self.references.size:
            return self.references
        chosen = generator.choice(self.references.size, kept, replace=False)
        return self.references[np.sort(chosen)]


# Of each text its score, role, copies (0 for no candidate) and format, checked; each shape (N,).
_Columns = tuple[Floats, NDArray[np.str_], Floats, NDArray[np.str_]]


def _classes(
    columns: _Columns, group: tuple[str, ...], generator: np.random.Generator
) -> Iterator[ScoreClass]:
    """A class for each number of repetitions that a candidate of these formats has."""
    scores, role, copies, form = columns
    for count in np.unique(copies[np.isin(form, group) & (copies > 0)]).tolist():
        parts = []
        for name in group:
            own = form == name
            candidates, references = own & (copies == count), own & (role == "reference")
            if candidates.any():
                included = role[candidates] == "canary"
                parts.append(_Part(name, scores[candidates], included, scores[references]))
        yield _pooled(parts, int(count), generator)


def _pooled(parts: list[_Part], count: int, generator: np.random.Generator) -> ScoreClass:
    """One class of formats that all have candidates of it; by places where there are several."""
    available = sum(part.references.size for part in parts)
    chosen = [(part.scores, part.references) for part in parts]
    if len(parts) > 1:
        chosen = [
            _places(part.scores, part.thinned(kept, generator))
            for part, kept in zip(parts, _comparable(parts), strict=True)
        ]
    references = np.concatenate([others for _, others in chosen])
    return ScoreClass(
        formats=tuple(part.format for part in parts),
        repetitions=count,
        scores=np.concatenate([own for own, _ in chosen]),
        included=np.concatenate([part.included for part in parts]),
        references=references,
        references_left_out=available - references.size,
    )


def _comparable(parts: list[_Part]) -> list[int]:
    """How many references each format keeps: as many for each candidate as every other."""
    divisor = math.gcd(*(part.scores.size for part in parts))
    units = [part.scores.size // divisor for part in parts]
    ratio = min(part.references.size // unit for part, unit in zip(parts, units, strict=True))
    return [ratio * unit for unit in units]


def _places(own: Floats, others: Floats) -> tuple[Floats, Floats]:
    """Scores of one format's candidates and references as shares of a rank among both."""
    places = midranks(np.concatenate([own, others])) / (own.size + others.size)
    return places[: own.size], places[own.size :]


def privacy_of(  # noqa: PLR0913 - a public door: its parameters are its options
    classes: Sequence[ScoreClass],
    *,
    inclusion_probability: float | None = None,
    significance: float = 0.05,
    deltas: Sequence[float] = (0.0,),
    claim: Claim | None = None,
    level: float = 0.95,
    seed: int = 0,
    if_reversed: str = "higher must mean in: turn the sign of the scores",
) -> Privacy:
    """Bounds on epsilon over all classes, at one joint level, and one verdict on a claim.

    The primary bound is the largest of the classes' primary ones. Each of those has half of an
    equal part of the significance; the largest lies above the truth where any of them does, so
    that its own `significance`, and that of the verdict on a claim, is the sum of theirs.

    Source: `joint_bounds`, `membership_metrics` and `Claim`; over classes, Boole's inequality.
    """
    if not classes:
        raise InputError("no candidates, so there is nothing to bound; give canaries and others")
    share = fraction("significance", significance) / len(classes)
    rows: list[PrivacyClass] = []
    primary: list[tuple[EpsilonBound, ScoreClass]] = []
    for group in classes:
        try:
            bounds = joint_bounds(
                group.scores,
                group.included,
                references=group.references,
                inclusion_probability=inclusion_probability,
                significance=share,
                deltas=deltas,
                repetitions=group.repetitions,
                seed=seed,
            )
            if inclusion_probability is not None:  # what all would hardly give, though each might
                went_in = sum(int(np.count_nonzero(each.included)) for each in classes)
                tossed = sum(each.included.size for each in classes)
                refuse_unlikely_coins(went_in, tossed, inclusion_probability)
        except SettingsError:
            raise
        except InputError as failure:  # all candidates of the class on one side, for one
            rows.append(_row(group, None, level, f"no bound: {failure}"))
            continue
        rows.append(_row(group, bounds, level, None))
        primary.append((bounds.primary, group))
    attainable = [bound.max_attainable for bound, _ in primary if bound.max_attainable is not None]
    most, best = max(attainable, default=None), _largest(primary)
    check = None
    if claim is not None:
        check = claim.untested("no class of canaries has a bound")
        if best is not None:  # it contradicts; what any class could have shown makes it consistent
            check = claim.against(replace(best, max_attainable=most))
            check = replace(check, **_power(claim, primary, inclusion_probability))
    return Privacy(
        inclusion_probability=inclusion_probability and float(inclusion_probability),
        significance=float(significance),
        deltas=tuple(map(float, deltas)),
        primary=best,
        max_attainable=most,
        classes=tuple(rows),
        claim=check,
        notes=(*_left_out(classes), *_reversed(classes, level, if_reversed)),
    )


def _left_out(classes: Sequence[ScoreClass]) -> Iterator[str]:
    """Where formats are pooled and cannot be compared by all their references."""
    for group in classes:
        left = group.references_left_out
        if left:
            yield (
                f"{_where(group)}: {left:,} of "
                f"{left + group.references.size:,} references are left out: several formats are "
                "compared by places, which takes as many references for each candidate in each"
            )


def _reversed(classes: Sequence[ScoreClass], level: float, advice: str) -> Iterator[str]:
    """Where scores tell those in from the rest, but the other way round: every bound is then 0."""
    for group in classes:
        inside = group.scores[group.included]
        if not inside.size or not group.outside.size:
            continue
        # Each class at its share, so that many classes without a leak seldom look reversed.
        area = area_under_curve(inside, group.outside, level=1 - (1 - level) / len(classes))
        if area.high < 0.5:
            yield (
                f"{_where(group)}: those that were in score lower than the "
                f"rest (AUC {area.value:.3f}, its interval below 0.5), which no bound counts as a "
                f"leak; {advice}"
            )


def _where(group: ScoreClass) -> str:
    formats = ", ".join(filter(None, group.formats))
    if len(group.formats) > 3:
        formats = f"{len(group.formats)} formats"
    return f"{formats + ', ' if formats else ''}repetitions {group.repetitions}"


def _largest(primary: Sequence[tuple[EpsilonBound, ScoreClass]]) -> PrimaryBound | None:
    """The largest bound with its class: it lies above the truth where any of them does (Boole)."""
    if not primary:
        return None
    bound, group = max(primary, key=lambda pair: pair[0].value)
    together = math.fsum(each.significance for each, _ in primary)
    values = {each.name: getattr(bound, each.name) for each in fields(EpsilonBound)}
    return PrimaryBound(**values | {"significance": together}, formats=group.formats)


def _power(
    claim: Claim, primary: Sequence[tuple[EpsilonBound, ScoreClass]], probability: float | None
) -> dict[str, Any]:
    """What the class that could show most could have shown; nothing without coins."""
    if probability is None or not primary:
        return {}
    found = [
        claim_power(
            claim.epsilon,
            Terms(
                significance=bound.significance, delta=bound.delta, repetitions=bound.repetitions
            ),
            candidates=group.scores.size,
            inclusion_probability=probability,
        )
        for bound, group in primary
    ]
    leaks = [row.refutable_from for row in found if row.refutable_from is not None]
    return {
        "could_show": max(row.could_show for row in found),
        "refutable_from": min(leaks, default=None),
        "power": found[0].power,
    }


def _row(
    group: ScoreClass, bounds: JointBounds | None, level: float, note: str | None
) -> PrivacyClass:
    """What is said of one class."""
    return PrivacyClass(
        formats=group.formats,
        repetitions=group.repetitions,
        canaries=int(group.included.sum()),
        held_out=int((~group.included).sum()),
        references=group.references.size,
        bounds=bounds,
        membership=None
        if bounds is None
        else membership_metrics(group.scores[group.included], group.outside, level=level),
        note=note,
    )


_ORDERS = np.concatenate(
    [
        [1.01, 1.02, 1.05],
        np.arange(11, 110) / 10,
        np.arange(11, 64),
        [72, 80, 100, 128, 160, 192, 256, 384, 512],
    ]
)
_RATIO = 1.02  # between neighbouring norms of the grid: rounded up by 1 % in the mean
_LEAST = 1e-3  # of the clip: what is smaller, but not 0, counts as this
_EDGE = 9.0  # standard deviations around what is integrated: 1e-19 is beyond
_MOST_AT_ONCE = 1000  # documents


def document_epsilons(
    norms: ArrayLike,
    *,
    noise_multiplier: float,
    sample_rate: float,
    steps_each: ArrayLike,
    delta: float,
) -> Floats:
    """The epsilon of each document ex post: what this training let out about it.

    Ex post, because it is of the gradients that this training had, where a claim is of all that it
    could have had. Private: a document's epsilon depends on the document, and says something about
    it. Not adaptively composable: stopping because the epsilons are small, or dropping documents
    whose epsilon is large, is covered by none of them. And of gradients measured at R moments: in
    between, they are taken to be as large as at the moment.

    Source: Feldman and Zrnic 2021; Yu et al. 2023. Sampling: Mironov, Talwar and Zhang 2019,
        Section 3.3. From Rényi divergences: Canonne, Kamath and Steinke 2020, Proposition 12.

    >>> norms = [[0.1, 0.25, 0.5, 1.0]]
    >>> found = document_epsilons(
    ...     norms, noise_multiplier=20.0, sample_rate=1.0, steps_each=[100], delta=1e-5
    ... )
    >>> found.round(4).tolist()
    [0.16, 0.4344, 0.9263, 1.9931]
    """
    noise, delta = positive("noise_multiplier", noise_multiplier), fraction("delta", delta)
    if positive("sample_rate", sample_rate) > 1:
        raise SettingsError(f"sample_rate={sample_rate!r} must be above 0 and at most 1")
    clipped, steps = _measured(norms, steps_each)
    if sample_rate == 1:
        mus = np.sqrt(steps @ clipped**2) / noise
        different, equal = np.unique(mus, return_inverse=True)
        return np.array([epsilon_of_mu(mu=float(mu), delta=delta) for mu in different])[equal]
    # The grid's norms that occur, ascending, and the place among them of each, rounded up.
    down = np.floor(np.log(np.clip(clipped, _LEAST, 1.0)) / -np.log(_RATIO) + 1e-9)
    power, flat = np.unique(np.where(clipped > 0, down, np.inf), return_inverse=True)
    grid = np.where(np.isinf(power), 0.0, _RATIO**-power)
    place: NDArray[np.intp] = flat.reshape(clipped.shape)
    table = _divergences(grid / noise, sample_rate)  # (levels, orders)
    parts = np.array_split(place, max(1, -(-place.shape[1] // _MOST_AT_ONCE)), axis=1)
    return np.concatenate([_epsilons(part, steps, table, delta) for part in parts])


def _measured(norms: ArrayLike, steps_each: ArrayLike) -> tuple[Floats, Floats]:
    """Norms, at most 1, of shape (R, N), and steps of shape (R,)."""
    array, steps = np.asarray(norms, dtype=np.float64), np.asarray(steps_each, dtype=np.float64)
    if array.ndim != 2 or not array.size:
        raise InputError(
            f"norms has shape {array.shape}; give (R, N): at each of R moments, of N documents"
        )
    if steps.shape != array.shape[:1]:
        raise InputError(
            f"steps_each has shape {steps.shape}, and norms {array.shape}; give one number of "
            "steps for each row of norms"
        )
    if not np.all(np.isfinite(array) & (array >= 0)):
        raise InputError("norms holds a number that is below 0 or not finite; measure them again")
    if not np.all(np.isfinite(steps) & (steps >= 0) & (steps == np.floor(steps))):
        raise InputError(f"steps_each={steps.tolist()} must be whole numbers, at least 0")
    return np.minimum(array, 1.0), steps


def _divergences(shifts: Floats, rate: float) -> Floats:
    """Rényi divergences of a step, of shape (levels, orders).

    Of rate N(shift, 1) + (1 - rate) N(0, 1) from N(0, 1); the other way they are smaller (Mironov
    et al. 2019, Theorem 5). The integrands are smooth and fall like a Gaussian, so that sums over
    an even grid are exact to rounding.
    """
    largest = float(shifts.max())
    step = min(1 / 8, 1 / (2 * largest)) if largest else 1 / 8
    columns = []
    for order in _ORDERS:
        x = np.arange(-_EDGE, order * largest + _EDGE + step, step)
        shifted = shifts[:, None] * x - shifts[:, None] ** 2 / 2  # (levels, points)
        ratio = np.logaddexp(np.log1p(-rate), np.log(rate) + shifted)
        density = -(x**2) / 2 - np.log(2 * np.pi) / 2
        power = special.logsumexp(order * ratio + density, axis=1) + np.log(step)
        columns.append(np.maximum(power, 0.0) / (order - 1))
    return np.where(shifts[:, None] > 0, np.stack(columns, axis=1), 0.0)


def _epsilons(place: NDArray[np.intp], steps: Floats, table: Floats, delta: float) -> Floats:
    spent = np.zeros((place.shape[1], len(_ORDERS)))
    for row, times in zip(place, steps, strict=True):
        spent += times * table[row]
    best = spent + np.log1p(-1 / _ORDERS) - (np.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1)
    epsilons = np.maximum(best.min(axis=1), 0.0)
    return np.where(spent.max(axis=1) == 0, 0.0, epsilons)
