"""Every bound that some scores support, at one joint level, with one named beforehand.

Which bound is the primary one is decided by how the data were made, never by what they show. It
takes half of the significance, the others share the other half: all of them hold together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._settings import takes_old_names
from lmexposure._validate import bits_array, delta_of_dp, fraction
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.bounds.bound import EpsilonBound, true_or_false
from lmexposure.statistics.bounds.from_exposure import epsilon_from_exposure
from lmexposure.statistics.bounds.from_scores import epsilon_from_scores
from lmexposure.statistics.bounds.gaussian import gaussian_dp_epsilon, one_run_gaussian_audit
from lmexposure.statistics.bounds.one_run import one_run_audit

_MANY = 10  # never-inserted scores for each canary: from here on the canaries are few


@dataclass(frozen=True, kw_only=True)
class JointBounds:
    """Lower bounds on epsilon that hold together.

    Attributes:
        primary: the one named beforehand, at half of the significance.
        others: what else the data supports, each at an equal part of the other half.
        refused: (the bound, why the data does not support it).
        significance: how often, at most, any of those that are no "gaussian" model's lies above
            the truth, each under its own conditions.
        inclusion_probability: of each candidate; None where no coins were tossed.
    """

    primary: EpsilonBound
    others: tuple[EpsilonBound, ...]
    refused: tuple[tuple[str, str], ...]
    significance: float
    inclusion_probability: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return {
            "primary": self.primary.to_dict(),
            "others": [bound.to_dict() for bound in self.others],
            "refused": [{"method": method, "reason": why} for method, why in self.refused],
            "significance": self.significance,
            "inclusion_probability": self.inclusion_probability,
        }


@takes_old_names({"coins": "inclusion_probability"})
def joint_bounds(  # noqa: PLR0913 - a public door: its parameters are its options
    scores: ArrayLike,
    included: ArrayLike,
    *,
    references: ArrayLike = (),
    inclusion_probability: float | None = None,
    significance: float = 0.05,
    deltas: Sequence[float] = (0.0,),
    repetitions: int = 1,
    seed: int = 0,
) -> JointBounds:
    """Bound epsilon by every rule that the data supports.

    The primary bound is for the first delta: `one_run_audit` with fair coins,
    `epsilon_from_exposure` with others; without coins `epsilon_from_exposure` where there are ten
    times as many never-inserted scores as canaries, else `epsilon_from_scores`.

    Args:
        scores: one per candidate, shape (m,), finite; higher = more likely in.
        included: whether it went in, shape (m,), booleans.
        references: scores of texts for which no coin was tossed and that were never in, shape
            (n,); may be empty. Only bounds that take scores for independent and alike use them.
        inclusion_probability: with which each candidate went in by its own independent coin; None
            where a fixed number went in, or it is not known.
        significance: of all bounds together.
        deltas: one or more, in [0, 1), different; each bound is computed at each of them.
        repetitions: copies of each candidate that went in.
        seed: of ties and splits.

    Raises:
        InputError: scores that are missing or one-sided, of another shape, or for the coins.
        SettingsError: a setting out of range.

    Source: each bound cites its own; they hold together by Boole's inequality, since their parts
    of the significance add up to it.
    """
    data = _Data(
        scores=bits_array("scores", scores),
        included=true_or_false(included),
        references=bits_array("references", references) if np.size(references) else np.empty(0),
        inclusion_probability=None
        if inclusion_probability is None
        else fraction("inclusion_probability", inclusion_probability),
        repetitions=repetitions,
        seed=seed,
    )
    data.refuse_unusable()
    deltas = [delta_of_dp("deltas", delta) for delta in deltas]
    if not deltas or len(set(deltas)) < len(deltas):
        raise SettingsError(f"deltas={deltas} must hold at least one value, each once")
    significance = fraction("significance", significance)
    refused: list[tuple[str, str]] = []
    rules = list(_rules(data, refused))
    wanted = [(rule, delta) for delta in deltas for rule in rules]
    possible = [pair for pair in wanted if pair[1] > 0 or pair[0] not in _GAUSSIAN]
    if not any(deltas):
        why = "at delta 0 no Gaussian trade-off has an epsilon"
        refused += [(_GAUSSIAN[rule], why) for rule in rules if rule in _GAUSSIAN]
    primary, others = possible[0], possible[1:]
    share = significance / 2 / max(1, len(others))
    return JointBounds(
        primary=primary[0](data, significance / 2, primary[1]),
        others=tuple(rule(data, share, delta) for rule, delta in others),
        refused=tuple(refused),
        significance=significance,
        inclusion_probability=data.inclusion_probability,
    )


@dataclass(frozen=True, kw_only=True)
class _Data:
    """What there is, checked."""

    scores: NDArray[np.float64]
    included: NDArray[np.bool_]
    references: NDArray[np.float64]
    inclusion_probability: float | None
    repetitions: int
    seed: int

    @property
    def inside(self) -> NDArray[np.float64]:
        return self.scores[self.included]

    @property
    def left_out(self) -> NDArray[np.float64]:
        """Candidates that were not inserted."""
        return self.scores[~self.included]

    @property
    def outside(self) -> NDArray[np.float64]:
        """All that was never inserted."""
        return np.concatenate([self.left_out, self.references])

    def refuse_unusable(self) -> None:
        if self.included.shape != self.scores.shape:
            raise InputError(
                f"included has shape {self.included.shape} for {self.scores.size} scores; give "
                "one for each"
            )
        if not self.inside.size or not self.outside.size:
            raise InputError(
                f"{self.inside.size} scores were in and {self.outside.size} were not; a bound "
                "compares both: give some of each"
            )


class _Rule(Protocol):
    __name__: str

    def __call__(self, data: _Data, significance: float, delta: float, /) -> EpsilonBound: ...


def _rules(data: _Data, refused: list[tuple[str, str]]) -> Iterator[Callable[..., EpsilonBound]]:
    """What the data supports, the primary rule first; says why not of the others."""
    fair = data.inclusion_probability == 0.5
    if fair:
        yield _one_run
    else:
        why = (
            "needs a declared inclusion probability of 0.5"
            if data.inclusion_probability is None
            else f"needs fair coins; these are of {data.inclusion_probability}"
        )
        refused += [("one_run_audit", why), ("one_run_gaussian_audit", why)]
    if data.inclusion_probability is None:
        refused.append(
            ("epsilon_from_exposure with coins", "needs a declared inclusion probability")
        )
    elif not data.left_out.size:
        refused.append(("epsilon_from_exposure with coins", "no coin kept a candidate out"))
    else:
        yield _p_coins
    few = data.outside.size >= _MANY * data.inside.size
    yield from (_exposure, _two_samples) if few else (_two_samples, _exposure)
    yield _gaussian
    if fair:
        yield _one_run_gaussian


def _one_run(data: _Data, significance: float, delta: float) -> EpsilonBound:
    return one_run_audit(
        data.scores,
        data.included,
        significance=significance,
        delta=delta,
        repetitions=data.repetitions,
        seed=data.seed,
    )


def _p_coins(data: _Data, significance: float, delta: float) -> EpsilonBound:
    return _from_exposure(data, data.left_out, data.inclusion_probability, significance, delta)


def _exposure(data: _Data, significance: float, delta: float) -> EpsilonBound:
    return _from_exposure(data, data.outside, None, significance, delta)


def _from_exposure(
    data: _Data,
    against: NDArray[np.float64],
    inclusion_probability: float | None,
    significance: float,
    delta: float,
) -> EpsilonBound:
    found = epsilon_from_exposure(
        -data.inside,
        -against,
        inclusion_probability=inclusion_probability,
        repetitions=data.repetitions,
        significance=significance,
        delta=delta,
    )
    return found.bound


def _two_samples(data: _Data, significance: float, delta: float) -> EpsilonBound:
    return epsilon_from_scores(
        data.inside,
        data.outside,
        significance=significance,
        delta=delta,
        repetitions=data.repetitions,
        seed=data.seed,
    )


def _gaussian(data: _Data, significance: float, delta: float) -> EpsilonBound:
    return gaussian_dp_epsilon(
        data.inside,
        data.outside,
        significance=significance,
        delta=delta,
        repetitions=data.repetitions,
    )


def _one_run_gaussian(data: _Data, significance: float, delta: float) -> EpsilonBound:
    return one_run_gaussian_audit(
        data.scores,
        data.included,
        significance=significance,
        delta=delta,
        repetitions=data.repetitions,
        seed=data.seed,
    )


# What only a delta above 0 has, by the name that it goes by.
_GAUSSIAN: dict[Callable[..., EpsilonBound], str] = {
    _gaussian: "gaussian_dp_epsilon",
    _one_run_gaussian: "one_run_gaussian_audit",
}
