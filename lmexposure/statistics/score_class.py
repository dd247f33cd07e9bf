"""Scores sorted into classes that may be compared: by repetitions, and by format or over all."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array, integer
from lmexposure.errors import InputError
from lmexposure.statistics._rows import midranks

ROLES = ("canary", "held_out", "reference", "control")


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreClass:
    """The scores of candidates of one number of repetitions.

    Attributes:
        formats: names of the formats that they are of.
        repetitions: copies of each candidate that went in.
        scores: of the m candidates, shape (m,); higher = more likely in.
        included: whether each went in, shape (m,).
        references: scores of n texts that were no candidates and never in, shape (n,).
        references_left_out: of these formats, since places among them would not compare.
    """

    formats: tuple[str, ...]
    repetitions: int
    scores: NDArray[np.float64]
    included: NDArray[np.bool_]
    references: NDArray[np.float64]
    references_left_out: int = 0

    @property
    def outside(self) -> NDArray[np.float64]:
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

    Args:
        scores: shape (N,), finite; higher = more likely in.
        roles: shape (N,): "canary" (was in), "held_out" (a candidate that was not), "reference"
            (never in, and no candidate), "control" (left aside).
        repetitions: shape (N,), whole numbers: the class of a canary or a candidate held out, at
            least 1; of the others it is not looked at.
        formats: shape (N,), the name of each one's format.
        pooled: one class over all formats, as bounds that rest on coins allow.
        seed: of the references that are kept.

    Returns:
        classes by ascending repetitions, format by format where they are not pooled.

    Raises:
        InputError: a score that is not finite, a role of another name, repetitions of a candidate
            that are no whole number from 1, columns of different lengths.
    """
    values, role = bits_array("scores", scores), np.atleast_1d(np.asarray(roles, dtype=str))
    copies, form = _whole(repetitions), np.atleast_1d(np.asarray(formats, dtype=str))
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
            f"row {bad[0] + 1}: repetitions={copies[bad[0]]:g} must be a whole number from 1; a "
            "candidate that was left out carries the number that it would have had"
        )
    names = list(dict.fromkeys(form.tolist()))
    groups = [tuple(names)] if pooled else [(name,) for name in names]
    generator = np.random.default_rng(integer("seed", seed, low=0))
    columns = _Columns(values, role, np.where(candidate, copies, 0), form)
    return [found for group in groups for found in columns.classes(group, generator)]


def _whole(repetitions: ArrayLike) -> NDArray[np.float64]:
    copies = np.atleast_1d(np.asarray(repetitions, dtype=np.float64))
    return np.where(np.isfinite(copies), copies, 0.5)  # refused where it matters


@dataclass(frozen=True)
class _Part:
    """The texts of one format in a class: candidates (m,), whether they were in, references."""

    format: str
    scores: NDArray[np.float64]
    included: NDArray[np.bool_]
    references: NDArray[np.float64]

    def thinned(self, kept: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """As many references, in their order."""
        if kept == self.references.size:
            return self.references
        chosen = generator.choice(self.references.size, kept, replace=False)
        return self.references[np.sort(chosen)]


@dataclass(frozen=True)
class _Columns:
    """What is known of each text, checked; each shape (N,), `copies` 0 for no candidate."""

    scores: NDArray[np.float64]
    role: NDArray[np.str_]
    copies: NDArray[np.float64]
    form: NDArray[np.str_]

    def classes(
        self, group: tuple[str, ...], generator: np.random.Generator
    ) -> Iterator[ScoreClass]:
        """A class for each number of repetitions that a candidate of these formats has."""
        inside = np.isin(self.form, group)
        counts = np.unique(self.copies[inside & (self.copies > 0)])
        for count in counts.tolist():
            parts = [self._part(name, count) for name in group]
            parts = [part for part in parts if part.scores.size]
            yield _pooled(parts, int(count), generator)

    def _part(self, name: str, count: float) -> _Part:
        own = self.form == name
        candidates = own & (self.copies == count)
        return _Part(
            format=name,
            scores=self.scores[candidates],
            included=self.role[candidates] == "canary",
            references=self.scores[own & (self.role == "reference")],
        )


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


def _places(
    own: NDArray[np.float64], others: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scores of one format's candidates and references as shares of a rank among both."""
    places = midranks(np.concatenate([own, others])) / (own.size + others.size)
    return places[: own.size], places[own.size :]
