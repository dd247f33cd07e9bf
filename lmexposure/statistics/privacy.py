"""What classes of scores say of privacy together: bounds, membership metrics, one verdict.

`score_classes` sorts scores into classes that may be compared, by repetitions, and by format or
over all formats; `privacy_of` bounds epsilon over all classes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array, fraction, integer
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.arrays import Flags, Floats, midranks
from lmexposure.statistics.bounds.bound import Claim, Terms, refuse_unlikely_coins
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
