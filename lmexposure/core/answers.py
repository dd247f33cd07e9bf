"""What a reader asks first: does it leak, how badly, since when, how sure, and what now?

The answers come from the checks of a verdict, before any page.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lmexposure._style import count
from lmexposure.core.check import Check, CheckKind, Outcome, Verdict

_UTC = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\dZ")
_WORST = (Outcome.LEAK, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.NOT_TESTED)
_CAME_TO = {
    Outcome.LEAK: "leaks",
    Outcome.INCONCLUSIVE: "undecided",
    Outcome.PASS: "passed",
    Outcome.NOT_TESTED: "not tested",
}
_ASKED = {
    Outcome.LEAK: "How badly?",
    Outcome.INCONCLUSIVE: "Why?",
    Outcome.PASS: "What was found?",
}
_MOST_REASONS = 2  # of what makes a verdict inconclusive; the table of checks has all


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A name and a value that people read, and what the name means where that is not plain."""

    name: str
    value: str
    meaning: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckLine:
    """One kind of check and what it came to."""

    outcome: Outcome  # the worst of all classes
    what: str  # the check, as people know it
    said: str  # in how many classes it came to that, or why it was not made

    @property
    def aside(self) -> str:
        """What it came to, where no mark is drawn and the line does not say it."""
        word = _CAME_TO[self.outcome]
        return "" if self.said.startswith(word) else word


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The first screen of a report; whether it leaks is the outcome of the verdict."""

    asked: str  # what the finding answers; a pass and a doubt have another question than a leak
    finding: str  # how badly: the finding that decides, in a sentence or two
    since: Sequence[Fact]  # when which version measured what
    tested: Sequence[CheckLine]  # what was tested and what was not, leaks first
    more: int = 0  # how many more of these there was no room for
    sure: Sequence[str] = ()  # how often the gate errs in either direction, a sentence each
    steps: Sequence[str]  # what to do now, the most urgent first


def answers_of(
    verdict: Verdict,
    *,
    since: Sequence[Fact],  # when which version measured what
    steps: Sequence[str],  # what to do now
    sure: Sequence[str] = (),  # how often the gate errs
    finding: str = "",  # where that of the verdict says too much
    most: int | None = None,  # lines of checks that there is room for
) -> Answers:
    """The answers of a verdict."""
    lines = [*check_lines(verdict), *_left_out(verdict)]
    return Answers(
        asked=_ASKED[verdict.outcome],
        finding=finding or verdict.finding,
        since=since,
        tested=lines[:most],
        more=0 if most is None else len(lines[most:]),
        sure=sure,
        steps=steps,
    )


def check_lines(verdict: Verdict) -> list[CheckLine]:
    """One line for each kind of check; preconditions that are met share one."""
    made: dict[str, list[Check]] = {}
    for check in verdict.checks:
        made.setdefault(check.name, []).append(check)
    lines, sound = [], []
    for name, checks in made.items():
        kind = verdict.kinds[checks[0].key]
        line = _line(name, checks, kind)
        if kind.precondition and line.outcome is Outcome.PASS:
            sound.append(name)
        else:
            lines.append(line)
    if sound:
        names = ", ".join(sound)
        lines.append(CheckLine(outcome=Outcome.PASS, what="the measurement itself", said=names))
    return sorted(lines, key=lambda line: _WORST.index(line.outcome))


def date_of(measured: str | None) -> str:
    """When, as people write it."""
    return "no date on record" if measured is None else _UTC.sub(r"\1, \2 UTC", measured)


def next_steps(verdict: Verdict) -> Iterator[str]:
    """What to do now, where a kind of study knows nothing better."""
    if verdict.outcome is Outcome.PASS:
        yield "No leak found is no proof that there is none: it holds for what was measured here."
        yield "Measure again whenever the model is trained again."
        return
    checks = [check for check in verdict.checks if check.outcome is verdict.outcome]
    kinds = [verdict.kinds[key] for key in dict.fromkeys(check.key for check in checks)]
    if verdict.outcome is Outcome.LEAK:
        yield from dict.fromkeys(kind.after_leak for kind in kinds)
        yield "Then train and measure again, and put both side by side (lmexposure compare)."
        return
    yield "Do not take this for a pass: this study can neither show a leak nor rule one out."
    yield from list(dict.fromkeys(kind.remedy for kind in kinds))[:_MOST_REASONS]


def _line(name: str, made: Sequence[Check], kind: CheckKind) -> CheckLine:
    outcome = min((check.outcome for check in made), key=_WORST.index)
    so = [check for check in made if check.outcome is outcome]
    return CheckLine(outcome=outcome, what=name, said=_said(outcome, so, made, kind))


def _said(outcome: Outcome, so: Sequence[Check], made: Sequence[Check], kind: CheckKind) -> str:
    """In how many classes, where a check is of classes."""
    if outcome is Outcome.NOT_TESTED:
        return f"not tested, because {_clause(so[0].reason)}"
    words = {
        Outcome.LEAK: kind.said_leak,
        Outcome.PASS: kind.said_pass,
        Outcome.INCONCLUSIVE: kind.said_doubt or ("not met" if kind.precondition else "undecided"),
    }
    if not made[0].scope:
        return words[outcome]
    noun = ("format", "formats") if kind.scopes == "formats" else ("class", "classes")
    of = count(len(made), *noun) if len(so) == len(made) else f"{len(so)} of {len(made)} {noun[1]}"
    if outcome is Outcome.LEAK:
        return f"{of} {'leaks' if len(so) == 1 else 'leak'}"
    return f"{words[outcome]} in {of}"


def _clause(reason: str) -> str:
    """The first clause of a reason, to follow other words."""
    clause = reason.partition(";")[0].rstrip(".")
    return f"{clause[:1].lower()}{clause[1:]}"


def _left_out(verdict: Verdict) -> Iterator[CheckLine]:
    """What no check was made of; what a check could not be made of has its line."""
    names = tuple({f"{check.name}{end}" for check in verdict.checks for end in (":", " (")})
    for line in verdict.untested:
        if not line.startswith(names or ("\0",)):
            what, _, why = line.partition(": ")
            yield CheckLine(outcome=Outcome.NOT_TESTED, what=what, said=why)
