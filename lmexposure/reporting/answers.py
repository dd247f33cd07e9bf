"""What a manager asks of a report: does it leak, how badly, since when, how sure, and what now?

The answers come from the gate's checks and from where the numbers come from, before any page.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lmexposure._style import count, listed, percent, sentence, short_hash, times
from lmexposure.core import Check, Outcome, Verdict
from lmexposure.gate import CHECK_KINDS, unseen_share
from lmexposure.reporting.data import Fact, ReportData

_UTC = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\dZ")
_EPSILON = ("max_epsilon", "claimed_epsilon")
_TEXT = ("memorised", "max_verbatim_run", "max_extractable")
_WORST = (Outcome.LEAK, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.NOT_TESTED)
_WORDS = {
    ("max_epsilon", Outcome.LEAK): "above the limit",
    ("max_epsilon", Outcome.PASS): "not above the limit",
    ("claimed_epsilon", Outcome.LEAK): "contradicted",
    ("claimed_epsilon", Outcome.PASS): "not contradicted",
    ("worst_canary", Outcome.LEAK): "gives itself away",
    ("worst_canary", Outcome.PASS): "not beyond chance",
    ("worst_document", Outcome.LEAK): "gives itself away",
    ("worst_document", Outcome.PASS): "not beyond chance",
    ("max_worst_tpr", Outcome.LEAK): "above the limit",
    ("max_worst_tpr", Outcome.PASS): "not above the limit",
    ("guessed_coins", Outcome.LEAK): "who was in can be guessed",
    ("guessed_coins", Outcome.PASS): "who was in cannot be guessed",
    ("accept_quick", Outcome.INCONCLUSIVE): "this was a quick look",
}
_CAME_TO = {
    Outcome.LEAK: "leaks",
    Outcome.INCONCLUSIVE: "undecided",
    Outcome.PASS: "passed",
    Outcome.NOT_TESTED: "not tested",
}
ASKED = {
    Outcome.LEAK: "How badly?",
    Outcome.INCONCLUSIVE: "Why?",
    Outcome.PASS: "What was found?",
}
_MOST_LINES = 8
_PRIVACY = {
    "claimed_epsilon": "Do not publish the claim of privacy: the training is less private.",
    "max_epsilon": "Do not release this model under this limit on epsilon: it is less private.",
}
_UNKNOWN = (
    "Measure in the rows of the training, which are not known: say what was left of each canary in "
    "them (--left-context), or let lmexposure verify --rows look at them.",
)
_MOST_REASONS = 2  # of what makes a verdict inconclusive; the table of checks has all
_MOST_NAMES = 3


@dataclass(frozen=True, kw_only=True)
class CheckLine:
    """One kind of check and what it came to."""

    outcome: Outcome  # the worst of all classes
    what: str  # the check, as people know it
    said: str  # in how many classes it came to that, or why it was not made

    @property
    def word(self) -> str:
        """What it came to, where no mark is drawn."""
        return _CAME_TO[self.outcome]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The first screen of a report; whether it leaks is the outcome of the verdict."""

    asked: str  # what the finding answers; a pass and a doubt have another question than a leak
    finding: str  # how badly: the finding that decides, in a sentence or two
    since: tuple[Fact, ...]  # when which version measured which weights
    tested: tuple[CheckLine, ...]  # what was tested and what was not, leaks first
    more: int  # how many more of these there was no room for
    sure: tuple[str, ...]  # how often the gate errs in either direction, a sentence each
    steps: tuple[str, ...]  # what to do now, the most urgent first


def answers_of(data: ReportData) -> Answers:
    """The answers of a report."""
    verdict = data.verdict
    lines = [*check_lines(verdict.checks), *what_was_left_out(verdict.untested, verdict.checks)]
    return Answers(
        asked=ASKED[verdict.outcome],
        finding=_finding(data),
        since=tuple(_since(data)),
        tested=tuple(lines[:_MOST_LINES]),
        more=len(lines[_MOST_LINES:]),
        sure=tuple(_sure(verdict.checks, data.significance)),
        steps=next_steps(verdict, rows_unknown=data.rows_unknown),
    )


def _finding(data: ReportData) -> str:
    """Of a pass the first clause: what it may have missed is among how sure it is."""
    verdict = data.verdict
    if verdict.outcome is not Outcome.PASS or _is_quick(verdict.checks):
        return verdict.finding
    return sentence(verdict.finding.partition("; ")[0].removesuffix("."))


def _since(data: ReportData) -> Iterator[Fact]:
    provenance = data.provenance
    measured = provenance.measured
    yield Fact(name="measured", value=date_of(measured))
    yield Fact(name="lmexposure", value=provenance.lmexposure or "not on record")
    # A run trains into a directory of its own: what was trained says more.
    trained = next((fact.value for fact in data.settings if fact.name == "model"), None)
    named = provenance.model if trained is None else f"{trained}, in {provenance.model}/"
    yield Fact(name="model", value=named)
    yield Fact(name="weights, SHA-256", value=short_hash(provenance.weights_sha256))


def date_of(measured: str | None) -> str:
    """When, as people write it."""
    return "no date on record" if measured is None else _UTC.sub(r"\1, \2 UTC", measured)


def check_lines(checks: Sequence[Check]) -> list[CheckLine]:
    """One line for each kind of check; preconditions that are met share one."""
    kinds: dict[str, list[Check]] = {}
    for check in checks:
        kinds.setdefault(check.name, []).append(check)
    lines, sound = [], []
    for name, made in kinds.items():
        line = _line(name, made)
        if CHECK_KINDS[made[0].key].precondition and line.outcome is Outcome.PASS:
            sound.append(name)
        else:
            lines.append(line)
    if sound:
        names = ", ".join(sound)
        lines.append(CheckLine(outcome=Outcome.PASS, what="the measurement itself", said=names))
    return sorted(lines, key=lambda line: _WORST.index(line.outcome))


def _line(name: str, made: Sequence[Check]) -> CheckLine:
    outcome = min((check.outcome for check in made), key=_WORST.index)
    so = [check for check in made if check.outcome is outcome]
    return CheckLine(outcome=outcome, what=name, said=_said(outcome, so, made))


def _said(outcome: Outcome, so: Sequence[Check], made: Sequence[Check]) -> str:
    """In how many classes, where a check is of classes."""
    if outcome is Outcome.NOT_TESTED:
        return f"not tested, because {_clause(so[0].reason)}"
    key = made[0].key
    word = _WORDS.get((key, outcome)) or _word(outcome, key)
    if not made[0].scope:
        return word
    noun = ("format", "formats") if key == "controls" else ("class", "classes")
    of = count(len(made), *noun) if len(so) == len(made) else f"{len(so)} of {len(made)} {noun[1]}"
    if outcome is Outcome.LEAK:
        return f"{of} {'leaks' if len(so) == 1 else 'leak'}"
    return f"{word} in {of}"


def _word(outcome: Outcome, key: str) -> str:
    if outcome is Outcome.INCONCLUSIVE:
        return "not met" if CHECK_KINDS[key].precondition else "undecided"
    return "leaks" if outcome is Outcome.LEAK else "no leak"


def _clause(reason: str) -> str:
    """The first clause of a reason, to follow other words."""
    clause = reason.partition(";")[0].rstrip(".")
    return f"{clause[:1].lower()}{clause[1:]}"


def what_was_left_out(untested: Sequence[str], checks: Sequence[Check]) -> Iterator[CheckLine]:
    """What no check was made of; what a check could not be made of has its line."""
    names = tuple({f"{check.name}{end}" for check in checks for end in (":", " (")})
    for line in untested:
        if not line.startswith(names or ("\0",)):
            what, _, why = line.partition(": ")
            yield CheckLine(outcome=Outcome.NOT_TESTED, what=what, said=why)


def _sure(checks: Sequence[Check], significance: float) -> Iterator[str]:
    """How often a clean model is called leaking, and what a low number does not exclude."""
    keys = {check.key for check in checks}
    apart = "; bounds on epsilon have their own" if keys & {*_EPSILON} else ""
    yield (
        f"False alarms: at most {percent(significance)} of models that memorised nothing are "
        f"called leaking{apart}."
    )
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
        yield from (warning for key, warning in _PRIVACY.items() if key in {c.key for c in leaks})
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
    remedies = dict.fromkeys(CHECK_KINDS[key].remedy for key in worthwhile)
    yield from list(remedies)[: _MOST_REASONS - quick]
    how = " without --quick" if quick else ""
    yield f"Then measure again{how}, and check the result against the same thresholds."


def _worth(key: str) -> tuple[bool, int, int]:
    """Preconditions first, bounds on epsilon last."""
    kinds = tuple(CHECK_KINDS)
    bound = _EPSILON.index(key) + 1 if key in _EPSILON else 0
    return not CHECK_KINDS[key].precondition, bound, kinds.index(key)


def _after_a_pass(checks: Sequence[Check]) -> Iterator[str]:
    if _is_quick(checks):
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
