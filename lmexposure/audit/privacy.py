"""Bounds on epsilon: from the scores of a measurement, and from anyone's."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array, delta_of_dp, flag
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import Claim, Privacy, privacy_of, score_classes
from lmexposure.studies import ScoreColumns

if TYPE_CHECKING:  # scores of anyone need no model, and no torch
    from lmexposure.canaries import Manifest
    from lmexposure.studies import MeasureSettings, Scores

_PACKED = (
    "training packs documents into blocks of tokens: one document more or less shifts the blocks "
    "behind it, so these bounds test claims about documents; a claim about blocks is another one"
)
_PERHAPS_PACKED = (
    "these bounds test claims about documents; if the training packed documents into blocks of "
    "tokens, one document more or less shifted the blocks behind it, and a claim about blocks is "
    "another one"
)
_REVERSED = (
    "the model finds inserted canaries more surprising than texts that it never saw: check that it "
    "was trained on this corpus, and whether its training penalises what it memorised"
)


def privacy_section(
    scores: "Scores",
    manifest: "Manifest",
    settings: "MeasureSettings",
    *,
    own_training: bool = False,
    private: bool = False,
) -> Privacy:
    """Bounds on epsilon, membership metrics and a verdict on the claim, as by `privacy_of`."""
    probability = manifest.plan.inclusion_probability
    claim = None
    if settings.claimed_epsilon is not None:
        claim = Claim(epsilon=settings.claimed_epsilon, delta=settings.delta)
    section = privacy_of(
        score_classes(
            -scores.log_perplexity_bits,  # higher = more likely in
            scores.roles,
            scores.repetitions,
            scores.formats,
            pooled=probability is not None,
        ),
        inclusion_probability=probability,
        significance=settings.significance,
        deltas=settings.deltas(manifest.corpus.documents),
        claim=claim,
        level=settings.level,
        seed=settings.bootstrap_seed,
        if_reversed=_REVERSED,
    )
    packed = [_PACKED if own_training else _PERHAPS_PACKED]
    if own_training and (manifest.wrapping is not None or private):
        packed = []  # a record is a row of its own, and so is a document of a private training
    return replace(section, notes=(*packed, *section.notes))


_IN_AND_OUT = ({0.0, 1.0}, {0.0}, {1.0})


def epsilon(  # noqa: PLR0913 - a public door; each argument is a column or an option
    scores: ArrayLike,
    included: ArrayLike,
    *,
    references: ArrayLike | None = None,
    formats: ArrayLike | None = None,
    repetitions: ArrayLike = 1,
    inclusion_probability: float | None = None,
    lower_is_in: bool = False,
    deltas: Sequence[float] = (0.0,),
    claim: Claim | float | None = None,
    significance: float = 0.05,
    seed: int = 0,
) -> Privacy:
    """Every lower bound on epsilon that scores support, with its conditions.

    Scores that tell those in from the rest the wrong way round end in a warning that says so.

    Args:
        scores: of N candidates, shape (N,), finite; higher = more likely in the training data.
        included: whether each went in, shape (N,): booleans, or 1 and 0.
        references: scores of texts that were no candidates and never in, shape (M,).
        formats: what each candidate is one of, shape (N,), as names; only scores of one format are
            compared. With several, `references` cannot be told apart, and are refused.
        repetitions: how often each went in that did, or would have; one or shape (N,).
        inclusion_probability: each candidate went in by its own independent coin of this
            probability. Say so only where it is true: the strongest bounds rest on it.
        lower_is_in: lower scores mean in, as of a loss or a log-perplexity.
        deltas: next to which epsilon is bounded, the primary bound's first.
        claim: held against the primary bound; a number is an epsilon in nats, next to the first
            delta.
        significance: how often, at most, the bounds may be wrong together.
        seed: of ties and splits.

    Returns:
        as `Result.epsilon` of a measurement: `.primary`, `.classes` with all bounds, `.claim`,
        `.notes`.

    Raises:
        InputError: scores that are no finite numbers, columns of different lengths, `included` that
            holds something else than booleans.
        SettingsError: a setting out of range.

    >>> epsilon(range(100), [i >= 50 for i in range(100)], inclusion_probability=0.5).primary.method
    'one_run_audit'
    """
    values, inside = bits_array("scores", scores), _truths(included)
    others = np.empty(0) if references is None else bits_array("references", references)
    n = values.size
    names = np.full(n, "") if formats is None else np.atleast_1d(np.asarray(formats, dtype=str))
    if others.size and len(set(names.tolist())) > 1:
        raise InputError(
            f"references of {len(set(names.tolist()))} formats cannot be told apart here; leave "
            "formats out if scores compare across them, or call once for each format"
        )
    copies = bits_array("repetitions", repetitions)
    copies = np.full(n, copies[0]) if np.ndim(repetitions) == 0 else copies
    columns = {"scores": values, "included": inside, "formats": names, "repetitions": copies}
    if len({column.size for column in columns.values()}) > 1:
        listed = ", ".join(f"{name} {column.size}" for name, column in columns.items())
        raise InputError(f"columns of different lengths: {listed}; give one of each per candidate")
    roles = np.where(inside, "canary", "held_out")
    told = ScoreColumns(
        scores=np.concatenate([values, others]) * (-1 if flag("lower_is_in", lower_is_in) else 1),
        roles=np.concatenate([roles, np.full(others.size, "reference")]),
        repetitions=np.concatenate([copies, np.zeros(others.size)]),
        formats=np.concatenate([names, np.full(others.size, names[0])]),
    )
    return epsilon_of_columns(
        told,
        inclusion_probability=inclusion_probability,
        deltas=deltas,
        claim=claim,
        significance=significance,
        seed=seed,
        if_reversed=f"{'leave out lower_is_in' if lower_is_in else 'give lower_is_in=True'} if "
        f"lower scores {'do not ' if lower_is_in else ''}mean in",
        warn=True,
    )


def epsilon_of_columns(  # noqa: PLR0913 - the options of `epsilon`
    columns: ScoreColumns,
    *,
    inclusion_probability: float | None,
    deltas: Sequence[float],
    claim: Claim | float | None,
    significance: float,
    seed: int,
    if_reversed: str,
    warn: bool = False,
) -> Privacy:
    """The same of columns with roles."""
    if not deltas:
        raise SettingsError("deltas is empty; give one, such as (0.0,) for pure privacy")
    for delta in deltas:
        delta_of_dp("deltas", delta)
    if claim is not None and not isinstance(claim, Claim):
        claim = Claim(epsilon=claim, delta=deltas[0])
    privacy = privacy_of(
        score_classes(
            columns.scores,
            columns.roles,
            columns.repetitions,
            columns.formats,
            pooled=inclusion_probability is not None,
        ),
        inclusion_probability=inclusion_probability,
        significance=significance,
        deltas=deltas,
        claim=claim,
        seed=seed,
        if_reversed=if_reversed,
    )
    if warn:
        for note in (note for note in privacy.notes if note.endswith(if_reversed)):
            warnings.warn(note, stacklevel=3)
    return privacy


def _truths(included: ArrayLike) -> NDArray[np.bool_]:
    """Booleans, or the numbers 1 and 0."""
    given = np.atleast_1d(np.asarray(included))
    if given.dtype == bool and given.ndim == 1:
        return given
    try:
        numbers = bits_array("included", given)
    except InputError:
        numbers = np.array([2.0])
    if set(numbers.tolist()) not in _IN_AND_OUT:
        raise InputError(
            "included must say of each candidate whether it went in: True or False, or 1 or 0"
        )
    return np.equal(numbers, 1)
