"""Scores sorted into classes that may be compared: by repetitions, and by format or over all."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from lmexposure._validate import bits_array
from lmexposure.errors import InputError

__all__ = ["ROLES", "ScoreClass", "score_classes"]

ROLES = ("canary", "excluded", "reference", "control")


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreClass:
    """The scores of candidates of one number of repetitions.

    Attributes:
        formats: names of the formats that they are of.
        repetitions: copies of each candidate that went in.
        scores: of the m candidates, shape (m,); higher = more likely in.
        included: whether each went in, shape (m,).
        references: scores of n texts that were no candidates and never in, shape (n,).
    """

    formats: tuple[str, ...]
    repetitions: int
    scores: NDArray[np.float64]
    included: NDArray[np.bool_]
    references: NDArray[np.float64]

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
) -> list[ScoreClass]:
    """Sort scores into classes; those of different repetitions are never pooled.

    Formats are not alike, so where several are pooled a score is replaced by its place among the
    scores of its own format and class, references included. The place depends on who was in
    through the scores alone, so bounds that rest on coins still hold.

    Args:
        scores: shape (N,), finite; higher = more likely in.
        roles: shape (N,): "canary" (was in), "excluded" (a candidate that was not), "reference"
            (never in, and no candidate), "control" (left aside).
        repetitions: shape (N,), whole numbers: the class of a canary or an excluded candidate, at
            least 1; of the others it is not looked at.
        formats: shape (N,), the name of each one's format.
        pooled: one class over all formats, as bounds that rest on coins allow.

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
    candidate = (role == "canary") | (role == "excluded")
    bad = np.flatnonzero(candidate & ((copies < 1) | (copies != np.floor(copies))))
    if bad.size:
        raise InputError(
            f"row {bad[0] + 1}: repetitions={copies[bad[0]]:g} must be a whole number from 1; a "
            "candidate that was left out carries the number that it would have had"
        )
    names = list(dict.fromkeys(form.tolist()))
    groups = [tuple(names)] if pooled else [(name,) for name in names]
    return [
        one
        for group in groups
        for one in _classes(values, role, np.where(candidate, copies, 0), form, group)
    ]


def _whole(repetitions: ArrayLike) -> NDArray[np.float64]:
    copies = np.atleast_1d(np.asarray(repetitions, dtype=np.float64))
    return np.where(np.isfinite(copies), copies, 0.5)  # refused where it matters


def _classes(
    scores: NDArray[np.float64],
    role: NDArray[np.str_],
    copies: NDArray[np.float64],
    form: NDArray[np.str_],
    group: tuple[str, ...],
) -> Iterator[ScoreClass]:
    inside = [form == name for name in group]
    counts = np.unique(np.concatenate([copies[own] for own in inside]))
    for count in counts[counts > 0].tolist():
        parts = [
            _places(scores, own & (copies == count), own & (role == "reference"), len(group) > 1)
            for own in inside
        ]
        chosen, references = (np.concatenate(part) for part in zip(*parts, strict=True))
        was_in = [role[own & (copies == count)] == "canary" for own in inside]
        yield ScoreClass(
            formats=group,
            repetitions=int(count),
            scores=chosen,
            included=np.concatenate(was_in),
            references=references,
        )


def _places(
    scores: NDArray[np.float64],
    candidates: NDArray[np.bool_],
    references: NDArray[np.bool_],
    several: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scores of one format's candidates and references; as shares of a rank with other formats."""
    own, others = scores[candidates], scores[references]
    if not several:
        return own, others
    places = rankdata(np.concatenate([own, others])) / max(1, own.size + others.size)
    return places[: own.size], places[own.size :]
