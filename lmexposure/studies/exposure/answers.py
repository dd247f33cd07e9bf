"""What a manager asks of a report: does it leak, how badly, since when, how sure, and what now?

The answers come from the gate's checks and from where the numbers come from, before any page.
"""

from collections.abc import Iterator, Sequence

from lmexposure._quantiles import unseen_share
from lmexposure._style import listed, percent, sentence, short_hash, times, visible
from lmexposure.core import Check, Fact, Outcome, Verdict, date_of
from lmexposure.studies.exposure.checks import EXPOSURE_CHECKS
from lmexposure.studies.exposure.files import RunFiles

_EPSILON = ("max_epsilon", "claimed_epsilon")
_TEXT = ("memorised", "max_verbatim_run", "max_extractable")
_UNKNOWN = (
    "Measure in the rows of the training, which are not known: say what was left of each canary in "
    "them (--left-context), or let lmexposure verify --rows look at them.",
)
_MOST_REASONS = 2  # of what makes a verdict inconclusive; the table of checks has all
_MOST_NAMES = 3


def short_finding(verdict: Verdict) -> str:
    """Of a pass the first clause: what it may have missed is among how sure it is."""
    if verdict.outcome is not Outcome.PASS or _is_quick(verdict.checks):
        return ""
    return sentence(verdict.finding.partition("; ")[0].removesuffix("."))


def since(run: RunFiles) -> Iterator[Fact]:
    """When which version measured which weights."""
    result = run.result
    yield Fact(name="measured", value=date_of(result.when))
    yield Fact(name="lmexposure", value=result.lmexposure)
    # A run trains into a directory of its own: what was trained says more.
    trained = None if run.record is None else run.record.settings
    path = visible(result.model.path)
    named = path if trained is None else f"{visible(trained.model)}, in {path}/"
    yield Fact(name="model", value=named)
    yield Fact(name="weights, SHA-256", value=short_hash(result.model.weights_sha256))


def how_sure(checks: Sequence[Check], significance: float) -> Iterator[str]:
    """How often a clean model is called leaking, and what a low number does not exclude."""
    keys = {check.key for check in checks}
    apart = "; bounds on epsilon have their own" if keys & {*_EPSILON} else ""
    yield (
        f"False alarms: at most {percent(significance)} of models that memorised nothing are "
        f"called leaking{apart}."
    )
    if any(check.scope for check in checks):
        yield "A class: secrets of one format, inserted equally often."
    leaking = {check.scope for check in checks if check.outcome is Outcome.LEAK}
    sizes = [
        int(check.value)
        for check in checks
        if check.key == "min_canaries" and check.value and check.scope not in leaking
    ]
    if sizes:
        yield sentence(
            f"missed leaks: where none was found, up to {percent(unseen_share(min(sizes)))} of "
            "such secrets may still leak (95 % confidence)"
        )


def next_steps(verdict: Verdict, *, rows_unknown: bool = False) -> tuple[str, ...]:
    """What to do now, one sentence or two for each step, the most urgent first."""
    if verdict.outcome is Outcome.LEAK:
        return tuple(_after_a_leak(verdict.checks))
    if verdict.outcome is Outcome.PASS:
        return (*_UNKNOWN[:rows_unknown], *_after_a_pass(verdict.checks))
    doubt, *steps = _undecided(verdict.checks)
    return (doubt, *_UNKNOWN[:rows_unknown], *steps)


def _is_quick(checks: Sequence[Check]) -> bool:
    """Whether the measurement was a first look, accepted or not."""
    return any(check.key == "accept_quick" for check in checks)


def class_of(check: Check) -> tuple[str, int] | None:
    """Format and repetitions of the class that a check is of; None where it is of no class."""
    name, _, repetitions = check.scope.rpartition(", repetitions ")
    return (name, int(repetitions)) if repetitions.isdecimal() and name else None


def _after_a_leak(checks: Sequence[Check]) -> Iterator[str]:
    leaks = [check for check in checks if check.outcome is Outcome.LEAK]
    if any(check.key in _TEXT for check in leaks):
        yield (
            "Do not release this model: it gives back documents of its training text; take them "
            "out, or remove their repeats (deduplicate)."
        )
    if _classes(leaks):
        yield f"Do not release this model: {_gives_away(leaks, checks)}."
        yield _remedy(_classes(leaks), checks)
    elif any(check.key not in _TEXT for check in leaks):
        keys = {check.key for check in leaks}
        yield from (EXPOSURE_CHECKS[key].after_leak for key in reversed(_EPSILON) if key in keys)
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


def _undecided(checks: Sequence[Check]) -> Iterator[str]:
    undecided = {check.key for check in checks if check.outcome is Outcome.INCONCLUSIVE}
    if undecided == {"accept_quick"}:
        yield "Do not take this for a pass: a quick look may miss a leak."
        yield "Measure again without --quick, and check the result against the same thresholds."
        return
    yield "Do not take this for a pass: this run can neither show a leak nor rule one out."
    quick = _is_quick(checks)
    if quick:
        yield "First measure again without --quick, which may settle it."
    worthwhile = sorted(undecided - {"accept_quick"}, key=_worth)
    remedies = dict.fromkeys(EXPOSURE_CHECKS[key].remedy for key in worthwhile)
    yield from list(remedies)[: _MOST_REASONS - quick]
    how = " without --quick" if quick else ""
    yield f"Then measure again{how}, and check the result against the same thresholds."


def _worth(key: str) -> tuple[bool, int, int]:
    """Preconditions first, bounds on epsilon last."""
    kinds = tuple(EXPOSURE_CHECKS)
    bound = _EPSILON.index(key) + 1 if key in _EPSILON else 0
    return not EXPOSURE_CHECKS[key].precondition, bound, kinds.index(key)


def _after_a_pass(checks: Sequence[Check]) -> Iterator[str]:
    if _is_quick(checks):
        yield "Measure again without --quick before a release: this was a first look."
    yield (
        "No leak found is no proof that there is none: it holds for secrets of the forms and "
        "repetitions inserted here, not for other texts."
    )
    if not any(check.key in _EPSILON for check in checks):
        yield "To test a promise of privacy too, measure with --claimed-epsilon."
    yield "Measure again whenever the model is trained again: it holds for these weights only."


def _classes(checks: Sequence[Check]) -> list[tuple[str, int]]:
    return list(dict.fromkeys(filter(None, map(class_of, checks))))
