"""A privacy claim beside an audit: contradicted, consistent, or more than the audit could tell."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from lmexposure._validate import delta_of_dp, positive
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.bounds.bound import EpsilonBound

Verdict = Literal["contradicted", "consistent", "cannot tell"]


@dataclass(frozen=True, kw_only=True)
class ClaimCheck:
    """What an audit says of a claim.

    Attributes:
        verdict: "contradicted": the lower bound is above the claim. "consistent": it is not,
            although a perfect attack would have put it there. "cannot tell": even a perfect
            attack on so many canaries would not have reached the claim.
        reason: the same with its numbers, in a sentence.
        claimed_epsilon: in nats.
        claimed_delta: beside it.
        bound: the lower bound on epsilon, in nats; None, like what follows, where there is none.
        max_attainable: the most that the bound could have been, in nats; None where there is none.
        significance: how often, at most, a true claim is contradicted, where the conditions hold.
        validity: the class of conditions under which that is so.
        method: the bound that was asked.
    """

    verdict: Verdict
    reason: str
    claimed_epsilon: float
    claimed_delta: float
    bound: float | None
    max_attainable: float | None
    significance: float | None
    validity: str | None
    method: str | None

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The claim that a training is (epsilon, delta)-differentially private for one document.

    Args:
        epsilon: in nats, finite, at least 0.
        delta: in [0, 1); 0 claims pure differential privacy. An epsilon without it claims
            nothing: any training is (epsilon, delta)-private for a large enough delta.

    Raises:
        SettingsError: a number out of range, or no delta.

    >>> Claim(epsilon=8.0, delta=1e-5).epsilon
    8.0
    """

    epsilon: float
    delta: float | None = None

    def __post_init__(self) -> None:
        if self.delta is None:
            raise SettingsError(
                f"a claim of epsilon={self.epsilon!r} says nothing without its delta; give "
                "delta=0 for pure differential privacy"
            )
        object.__setattr__(self, "delta", delta_of_dp("delta", self.delta))
        object.__setattr__(self, "epsilon", _epsilon(self.epsilon))

    def against(self, bound: EpsilonBound) -> ClaimCheck:
        """Compare the claim with a lower bound.

        (epsilon, delta) implies (epsilon, delta') for every larger delta', never for a smaller
        one: a bound at a larger delta may contradict the claim, one at a smaller may not. What a
        bound at a larger delta does not contradict, the bound at the claim's delta still might.

        Args:
            bound: a lower bound at the claim's delta or above, of one document.

        Returns:
            The verdict with its numbers and conditions.

        Raises:
            InputError: the bound stands beside a smaller delta than the claim.
        """
        claimed_delta = float(self.delta or 0.0)
        if bound.delta < claimed_delta:
            raise InputError(
                f"the bound stands beside delta={bound.delta:g}, below the claim's "
                f"{claimed_delta:g}, and a claim says nothing of smaller deltas; compute the "
                f"bound at delta={claimed_delta:g}"
            )
        verdict = self._verdict(bound)
        return ClaimCheck(
            verdict=verdict,
            reason=self._reason(verdict, bound, claimed_delta),
            claimed_epsilon=self.epsilon,
            claimed_delta=claimed_delta,
            bound=bound.value,
            max_attainable=bound.max_attainable,
            significance=bound.significance,
            validity=bound.validity,
            method=bound.method,
        )

    def untested(self, reason: str) -> ClaimCheck:
        """What is said of the claim where there is no bound to hold it against."""
        return ClaimCheck(
            verdict="cannot tell",
            reason=reason,
            claimed_epsilon=self.epsilon,
            claimed_delta=float(self.delta or 0.0),
            bound=None,
            max_attainable=None,
            significance=None,
            validity=None,
            method=None,
        )

    def _verdict(self, bound: EpsilonBound) -> Verdict:
        if bound.value > self.epsilon:
            return "contradicted"
        # Without it nothing shows that the audit could have reached the claim.
        if bound.max_attainable is not None and bound.max_attainable > self.epsilon:
            return "consistent"
        return "cannot tell"

    def _reason(self, verdict: Verdict, bound: EpsilonBound, claimed_delta: float) -> str:
        if verdict == "contradicted":
            return (
                f"epsilon is at least {bound.value:.3g} ({bound.validity}, significance "
                f"{bound.significance:g}), and {self.epsilon:.3g} is claimed"
            )
        at_larger = (
            ""
            if bound.delta == claimed_delta
            else f"; the bound stands beside delta={bound.delta:g}, and at the claim's "
            f"{claimed_delta:g} it may be higher: compute it there"
        )
        if bound.max_attainable is None:
            return f"{bound.method} has no ceiling to hold against the claim{at_larger}"
        if verdict == "consistent":
            return (
                f"the bound is {bound.value:.3g}; a perfect attack would have shown "
                f"{bound.max_attainable:.3g}, above the {self.epsilon:.3g} claimed; this attack "
                f"did not, and a stronger one may{at_larger}"
            )
        return (
            "even a perfect attack on these canaries would have shown "
            f"{bound.max_attainable:.3g} only, and {self.epsilon:.3g} is claimed; insert more "
            f"canaries{at_larger}"
        )


def _epsilon(value: float) -> float:
    if value == 0 and not isinstance(value, bool):
        return 0.0
    try:
        return positive("epsilon", value)
    except SettingsError:
        raise SettingsError(f"epsilon={value!r} must be a finite number, at least 0") from None
