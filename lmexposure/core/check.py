"""What a check is, the thresholds of checks, and the one verdict that those of a study come to.

A check is a number, a threshold and words. What holds for all checks of one key is its `CheckKind`;
a study lists its kinds in the order in which a reader should hear of them: of leaks the most
convincing first, of preconditions what makes everything else doubtful.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from lmexposure._settings import Settings, at_least_0, setting, settings_of, whole
from lmexposure._style import outcome_word, sentence, setting_value, short, visible
from lmexposure._validate import fraction, positive
from lmexposure.errors import SettingsError

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart

DEFAULT_GUESSES = 1000
_MOST = 10**15  # of a count
_LEAST = 1e-9  # of a probability, to calculate with
BUT = " But "  # before what makes a reason doubtful
THRESHOLDS = "Thresholds"  # the panel of the command's help


class Outcome(StrEnum):
    """What one check, or the gate as a whole, came to."""

    PASS = "pass"
    LEAK = "leak"
    INCONCLUSIVE = "inconclusive"
    # Of a check only: it was not asked for, or says nothing here, and holds nothing up.
    NOT_TESTED = "not tested"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One threshold against one number."""

    name: str  # what was compared, as people know it: "p-value against guessing"
    key: str  # the setting that decides it: "p_value"; for machines, and its `CheckKind`
    scope: str = ""  # of what: "random_number, repetitions 16"; "" for the whole run
    outcome: Outcome  # a leak where the number is past the threshold
    value: float | None = None  # the number; None where there is none
    threshold: float | None = None  # what it was compared with; None where there is none
    unit: str = ""  # "bits", "guesses", "nats", "" for a probability
    reason: str  # one sentence with the numbers in it
    # whether the user asked for it; `judged` sees it where the key is that of a threshold
    asked: bool = False

    @classmethod
    def of(  # noqa: PLR0913 - what it is, what it came to, why, and its number
        cls,
        key: str,
        name: str,
        outcome: Outcome,
        why: str,
        value: float | None = None,
        threshold: float | None = None,
        *,
        unit: str = "",
        scope: str = "",
        asked: bool = False,
    ) -> "Check":
        """A check whose reason is a clause."""
        return cls(
            name=name,
            key=key,
            scope=scope,
            outcome=outcome,
            value=None if value is None else float(value),
            threshold=None if threshold is None else float(threshold),
            unit=unit,
            reason=sentence(why),
            asked=asked,
        )


@dataclass(frozen=True, kw_only=True)
class CheckKind:
    """What holds for every check of one key, whatever it came to."""

    # name, unit: of its checks, where all have the same
    name: str = ""
    unit: str = ""
    help: str  # what it means, for a reader who meets it in a list of findings
    remedy: str  # what to do where it is inconclusive
    # it only says whether other numbers may be believed, and never is a leak
    precondition: bool = False
    low_is_worse: bool = False  # the lower its number, the worse
    own_significance: bool = False  # of a bound: where it decides nothing, it tested nothing
    shows_margin: bool = False  # of what passed, its number says how near a leak it came
    of_depth: bool = False  # it says how closely was looked: of doubts the last to be named
    scopes: str = "classes"  # what it is made of, where it is made several times
    # said_leak, said_pass, said_doubt: what it came to, in a word or two
    said_leak: str = "leaks"
    said_pass: str = "no leak"
    said_doubt: str = ""  # "": undecided, or of a precondition not met
    after_leak: str = "Do not release this model."  # what to do where it leaks, in a sentence

    def worst(self, check: Check) -> float:
        """Sorts the worst number first."""
        value = 0.0 if check.value is None else check.value
        return value if self.low_is_worse else -value


# What kinds of checks share; each study gives them its help and its remedy.
LIMIT = CheckKind(help="", remedy="", said_leak="above the limit", said_pass="not above the limit")
EPSILON_LIMIT = replace(
    LIMIT,
    after_leak="Do not release this model under this limit on epsilon: it is less private.",
)
CLAIMED_EPSILON = CheckKind(
    help="",
    remedy="",
    said_leak="contradicted",
    said_pass="not contradicted",
    after_leak="Do not publish the claim of privacy: the training is less private.",
)
EXIT_CODES = {Outcome.PASS: 0, Outcome.LEAK: 1, Outcome.INCONCLUSIVE: 2}


@dataclass(frozen=True, kw_only=True, repr=False)
class Verdict:
    """The outcome of all checks."""

    outcome: Outcome  # never NOT_TESTED: a gate that tested nothing is inconclusive
    sentence: str  # the verdict in one sentence, with the number that decides it
    # the check that the sentence is about; None where no check could be made
    deciding: Check | None
    checks: tuple[Check, ...]  # all of them; the deciding one is among them
    tested: tuple[str, ...]  # what was tested, one short phrase each
    untested: tuple[str, ...]  # what was not, and why, one short phrase each
    kinds: Mapping[str, CheckKind]  # of its checks, by their keys
    # of what was judged; None: not known
    charts: "Callable[[], Sequence[Chart]] | None" = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"<Verdict: {visible(self.sentence)}>"

    def _repr_html_(self) -> str:
        from lmexposure.core.render import verdict_cell

        return verdict_cell(self, self._drawn[:1])

    @property
    def _drawn(self) -> "Sequence[Chart]":
        return () if self.charts is None else self.charts()

    def plot(self) -> "Chart":
        """The first chart of what was judged; a notebook shows it.

        Raises:
            SettingsError: it has no charts.
        """
        if not self._drawn:
            raise SettingsError("what was judged has no charts; see the checks of the verdict")
        return self._drawn[0]

    def __dir__(self) -> list[str]:
        """What a person needs of it, for the Tab key; all else is there too."""
        names = (name for name in object.__dir__(self) if not name.startswith("_"))
        return sorted(set(names) - {"charts", "kinds"})

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

    @property
    def left_out(self) -> tuple[str, ...]:
        """Of what was not tested, that which no check is of."""
        of_checks = set(_Checks(self.checks, self.kinds).not_tested())
        return tuple(phrase for phrase in self.untested if phrase not in of_checks)

    def to_dict(self) -> dict[str, object]:
        """Plain Python values."""
        return {
            "outcome": str(self.outcome),
            "exit_code": self.exit_code,
            "sentence": self.sentence,
            "deciding": None if self.deciding is None else asdict(self.deciding),
            "checks": tuple(map(asdict, self.checks)),
            "tested": self.tested,
            "untested": self.untested,
        }


def attainable_outcome(beyond: bool, could_be: bool) -> Outcome:
    """Of a lower bound against a limit: no pass where a perfect attack could not have failed it."""
    if beyond:
        return Outcome.LEAK
    return met_outcome(could_be)


def interval_outcome(low: float | None, high: float | None, most: float) -> Outcome:
    """Of an interval against a limit: a leak where all of it is above, a pass where none is."""
    if low is not None and low > most:
        return Outcome.LEAK
    return met_outcome(high is not None and high <= most)


def met_outcome(met: bool) -> Outcome:
    """Of a precondition, which never is a leak."""
    return Outcome.PASS if met else Outcome.INCONCLUSIVE


def doubted(check: Check, doubt: str, *outcomes: Outcome) -> Check:
    """What came to one of these is inconclusive, for this reason, a clause."""
    if check.outcome not in outcomes:
        return check
    reason = f"{check.reason}{BUT}{doubt}."
    return replace(check, outcome=Outcome.INCONCLUSIVE, reason=reason)


def verdict_of(
    checks: Sequence[Check], untested: Sequence[str], kinds: Mapping[str, CheckKind]
) -> Verdict:
    """The verdict that these checks come to; `kinds`: of each, by key, in their order."""
    return _Checks(checks, kinds).verdict(untested)


def _of_class(check: Check) -> str:
    """The scope without the class."""
    return check.scope.rpartition(", ")[0]


@dataclass(frozen=True)
class _Checks:
    """What was checked, and what is said of it."""

    all: Sequence[Check]
    kinds: Mapping[str, CheckKind]

    def verdict(self, untested: Sequence[str]) -> Verdict:
        outcome = self._outcome()
        deciding = self._deciding(outcome)
        return Verdict(
            outcome=outcome,
            sentence=self._sentence(outcome, deciding),
            deciding=deciding,
            checks=tuple(self.all),
            tested=tuple(self._tested()),
            untested=tuple(dict.fromkeys([*self.not_tested(), *untested])),
            kinds=self.kinds,
        )

    def not_tested(self) -> list[str]:
        """A phrase for each check that was not made, with the reason."""
        return [
            f"{check.name}{f' ({check.scope})' if check.scope else ''}: "
            f"{check.reason[:1].lower()}{check.reason[1:].rstrip('.')}"
            for check in self.all
            if check.outcome is Outcome.NOT_TESTED
            or (self.kinds[check.key].own_significance and not self._is_tested(check))
        ]

    def _outcome(self) -> Outcome:
        outcomes = {check.outcome for check in self.all}
        made = [c for c in self.all if self._seeks(c) and c.outcome is not Outcome.NOT_TESTED]
        if Outcome.LEAK in outcomes:
            return Outcome.LEAK
        if Outcome.INCONCLUSIVE in outcomes or not made:
            return Outcome.INCONCLUSIVE
        return Outcome.PASS

    def _seeks(self, check: Check) -> bool:
        """Whether it looks for a leak, and not only at whether other numbers may be believed."""
        return not self.kinds[check.key].precondition

    def _deciding(self, outcome: Outcome) -> Check | None:
        """The check that says most plainly why the outcome is what it is."""
        chosen = [check for check in self.all if check.outcome is outcome]
        if outcome is Outcome.INCONCLUSIVE:
            return min(chosen, key=self._doubt, default=None)
        order = self._worst if outcome is Outcome.LEAK else self._passing
        return min(filter(self._seeks, chosen), key=order, default=None)

    def _place(self, check: Check) -> int:
        return list(self.kinds).index(check.key)

    def _doubt(self, check: Check) -> tuple[bool, int, bool]:
        """What makes everything else doubtful first, then what was asked for."""
        place = len(self.kinds) if self._seeks(check) else self._place(check)
        return self.kinds[check.key].of_depth, place, not check.asked

    def _worst(self, check: Check) -> tuple[int, float]:
        """The most convincing kind first, of one kind the worst number."""
        return self._place(check), self.kinds[check.key].worst(check)

    def _passing(self, check: Check) -> tuple[bool, bool, int, float]:
        """What was asked for first; then what says how near a leak it came."""
        return not check.asked, not self.kinds[check.key].shows_margin, *self._worst(check)

    def _sentence(self, outcome: Outcome, deciding: Check | None) -> str:
        if deciding is None:
            return "Inconclusive: nothing was judged; see what was not tested."
        name, reason = _of_class(deciding), deciding.reason
        several = len({_of_class(check) for check in self.all} - {""}) > 1
        where = f"in format {name}, " if several and name else ""
        many = self._how_many() if outcome is Outcome.LEAK else ""
        return f"{_word(outcome)}: {where}{reason[:1].lower()}{reason[1:]}{many}"

    def _how_many(self) -> str:
        """How many classes leak; nothing where there is no other, or none leaks by itself."""
        classes, leaking = self._classes(), self._classes(Outcome.LEAK)
        if len(classes) < 2 or not leaking:
            return ""
        if len(leaking) == len(classes):
            every = "Both" if len(classes) == 2 else f"All {len(classes)}"
            return f" {every} classes of secrets leak."
        verb = "leaks" if len(leaking) == 1 else "leak"
        return f" {len(leaking)} of {len(classes)} classes of secrets {verb}."

    def _classes(self, outcome: Outcome | None = None) -> list[str]:
        """Scopes of the classes that a check for leaks was made of, in order."""
        made = (check for check in self.all if self._seeks(check) and check.scope)
        return list(dict.fromkeys(c.scope for c in made if outcome in (None, c.outcome)))

    def _is_tested(self, check: Check) -> bool:
        """A bound that decides nothing tested no threshold; no quick look is a full one."""
        kind = self.kinds[check.key]
        undecided = check.outcome is Outcome.INCONCLUSIVE
        may_be_none = kind.own_significance or kind.of_depth
        return check.outcome is not Outcome.NOT_TESTED and not (undecided and may_be_none)

    def _tested(self) -> list[str]:
        """One phrase for each kind of check that was made."""
        made: dict[str, list[Check]] = {}
        for check in self.all:
            if self._is_tested(check):
                made.setdefault(check.name, []).append(check)
        return [self._phrase(name, checks) for name, checks in made.items()]

    def _phrase(self, name: str, checks: Sequence[Check]) -> str:
        kind = self.kinds[checks[0].key]
        name += " (at a significance of its own)" if kind.own_significance else ""
        if len(checks) == 1:
            return f"{name}: {checks[0].scope}" if checks[0].scope else name
        return f"{name}: {len(checks)} {kind.scopes}"


def _word(outcome: Outcome) -> str:
    return outcome_word(outcome).capitalize()


def quantile_pair(flag: str, value: object) -> tuple[float, float]:
    """A quantile and its bits: "0.9:8" on the command line, [0.9, 8] in a file."""
    parts = value.split(":") if isinstance(value, str) else value
    try:
        if not isinstance(parts, Sequence):
            raise TypeError
        quantile, bits = (float(str(part)) for part in parts)
    except (TypeError, ValueError):
        raise SettingsError(
            f"quantile_exposure={value!r} must be a quantile and bits, such as 0.9:8"
        ) from None
    return quantile, bits


def _check_quantile(name: str, value: object) -> None:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise SettingsError(f"{name}={value!r} must be a quantile and bits, such as (0.9, 8)")
    quantile, bits = value
    if not _LEAST <= fraction(name, quantile) <= 1 - _LEAST:
        raise SettingsError(
            f"{name}={value!r}: its quantile must lie between {_LEAST:g} and 1 - {_LEAST:g}"
        )
    _at_least_guessing(name, bits, quantile)


def _check_significance(name: str, value: float) -> None:
    if fraction(name, value) < _LEAST:
        raise SettingsError(f"{name}={value!r} must be at least {_LEAST:g}")


def _at_least_guessing(name: str, bits: float, quantile: float = 0.5) -> None:
    """A threshold below what guessing gives would call every model leaking."""
    least = -math.log2(1 - quantile)
    if positive(name, bits) < least:
        raise SettingsError(
            f"{name}={setting_value(bits)} bits must be at least {short(least)}, which guessing "
            f"alone gives for the {setting_value(quantile)} quantile; raise it"
        )


_RATE = at_least_0("a rate, at least 0 and below 1", below=1)


@dataclass(frozen=True, kw_only=True)
class Thresholds(Settings):
    """What a model may show. None asks for nothing: the default applies, where there is one.

    A threshold that is asked for and cannot be tested makes the gate inconclusive; a default that
    cannot be tested is said to be untested.

    Raises:
        SettingsError: a number out of range.

    >>> Thresholds(max_epsilon=8).asked("max_epsilon"), Thresholds().guesses
    (True, 1000)
    """

    PANEL: ClassVar[str] = THRESHOLDS

    max_exposure: float | None = setting(
        None,
        "largest exposure of any canary, in bits",
        rule=positive,
        usual="what chance rarely exceeds",
    )
    median_exposure: float | None = setting(
        None, "largest median exposure of any class, in bits", rule=_at_least_guessing, usual="any"
    )
    quantile_exposure: tuple[float, float] | None = setting(
        None,
        "a quantile and the most bits allowed, such as 0.9:8",
        rule=_check_quantile,
        usual="any",
        metavar="Q:BITS",
        parse=quantile_pair,
    )
    max_guesses: int | None = setting(
        None,
        "a secret found within this many guesses leaks",
        rule=whole(1, _MOST),
        usual=str(DEFAULT_GUESSES),
    )
    max_epsilon: float | None = setting(
        None,
        "largest lower bound on epsilon allowed, in nats",
        rule=at_least_0("a finite number, at least 0, in nats"),
        usual="any",
    )
    max_worst_tpr: float | None = setting(
        None,
        "of a sweep: largest share of the models with a text that may give it away; of defences: "
        "largest share of the canaries that the strongest attack may find under the best one",
        rule=_RATE,
        usual="what chance explains",
    )
    p_value: bool | None = setting(
        None, "the test against guessing", usual="made", flag_name="--p-value/--no-p-value"
    )
    significance: float = setting(
        0.01,
        "how often, at most, a clean model is called leaking by chance",
        rule=_check_significance,
    )
    max_verbatim_run: int | None = setting(
        None,
        "of memorised text: characters of the longest run that greedy decoding may give",
        rule=whole(0, _MOST),
        usual="any",
    )
    max_extractable: float | None = setting(
        None,
        "of memorised text: largest share of passages that the tries may reproduce",
        rule=_RATE,
        usual="any",
    )
    min_canaries: int = setting(10, "a class of fewer cannot pass", rule=whole(1, _MOST))
    repetitions: int | None = setting(
        None,
        "judge only classes that were inserted at most this often",
        rule=whole(1, _MOST),
        usual="all",
    )
    accept_unseen_training: bool = setting(
        False, "let a model pass of which nothing shows that it saw the canaries"
    )
    accept_quick: bool = setting(False, "let a quick look pass")

    @property
    def guesses(self) -> int:
        """How many guesses an attacker has."""
        return DEFAULT_GUESSES if self.max_guesses is None else self.max_guesses

    def asked(self, key: str) -> bool:
        """Whether the user set this threshold; a test that was switched off is not asked for."""
        value = getattr(self, key)
        return value is not False and value != settings_of(Thresholds)[key].default
