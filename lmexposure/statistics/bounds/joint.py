"""Every bound that some scores support, at one joint level, with one named beforehand.

Which bound is the primary one is decided by how the data were made, never by what they show. It
takes half of the significance, the others share the other half: all of them hold together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lmexposure._validate import bits_array, delta_of_dp, fraction
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.arrays import Flags, Floats
from lmexposure.statistics.bounds.bound import true_or_false
from lmexposure.statistics.bounds.from_exposure import epsilon_from_exposure
from lmexposure.statistics.bounds.from_scores import epsilon_from_scores
from lmexposure.statistics.bounds.gaussian import gaussian_dp_epsilon, one_run_gaussian_audit
from lmexposure.statistics.bounds.one_run import one_run_audit
from lmexposure.statistics.results import EpsilonBound, JointBounds, RefusedBound

_MANY = 10  # never-inserted scores for each canary: from here on the canaries are few


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
        seed=seed,
    )
    deltas = [delta_of_dp("deltas", delta) for delta in deltas]
    if not deltas or len(set(deltas)) < len(deltas):
        raise SettingsError(f"deltas={deltas} must hold at least one value, each once")
    significance = fraction("significance", significance)
    refused: list[tuple[str, str]] = []
    rules = list(_rules(data, refused))
    if not any(deltas):
        why = "at delta 0 no Gaussian trade-off has an epsilon"
        refused += [(rule.name, why) for rule in rules if not rule.pure]
    (first, at), *rest = ((rule, d) for d in deltas for rule in rules if d > 0 or rule.pure)
    share = significance / 2 / max(1, len(rest))
    return JointBounds(
        primary=first.bound(significance=significance / 2, delta=at, repetitions=repetitions),
        others=tuple(
            rule.bound(significance=share, delta=delta, repetitions=repetitions)
            for rule, delta in rest
        ),
        refused=tuple(RefusedBound(method=name, reason=why) for name, why in refused),
        significance=significance,
        inclusion_probability=data.inclusion_probability,
    )


@dataclass(frozen=True, kw_only=True)
class _Data:
    """What there is, checked."""

    scores: Floats
    included: Flags
    references: Floats
    inclusion_probability: float | None
    seed: int

    def __post_init__(self) -> None:
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

    @property
    def inside(self) -> Floats:
        return self.scores[self.included]

    @property
    def left_out(self) -> Floats:
        """Candidates that were not inserted."""
        return self.scores[~self.included]

    @property
    def outside(self) -> Floats:
        """All that was never inserted."""
        return np.concatenate([self.left_out, self.references])


@dataclass(frozen=True)
class _Rule:
    """A bound, ready for a significance, a delta and a number of repetitions."""

    name: str
    bound: Callable[..., EpsilonBound]
    pure: bool = True  # it has a value at delta 0


def _rules(data: _Data, refused: list[tuple[str, str]]) -> Iterator[_Rule]:
    """What the data supports, the primary rule first; says why not of the others."""
    probability, coins, seed = data.inclusion_probability, (data.scores, data.included), data.seed
    fair = probability == 0.5
    if fair:
        yield _Rule("one_run_audit", partial(one_run_audit, *coins, seed=seed))
    else:
        why = (
            "needs a declared inclusion probability of 0.5"
            if probability is None
            else f"needs fair coins; these are of {probability}"
        )
        refused += [("one_run_audit", why), ("one_run_gaussian_audit", why)]
    with_coins = "epsilon_from_exposure with coins"
    if probability is None:
        refused.append((with_coins, "needs a declared inclusion probability"))
    elif not data.left_out.size:
        refused.append((with_coins, "no coin kept a candidate out"))
    else:
        yield _Rule(with_coins, partial(_by_exposure, data.inside, data.left_out, probability))
    samples = data.inside, data.outside
    by_exposure = _Rule("epsilon_from_exposure", partial(_by_exposure, *samples, None))
    by_scores = _Rule("epsilon_from_scores", partial(epsilon_from_scores, *samples, seed=seed))
    few = data.outside.size >= _MANY * data.inside.size
    yield from (by_exposure, by_scores) if few else (by_scores, by_exposure)
    yield _Rule("gaussian_dp_epsilon", partial(gaussian_dp_epsilon, *samples), pure=False)
    if fair:
        audit = partial(one_run_gaussian_audit, *coins, seed=seed)
        yield _Rule("one_run_gaussian_audit", audit, pure=False)


def _by_exposure(
    inside: Floats, outside: Floats, probability: float | None, **terms: Any
) -> EpsilonBound:
    found = epsilon_from_exposure(-inside, -outside, inclusion_probability=probability, **terms)
    return found.bound
