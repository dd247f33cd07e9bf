"""What all models of a sweep say together: coins guessed from scores, and a bound on epsilon."""

import math
from collections.abc import Iterator, Mapping

from lmexposure._style import (
    count,
    nats,
    percent,
    probability,
    sentence,
    setting_value,
    short,
    validity,
    visible,
)
from lmexposure.core import Check, CheckKind, Outcome, Thresholds
from lmexposure.studies.sweep_result import SweepBound, SweepNumbers
from lmexposure.studies.sweep_worst import log_ways

# Looks of all rays of a one-run audit, at most; a test holds it against the audit.
MOST_LOOKS = 52
_RAYS = ("both", "top", "bottom")

EPSILON = CheckKind(
    help="A lower bound on the epsilon of differential privacy that the training can have had, in "
    "nats; higher = less private. It holds under the conditions given with it.",
    remedy="Train more models (--models) or insert more canaries (--canaries), each in a model by "
    "a coin of its own: these could not have shown an epsilon that large.",
    own_significance=True,
    said_leak="above the limit",
    said_pass="not above the limit",
    after_leak="Do not release this model under this limit on epsilon: it is less private.",
)
GUESSED_COINS = CheckKind(
    help="All coins of all canaries are guessed from the scores, the surest first. More right "
    "guesses than chance explains are memorisation, be it spread over all canaries.",
    remedy="Train more models (--models) or insert more canaries (--canaries).",
    low_is_worse=True,
    said_leak="who was in can be guessed",
    said_pass="who was in cannot be guessed",
)


def check_guessed_coins(result: SweepNumbers, share: float) -> Check | None:
    """Whether all coins together were guessed right more often than chance explains.

    The looks are those of the bounds "together", one for each number of repetitions, whose level is
    their own; here the chance of the best look is paid for by the number of all looks, so that the
    check has a share like the others.
    """
    audits = [row.bound.counts for row in result.epsilon.bounds if row.question == "together"]
    looks = [(look, counts["canaries"]) for counts in audits for look in _looks(counts)]
    if not looks:
        return None
    paid = MOST_LOOKS * len(audits)
    p, guesses, correct, cells = min(
        (min(1.0, paid * _binomial_tail(*look)), *look, cells) for look, cells in looks
    )
    least = f"p = {probability(p)}; {short(share)} or less"
    surest = f"{correct:,} of the {guesses:,} surest guesses, of {cells:,} coins, are right"
    if p <= share:
        outcome = Outcome.LEAK
        reason = (
            f"who was in is guessed from the scores more often than chance explains: {surest} "
            f"({least} is a leak)"
        )
    elif paid * 2.0**-cells > share:
        outcome = Outcome.INCONCLUSIVE
        reason = (
            f"{cells:,} coins are too few: even if all were guessed right, chance would explain "
            "it; train more models or insert more canaries"
        )
    else:
        outcome = Outcome.PASS
        reason = (
            f"who was in cannot be guessed from the scores: {surest} ({least} would be a leak, "
            f"such as {percent(_least_right(cells, share / paid))} of all coins)"
        )
    return Check(
        name="all models together",
        key="guessed_coins",
        outcome=outcome,
        value=p,
        threshold=share,
        reason=sentence(reason),
    )


def check_sweep_epsilon(result: SweepNumbers, thresholds: Thresholds) -> Check | None:
    """Compare the primary lower bound on epsilon with the threshold that was asked for.

    The bound was named beforehand and keeps its own significance. The bounds of other questions
    have as much again; one of them above the threshold is no leak, and lets nothing pass.
    """
    most = thresholds.max_epsilon
    if most is None:
        return None
    primary = result.epsilon.primary
    outcome, reason = _bound_judged(result, primary, most)
    return Check(
        name="lower bound on epsilon",
        key="max_epsilon",
        outcome=outcome,
        value=None if primary is None else primary.bound.value,
        threshold=float(most),
        unit="nats",
        reason=sentence(reason),
        asked=True,
    )


def _bound_judged(
    result: SweepNumbers, primary: SweepBound | None, most: float
) -> tuple[Outcome, str]:
    allowed = setting_value(most)
    if primary is None:
        why = "; ".join(visible(line) for line in result.epsilon.refused) or "no canary was audited"
        return Outcome.INCONCLUSIVE, f"there is no bound on epsilon: {why}"
    bound, ceiling = primary.bound, primary.bound.max_attainable
    said = (
        f"epsilon is at least {nats(bound.value)} nats (delta {short(bound.delta)}, significance "
        f"{short(bound.significance)}, holds for {validity(bound.validity)})"
    )
    if bound.value > most:
        return Outcome.LEAK, f"the training is less private than the {allowed} allowed: {said}"
    if ceiling is None or ceiling <= most:
        return Outcome.INCONCLUSIVE, (
            f"{said}, and max attainable with {count(result.models, 'model')} and these canaries "
            f"is {nats(ceiling)}, not above the {allowed} allowed; train more models or insert "
            "more canaries"
        )
    other = max(
        (row for row in result.epsilon.bounds if row != primary),
        key=lambda row: row.bound.value,
        default=None,
    )
    if other is not None and other.bound.value > most:
        return Outcome.INCONCLUSIVE, (
            f"{said}, but the bound {other.question.replace('_', ' ')} is "
            f"{nats(other.bound.value)}, above the {allowed} allowed; it was not named beforehand, "
            "so sweep again with other coins to decide"
        )
    return Outcome.PASS, (
        f"{said}, not above the {allowed} allowed; max attainable here is {nats(ceiling)}, and a "
        "stronger attack than this one may show more"
    )


def _looks(counts: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Guesses and right ones of each ray at the look that showed most."""
    for ray in _RAYS:
        guesses, correct = counts.get(f"{ray}_guesses"), counts.get(f"{ray}_correct")
        if guesses and correct is not None and correct <= guesses:
            yield guesses, correct


def _binomial_tail(trials: int, least: int) -> float:
    """P(Bin(trials, 1/2) >= least); as 1 from the mean down, where it says nothing."""
    if 2 * least <= trials:
        return 1.0
    term = total = 1.0
    for k in range(least, trials):
        term *= (trials - k) / (k + 1)
        total += term
        if term < 1e-17 * total:
            break
    return min(1.0, math.exp(log_ways(trials, least) - trials * math.log(2)) * total)


def _least_right(cells: int, share: float) -> float:
    """The smallest share of right guesses, of all, that is a leak."""
    low, high = cells // 2, cells
    while low < high:
        middle = (low + high) // 2
        if _binomial_tail(cells, middle) <= share:
            high = middle
        else:
            low = middle + 1
    return low / cells
