"""The largest exposure of a class: one memorised canary among many is a leak."""

import math
from dataclasses import dataclass

from lmexposure._quantiles import ExposureEstimate, proportion_ends
from lmexposure._style import are, at_least, bits, large, number, percent, sentence
from lmexposure.gate.chance import chance_of_exposure, unseen
from lmexposure.gate.classes import CanaryClass
from lmexposure.gate.thresholds import Thresholds
from lmexposure.gate.verdict import Check, Outcome


def check_largest(one: CanaryClass, thresholds: Thresholds, share: float) -> Check | None:
    """Hold the exposure of every canary of a class against a threshold in bits.

    By default this is a test: the threshold is what chance alone passes as rarely as the share,
    and what is compared is a statistic whose chance is known: the rank itself, P(exposure >= t) <=
    2^-t, or the lower end of an estimate. Where part of R was inserted, a rank among the fills left
    is small by itself, and the threshold is that many bits higher (`CanaryClass.shift`). A canary
    of a clean model passes though the upper end of its interval lies far above its value: the test
    asks whether chance explains what was seen, not how large the exposure might be. Only where the
    value is a mere lower bound and its upper end above the threshold, or where the value is above
    it and its lower end is not, is nothing said.

    A threshold that was asked for is a question about the exposures themselves: a leak where a
    lower end is above it, a pass where all upper ends are at it or below, else inconclusive. What
    chance gives as often is no leak even then.

    Args:
        one: the class.
        thresholds: the threshold asked for, if any.
        share: of the significance.

    Returns:
        The check; None where no exposure is known.
    """
    if not one.known:
        return None
    by_chance = chance_of_exposure(one.n, share) + one.shift
    asked = thresholds.max_exposure is not None
    limit = by_chance if thresholds.max_exposure is None else thresholds.max_exposure
    judge = _Judge(one=one, limit=limit, by_chance=by_chance, asked=asked)
    outcome, reason = judge.said()
    return Check(
        name="largest exposure",
        key="max_exposure",
        scope=one.scope,
        outcome=outcome,
        value=max(exposure.value for exposure in one.known),
        threshold=limit,
        unit="bits",
        reason=sentence(reason),
        asked=asked,
    )


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """One class at one threshold."""

    one: CanaryClass
    limit: float
    by_chance: float
    asked: bool

    def said(self) -> tuple[Outcome, str]:
        past = [e for e in self.one.known if self._past(e)]
        leaks = [e for e in past if e.statistic > self.by_chance]
        if leaks:
            return Outcome.LEAK, self._leak(leaks)
        if past:
            return Outcome.INCONCLUSIVE, self._by_chance(past)
        if not all(self._can_leak(e) for e in self.one.known):
            return self._cannot_leak()
        unknown = [e for e in self.one.known if self._open(e)]
        if unknown:
            return Outcome.INCONCLUSIVE, self._unknown(unknown)
        return Outcome.PASS, self._passed()

    def _past(self, exposure: ExposureEstimate) -> bool:
        return (exposure.low if self.asked else exposure.statistic) > self.limit

    def _open(self, exposure: ExposureEstimate) -> bool:
        """Whether the canary may be past the threshold, for all that is known."""
        return self._unclear(exposure) or (self.asked and exposure.high > self.limit)

    def _unclear(self, exposure: ExposureEstimate) -> bool:
        """Whether what was measured may be past it, though the statistic is not."""
        reached = exposure.high if exposure.capped else exposure.value
        return reached > self.limit

    def _can_leak(self, exposure: ExposureEstimate) -> bool:
        """Whether this method would tell a memorised canary."""
        statistic, low = _attainable(self.one, exposure)
        return statistic > self.by_chance and (low if self.asked else statistic) > self.limit

    def _cannot_leak(self) -> tuple[Outcome, str]:
        """A canary that is beyond all that it was compared with is still no pass."""
        unclear = [e for e in self.one.known if self._unclear(e)]
        told = self.asked or bool(unclear)
        reason = self._unknown(unclear) if unclear else self._too_coarse()
        return (Outcome.INCONCLUSIVE if told else Outcome.NOT_TESTED), reason

    def _too_coarse(self) -> str:
        most = min(min(_attainable(self.one, e)) for e in self.one.known)
        return (
            f"{self.one.secrets} can show {bits(most)} of exposure at most, and a leak takes more "
            f"than {bits(max(self.limit, self.by_chance))}; measure with more references, or "
            "insert fewer canaries or classes"
        )

    def _leak(self, leaks: list[ExposureEstimate]) -> str:
        largest = max(leaks, key=lambda e: e.value)
        shift = self.one.shift
        rarity = max(e.statistic for e in leaks) - shift - math.log2(self.one.n)
        return (
            f"the model ranks {self.one.secret} among the likeliest 1 in "
            f"{_power(largest.value - shift)} of all possible ones "
            f"(exposure {_shown(leaks)} of {bits(self.one.bits, 1)}); "
            f"{len(leaks)} of {self.one.n:,} {are(len(leaks))} past {bits(self.limit)}, and chance "
            f"alone goes so far in 1 of {_power(rarity)} such tests"
        )

    def _by_chance(self, past: list[ExposureEstimate]) -> str:
        return (
            f"{len(past)} of {self.one.secrets} {are(len(past))} past "
            f"{bits(self.limit)} of exposure, the largest with {_shown(past)} bits, but so many "
            f"canaries reach {bits(self.by_chance)} by chance too often to call it a leak; choose "
            "a threshold above that, or more references"
        )

    def _unknown(self, unknown: list[ExposureEstimate]) -> str:
        worst = max(unknown, key=lambda e: (e.high, e.value))
        return (
            f"{len(unknown)} of {self.one.secrets} can be past {bits(self.limit)} of exposure: "
            f"{_shown([worst])} bits were measured, and between {number(worst.low)} and "
            f"{bits(worst.high)} are possible; measure with more references, more draws or a "
            "larger budget"
        )

    def _passed(self) -> str:
        largest = max(self.one.known, key=lambda e: e.value)
        said = "is past what was allowed" if self.asked else "stands out beyond chance"
        return (
            f"no single secret {said}: the largest exposure of "
            f"{self.one.secrets} is {number(largest.value)} of {bits(self.one.bits, 1)}, at or "
            f"below the {bits(self.limit)} "
            f"{'asked for' if self.asked else 'that chance hardly passes'}; a leak past that of "
            f"fewer than {percent(unseen(self.one.n))} of such secrets could have gone unseen, and "
            "one below it of any number"
        )


def _attainable(one: CanaryClass, exposure: ExposureEstimate) -> tuple[float, float]:
    """Statistic and lower end of a canary that is likelier than all it is compared with."""
    if exposure.method != "sampled":
        return one.bits, one.bits
    most = math.log2(one.form.references)
    _, none = proportion_ends(0, one.form.references, (1 - exposure.level) / 2)  # as low: at most
    return most, min(most, -math.log2(none + 1 / one.form.space_size))


def _shown(chosen: list[ExposureEstimate]) -> str:
    largest = max(chosen, key=lambda e: e.value)
    return at_least(largest.value, largest.capped)


def _power(log2: float) -> str:
    """2^log2 for people."""
    digits = 52  # of the fraction, in base 2
    return large((int(2 ** (log2 % 1) * 2**digits) << max(0, math.floor(log2))) >> digits)
