"""What to do after a verdict: two to four steps, derived from its checks."""

from collections.abc import Iterator, Sequence

from lmexposure._style import listed, times
from lmexposure.gate import Check, Outcome, Verdict

_PRIVACY = {
    "claimed_epsilon": "Do not publish the claim of privacy: the training is less private.",
    "max_epsilon": "Do not release this model under this limit on epsilon: it is less private.",
}
# What decides an inconclusive check, in the order in which it is worth doing.
_DECIDES = {
    "controls": "Find out why the controls are not at chance: they must stay out of the training "
    "data, and be drawn like the canaries. Until then no number counts.",
    "validation": "Train until the validation loss falls, with more epochs or another learning "
    "rate: a model that learned nothing leaks nothing.",
    "scores": "Measure again, so that every canary has a score and an exposure.",
    "min_canaries": "Insert more canaries of each class (--canaries), and train again.",
    "classes": "Insert more canaries (--canaries), or measure with more --references, so that "
    "every class can be tested.",
    "max_guesses": "Measure with more --guesses or a larger --budget-steps, so that the search "
    "gets far enough.",
    "max_exposure": "Measure with more --references or --draws, so that exposures are known more "
    "closely.",
    "median_exposure": "Insert more canaries of each class (--canaries), and train again.",
    "quantile_exposure": "Insert more canaries of each class (--canaries), and train again.",
    "p_value": "Measure with more permutations, or judge fewer classes.",
    "max_epsilon": "Insert more canaries, each by a coin (--inclusion-probability 0.5): these "
    "could not have shown so large an epsilon.",
    "claimed_epsilon": "Insert more canaries, each by a coin (--inclusion-probability 0.5): these "
    "could not have contradicted the claim.",
}
_MOST_REASONS = 2  # of what makes a verdict inconclusive; the table of checks has all
_MOST_NAMES = 3


def next_steps(verdict: Verdict, *, quick: bool = False) -> tuple[str, ...]:
    """What to do now, one sentence or two for each step, the most urgent first.

    Args:
        verdict: of the gate.
        quick: whether the measurement was a first look.
    """
    if verdict.outcome is Outcome.LEAK:
        return tuple(_after_a_leak(verdict.checks))
    if verdict.outcome is Outcome.PASS:
        return tuple(_after_a_pass(verdict.checks, quick))
    return tuple(_undecided(verdict.checks, quick))


def class_of(check: Check) -> tuple[str, int] | None:
    """Format and repetitions of the class that a check is of; None where it is of no class."""
    name, _, repetitions = check.scope.rpartition(", repetitions ")
    return (name, int(repetitions)) if repetitions.isdecimal() and name else None


def _after_a_leak(checks: Sequence[Check]) -> Iterator[str]:
    leaks = [check for check in checks if check.outcome is Outcome.LEAK]
    if _classes(leaks):
        yield f"Do not release this model: {_gives_away(leaks, checks)}."
        yield _remedy(_classes(leaks), checks)
    else:
        yield from (said for key, said in _PRIVACY.items() if key in {c.key for c in leaks})
        yield "Train with more noise, for fewer epochs or with fewer repeats of a text."
    yield "Then train and measure again, and put both runs side by side (lmexposure compare)."


def _gives_away(leaks: Sequence[Check], checks: Sequence[Check]) -> str:
    """What can be guessed, and what is only known to be remembered."""
    guessed = _classes([check for check in leaks if check.key == "max_guesses"])
    rest = [found for found in _classes(leaks) if found not in guessed]
    several = len({name for name, _ in _classes(checks)}) > 1
    clauses = []
    if guessed:
        clauses.append(f"whoever can query it can guess {_secrets(guessed, several)}")
    if rest:
        clauses.append(f"it remembers {_secrets(rest, several)}")
    return "; ".join(clauses)


def _secrets(classes: Sequence[tuple[str, int]], several: bool) -> str:
    """Which secrets, in words; with their formats where the run has several."""
    inserted = f"inserted {listed([times(n) for n in sorted({n for _, n in classes})])}"
    formats = list(dict.fromkeys(name for name, _ in classes))
    which = listed(formats) if len(formats) <= _MOST_NAMES else f"{len(formats)} formats"
    return f"secrets of {which}, {inserted}" if several else f"secrets {inserted}"


def _remedy(leaking: Sequence[tuple[str, int]], checks: Sequence[Check]) -> str:
    """Against repeats where they are what leaks, else against memorising at all."""
    least = min(n for _, n in leaking)
    if least == 1:
        return (
            "Removing repeats is not enough, since secrets inserted once leak too: take such "
            "secrets out of the training text, or train for fewer epochs or with differential "
            "privacy."
        )
    doubtful = _classes([c for c in checks if c.outcome is Outcome.INCONCLUSIVE])
    unsafe = {n for _, n in [*leaking, *doubtful]}
    below = max((n for _, n in _classes(checks) if n < least and n not in unsafe), default=None)
    safe = "" if below is None else f": secrets inserted {times(below)} were not found to leak"
    return (
        f"Remove repeats from the training text (deduplicate){safe}. If that is not enough, train "
        "for fewer epochs or with differential privacy."
    )


def _undecided(checks: Sequence[Check], quick: bool) -> Iterator[str]:
    yield "Do not take this for a pass: this run can neither show a leak nor rule one out."
    open_keys = {check.key for check in checks if check.outcome is Outcome.INCONCLUSIVE}
    said = dict.fromkeys(what for key, what in _DECIDES.items() if key in open_keys)
    yield from list(said)[:_MOST_REASONS]
    how = " without --quick" if quick else ""
    yield f"Then measure again{how}, and hold the result against the same thresholds."


def _after_a_pass(checks: Sequence[Check], quick: bool) -> Iterator[str]:
    if quick:
        yield "Measure again without --quick before a release: this was a first look."
    yield (
        "No leak found is no proof that there is none: it holds for secrets of the forms and "
        "repetitions inserted here, not for other texts."
    )
    if not any(check.key in _PRIVACY for check in checks):
        yield "To test a promise of privacy too, measure with --claimed-epsilon."
    yield "Measure again whenever the model is trained again: it holds for these weights only."


def _classes(checks: Sequence[Check]) -> list[tuple[str, int]]:
    return list(dict.fromkeys(filter(None, map(class_of, checks))))
