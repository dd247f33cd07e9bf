"""What a gate says: one outcome, the check that decided it, and what was and was not tested.

`verdict_of` goes from checks to a verdict: which outcome holds, which check decides it, and how it
is said.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from lmexposure._style import outcome_word


class Outcome(StrEnum):
    """What one check, or the gate as a whole, came to."""

    PASS = "pass"
    LEAK = "leak"
    INCONCLUSIVE = "inconclusive"
    # Of a check only: it was not asked for, or says nothing here, and holds nothing up.
    NOT_TESTED = "not tested"


EXIT_CODES = {Outcome.PASS: 0, Outcome.LEAK: 1, Outcome.INCONCLUSIVE: 2}


@dataclass(frozen=True, kw_only=True)
class Check:
    """One threshold against one number.

    Attributes:
        name: what was compared, as people know it: "p-value against guessing".
        key: the setting that decides it: "p_value"; for machines.
        scope: of what: "random_number, repetitions 16"; "" for the whole run.
        outcome: a leak where the number is past the threshold.
        value: the number; None where there is none.
        threshold: what it was held against; None where there is none.
        unit: "bits", "guesses", "nats", "" for a probability.
        reason: one sentence with the numbers in it.
        asked: whether somebody set this threshold; False: it is a default.
    """

    name: str
    key: str
    scope: str = ""
    outcome: Outcome
    value: float | None = None
    threshold: float | None = None
    unit: str = ""
    reason: str
    asked: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class Verdict:
    """The outcome of all checks.

    Attributes:
        outcome: never NOT_TESTED: a gate that tested nothing is inconclusive.
        sentence: the verdict in one sentence, with the number that decides it.
        deciding: the check that the sentence is about; None where no check could be made.
        checks: all of them; the deciding one is among them.
        tested: what was tested, one short phrase each.
        untested: what was not, and why, one short phrase each.
    """

    outcome: Outcome
    sentence: str
    deciding: Check | None
    checks: tuple[Check, ...]
    tested: tuple[str, ...]
    untested: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Verdict: {self.sentence}>"

    @property
    def finding(self) -> str:
        """The sentence without the word for its outcome."""
        text = self.sentence.removeprefix(f"{_word(self.outcome)}: ")
        return f"{text[:1].upper()}{text[1:]}"

    @property
    def exit_code(self) -> int:
        """0 pass, 1 leak, 2 inconclusive."""
        return EXIT_CODES[self.outcome]

    @property
    def passed(self) -> bool:
        """Whether no leak was found, and nothing was left open."""
        return self.outcome is Outcome.PASS

    @property
    def findings(self) -> tuple[Check, ...]:
        """The checks that keep it from passing: leaks first, then what is inconclusive."""
        return tuple(
            check
            for outcome in (Outcome.LEAK, Outcome.INCONCLUSIVE)
            for check in self.checks
            if check.outcome is outcome
        )

    def to_dict(self) -> dict[str, object]:
        """Plain Python values."""
        return {
            "outcome": str(self.outcome),
            "exit_code": self.exit_code,
            **{key: value for key, value in asdict(self).items() if key != "outcome"},
        }


# What a reader should hear of first. A secret found by guessing convinces without statistics.
_LEAKS = (
    "max_guesses",
    "claimed_epsilon",
    "max_epsilon",
    "max_exposure",
    "median_exposure",
    "quantile_exposure",
    "p_value",
)
_DOUBTS = ("controls", "validation", "scores", "min_canaries", "classes")
_LOW_IS_WORSE = ("max_guesses", "p_value")
_BOUNDS = ("claimed_epsilon", "max_epsilon")


def verdict_of(checks: Sequence[Check], untested: Sequence[str]) -> Verdict:
    """The verdict that these checks come to.

    Args:
        checks: at least one; those of soundness let no verdict pass on their own.
        untested: what no check was made of, one short phrase each.

    Returns:
        The verdict. Without one check of a leak that was made, it is inconclusive.
    """
    outcomes = {check.outcome for check in checks}
    made = [c for c in checks if c.key in _LEAKS and c.outcome is not Outcome.NOT_TESTED]
    if Outcome.LEAK in outcomes:
        outcome = Outcome.LEAK
    elif Outcome.INCONCLUSIVE in outcomes or not made:
        outcome = Outcome.INCONCLUSIVE
    else:
        outcome = Outcome.PASS
    deciding = _deciding(outcome, checks)
    return Verdict(
        outcome=outcome,
        sentence=_sentence(outcome, deciding, checks),
        deciding=deciding,
        checks=tuple(checks),
        tested=tuple(_tested(checks)),
        untested=(*_not_tested(checks), *untested),
    )


def _deciding(outcome: Outcome, checks: Sequence[Check]) -> Check | None:
    """The check that says most plainly why the outcome is what it is."""
    chosen = [check for check in checks if check.outcome is outcome]
    if outcome is Outcome.INCONCLUSIVE:
        return min(chosen, key=_doubt, default=None)
    found = [check for check in chosen if check.key in _LEAKS]
    return min(found, key=_worst if outcome is Outcome.LEAK else _passing, default=None)


def _doubt(check: Check) -> tuple[int, int]:
    """What makes everything else doubtful first, then what was asked for."""
    place = _DOUBTS.index(check.key) if check.key in _DOUBTS else len(_DOUBTS)
    return place, not check.asked


def _worst(check: Check) -> tuple[int, float]:
    """The most convincing kind first, of one kind the worst number.

    Of equal numbers the first, for it has the fewest repetitions.
    """
    return _LEAKS.index(check.key), _badness(check)


def _badness(check: Check) -> float:
    """The worse the number of a check, the lower."""
    value = 0.0 if check.value is None else check.value
    return value if check.key in _LOW_IS_WORSE else -value


def _passing(check: Check) -> tuple[bool, bool, int, float]:
    """What was asked for first; then exposure, whose number says how near a leak it came."""
    return not check.asked, check.key != "max_exposure", *_worst(check)


def _sentence(outcome: Outcome, deciding: Check | None, checks: Sequence[Check]) -> str:
    if deciding is None:
        return "Inconclusive: no check could be made, so nothing is known."
    name, reason = _format_of(deciding), deciding.reason
    several = len({_format_of(check) for check in checks} - {""}) > 1
    where = f"in format {name}, " if several and name else ""
    many = _how_many(checks) if outcome is Outcome.LEAK else ""
    return f"{_word(outcome)}: {where}{reason[:1].lower()}{reason[1:]}{many}"


def _word(outcome: Outcome) -> str:
    return outcome_word(outcome).capitalize()


def _how_many(checks: Sequence[Check]) -> str:
    """How many classes leak; nothing where there is no other class, or none leaks by itself."""
    classes, leaking = _classes_with(checks), _classes_with(checks, Outcome.LEAK)
    if len(classes) < 2 or not leaking:
        return ""
    if len(leaking) == len(classes):
        return f" {'Both' if len(classes) == 2 else f'All {len(classes)}'} classes of secrets leak."
    verb = "leaks" if len(leaking) == 1 else "leak"
    return f" {len(leaking)} of {len(classes)} classes of secrets {verb}."


def _classes_with(checks: Sequence[Check], outcome: Outcome | None = None) -> list[str]:
    """Scopes of the classes that a check for leaks was made of, in order.

    Args:
        checks: of a verdict.
        outcome: that such a check of the class must have come to; None: any.
    """
    return list(
        dict.fromkeys(
            check.scope
            for check in checks
            if check.key in _LEAKS and check.scope and outcome in (None, check.outcome)
        )
    )


def _format_of(check: Check) -> str:
    """The scope without the class."""
    return check.scope.rpartition(", ")[0]


def _is_tested(check: Check) -> bool:
    """A bound on epsilon that decides nothing has tested no threshold and no claim."""
    undecided = check.outcome is Outcome.INCONCLUSIVE and check.key in _BOUNDS
    return check.outcome is not Outcome.NOT_TESTED and not undecided


def _tested(checks: Sequence[Check]) -> list[str]:
    """One phrase for each kind of check that was made."""
    made: dict[str, list[Check]] = {}
    for check in checks:
        if _is_tested(check):
            made.setdefault(check.name, []).append(check)
    return [_phrase(name, found) for name, found in made.items()]


def _phrase(name: str, found: Sequence[Check]) -> str:
    if len(found) == 1:
        return f"{name}: {found[0].scope}" if found[0].scope else name
    return f"{name}: {len(found)} {'formats' if found[0].key == 'controls' else 'classes'}"


def _not_tested(checks: Sequence[Check]) -> list[str]:
    """One phrase for each check that was not made, with the reason."""
    return [
        f"{check.name}{f' ({check.scope})' if check.scope else ''}: "
        f"{check.reason[:1].lower()}{check.reason[1:].rstrip('.')}"
        for check in checks
        if not _is_tested(check)
    ]
