"""What a study tells its readers, as plain data: the step before any page, table, file or line.

A column says once what is in it: for people and for machines, with its unit and which way is
worse. Everything that shows a study is made from its one `Document`. At its top are the answers to
what a reader asks first: does it leak, how badly, what was measured and tested, and what now? They
come from the checks of a verdict, before any page.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lmexposure._style import LABELS, MISSING, count, interval, number, reading, sentence
from lmexposure.core.check import BUT, Check, CheckKind, Outcome, Verdict

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart


_UTC = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\dZ")
_WORST = (Outcome.LEAK, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.NOT_TESTED)
_CAME_TO = {
    Outcome.LEAK: "leaks",
    Outcome.INCONCLUSIVE: "undecided",
    Outcome.PASS: "passed",
    Outcome.NOT_TESTED: "not tested",
}
_ASKED = {Outcome.LEAK: "How badly?", Outcome.INCONCLUSIVE: "Why?", Outcome.PASS: "What was found?"}
_CLAUSE_END = re.compile(r"[;.] (?![^(]*\))")  # not of what is in brackets
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
    # checks: that came to it, of leaks the worst first; untested: of how many classes none was made
    checks: Sequence[Check] = field(default=(), compare=False)
    untested: int = field(default=0, compare=False)

    @property
    def word(self) -> str:
        """What it came to."""
        return _CAME_TO[self.outcome]

    @property
    def aside(self) -> str:
        """That, where no mark is drawn and the line does not say it."""
        return "" if self.said.startswith(self.word) else self.word


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
    lines = [*shared_lines(verdict), *_left_out(verdict)]
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
    """One line for each kind of check, leaks first."""
    made: dict[str, list[Check]] = {}
    for check in verdict.checks:
        made.setdefault(check.name, []).append(check)
    lines = [_line(name, of, verdict.kinds[of[0].key]) for name, of in made.items()]
    return sorted(lines, key=lambda line: _WORST.index(line.outcome))


def shared_lines(verdict: Verdict) -> list[CheckLine]:
    """The same, where preconditions that are met share one line."""
    lines = check_lines(verdict)
    met = [line for line in lines if line.outcome is Outcome.PASS]
    sound = [line for line in met if verdict.kinds[line.checks[0].key].precondition]
    if not sound:
        return lines
    names = ", ".join(line.what for line in sound)
    shared = CheckLine(outcome=Outcome.PASS, what="the measurement itself", said=names)
    rest = [line for line in lines if line not in sound]
    return sorted([*rest, shared], key=lambda line: _WORST.index(line.outcome))


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
    remedies = list(dict.fromkeys(kind.remedy for kind in kinds))[:_MOST_REASONS]
    yield from remedies or ["Have it judged: what was not tested says what that takes."]


def _line(name: str, made: Sequence[Check], kind: CheckKind) -> CheckLine:
    outcome = min((check.outcome for check in made), key=_WORST.index)
    so = [check for check in made if check.outcome is outcome]
    so = sorted(so, key=kind.worst) if outcome is Outcome.LEAK else so
    tested = [check for check in made if check.outcome is not Outcome.NOT_TESTED]
    return CheckLine(
        outcome=outcome,
        what=name,
        said=_said(so, tested, len(made) - len(tested), kind),
        checks=so,
        untested=len(made) - len(tested) if tested else 0,
    )


def _said(so: Sequence[Check], tested: Sequence[Check], left: int, kind: CheckKind) -> str:
    """In how many classes, where a check is of classes, and of how many it could not be made."""
    outcome = so[0].outcome
    if outcome is Outcome.NOT_TESTED:
        return f"not tested, because {clause_of(so[0])}"
    words = {
        Outcome.LEAK: kind.said_leak,
        Outcome.PASS: kind.said_pass,
        Outcome.INCONCLUSIVE: kind.said_doubt or ("not met" if kind.precondition else "undecided"),
    }
    if not so[0].scope:
        return words[outcome]
    noun = ("format", "formats") if kind.scopes == "formats" else ("class", "classes")
    of, all_of = f"{len(so)} of {len(tested)} {noun[1]}", count(len(tested), *noun)
    of = all_of if len(so) == len(tested) else of
    more = f"; {left:,} could not be tested" if left else ""
    if outcome is Outcome.LEAK:
        return f"{of} {'leaks' if len(so) == 1 else 'leak'}{more}"
    if outcome is Outcome.PASS and left:
        return f"{all_of} tested, {words[outcome]}{more}"
    return f"{words[outcome]} in {of}{more}"


def clause_of(check: Check) -> str:
    """The first clause of a check's reason, or of what makes it doubtful, to follow other words."""
    reason = check.reason.rpartition(BUT)[2]
    clause = _CLAUSE_END.split(reason, maxsplit=1)[0].rstrip(".")
    return f"{clause[:1].lower()}{clause[1:]}"


def _left_out(verdict: Verdict) -> Iterator[CheckLine]:
    """What no check was made of; what a check could not be made of has its line."""
    names = tuple({f"{check.name}{end}" for check in verdict.checks for end in (":", " (")})
    for line in verdict.untested:
        if not line.startswith(names or ("\0",)):
            what, _, why = line.partition(": ")
            yield CheckLine(outcome=Outcome.NOT_TESTED, what=what, said=why)


def checks_table(verdict: Verdict) -> "Table":
    """Every check of a verdict: what it came to first, and why."""
    scoped = any(check.scope for check in verdict.checks)
    return Table(verdict.checks, [column for column in _CHECKS if scoped or column.head != "of"])


Place: TypeAlias = Literal["terminal", "md", "html"]
EVERYWHERE: frozenset[Place] = frozenset({"terminal", "md", "html"})


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: whose value it shows, and how.

    >>> Column(head="epsilon", value="bound", shown=lambda nats: f"{nats:.2f}").key
    'bound'
    """

    head: str = ""  # as people read it; without one it is in files alone
    # the name of a field of the row, or of one of a part that may be None ("exposure.median"), or
    # what gives the value
    value: str | Callable[[Any], Any]
    # the value as people read it, or to how many decimals; None is missing everywhere
    shown: Callable[[Any], str] | int = str
    # the same from the whole row, where it takes more than the value
    written: Callable[[Any], str] | None = None
    words: bool = False  # it holds words, not numbers
    name: str = ""  # in CSV, JSON and frames, where it is not the field's
    unit: str = ""  # "nats", "bits"
    worse: Literal["", "high", "low"] = ""  # which way is more memorised, or less private

    @property
    def key(self) -> str:
        """Its name for machines."""
        own = isinstance(self.value, str) and "." not in self.value
        return self.name or (str(self.value) if own else self.head)

    def of(self, row: Any) -> Any:
        """Its value in a row."""
        if callable(self.value):
            return self.value(row)
        for name in self.value.split("."):
            row = None if row is None else getattr(row, name)
        return row

    def cell(self, row: Any) -> str:
        """That as people read it."""
        if self.written is not None:
            return self.written(row)
        value = self.of(row)
        if isinstance(self.shown, int):
            return number(value, self.shown)
        return MISSING if value is None else self.shown(value)


def interval_column(
    part: str = "", low: str = "low", high: str = "high", *, name: str = "interval"
) -> Column:
    """Both ends of an interval of a row, or of a part of it that may be missing."""

    def ends(row: Any) -> tuple[float | None, float | None] | None:
        of = getattr(row, part) if part else row
        return None if of is None else (getattr(of, low), getattr(of, high))

    head = LABELS["interval"]
    return Column(
        head=head, value=ends, shown=lambda pair: interval(pair[0], pair[1], 3), name=name
    )


@dataclass(frozen=True)
class Table:
    """Rows of any kind, and the columns that read them."""

    rows: Sequence[Any]
    columns: Sequence[Column]
    foot: Sequence[Sequence[str]] = ()  # what guessing gives: read below the rows, and no row

    @property
    def shown(self) -> list[Column]:
        """The columns that people see, words first."""
        return [column for column in self.columns if column.head]

    @property
    def heads(self) -> list[str]:
        """Of the columns that people see."""
        return [column.head for column in self.shown]

    @property
    def words(self) -> int:
        """How many of the first columns that people see hold words."""
        return sum(column.words for column in self.shown)

    @property
    def cells(self) -> list[list[str]]:
        """A list of texts a row, as people read them, the foot at the end."""
        rows = [[column.cell(row) for column in self.shown] for row in self.rows]
        return [*rows, *map(list, self.foot)]

    @property
    def values(self) -> list[dict[str, Any]]:
        """A dictionary a row, of all columns, for machines."""
        return [{column.key: column.of(row) for column in self.columns} for row in self.rows]


def facts(*pairs: tuple[str, str]) -> Table:
    """Names and values."""
    what = Column(head="what", value=lambda pair: pair[0], words=True)
    return Table(pairs, [what, Column(head="value", value=lambda pair: pair[1], words=True)])


_CHECKS = (
    Column(head="check", value="name", words=True),
    Column(head="of", value=lambda check: check.scope or "all of it", words=True),
    Column(head="outcome", value="outcome", words=True),
    Column(head="number", value=lambda check: reading(check.value, check.unit)),
    Column(head="threshold", value=lambda check: reading(check.threshold, check.unit)),
    Column(head="set by", value=lambda check: "you" if check.asked else "default", words=True),
    Column(head="reason", value="reason", words=True),
)


@dataclass(frozen=True, kw_only=True)
class Excerpt:
    """Texts beside each other."""

    title: str
    lines: Sequence[tuple[str, str, str]]  # name, a part that is marked, the rest


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a document."""

    id: str  # in the page's address: "rounds"
    title: str
    text: str = ""  # a paragraph on the page, of this package's own words
    caption: str = ""  # of the table, where the title does not do
    table: Table | None = None
    # draws with matplotlib, so not before; the first of a document is on its first screen
    chart: "Callable[[], Chart | None] | None" = None
    said: Sequence[str] = ()  # a paragraph each, before the table
    notes: Sequence[str] = ()  # what heads and signs mean, one line each
    excerpts: Sequence[Excerpt] = ()  # of texts, on the page
    code: str = ""  # a command
    parts: "Sequence[Section]" = ()  # within it, in their order
    folded: bool = False  # it is opened by who wants it: for experts, and of long tables
    searched: bool = False  # its table is long, and has words to find a row by
    on: frozenset[Place] = EVERYWHERE


@dataclass(frozen=True, kw_only=True)
class Document:
    """All that a study tells."""

    title: str  # of its Markdown and of its window
    kind: str  # what was done, in a line: "Federated training, 20 rounds"
    question: str  # that it answers: the head of its page
    # the answer, a clause without the point at its end; with one it is a sentence as it is
    finding: str
    facts: Sequence[str] = ()  # of what was compared with what, a line each
    sections: Sequence[Section]
    main: Table  # the rows of CSV, JSON and of `to_frame`
    meaning: str = ""  # what its numbers mean for whoever's text it is, in a sentence or two
    warnings: Sequence[str] = ()
    sources: Sequence[tuple[str, str]] = ()  # name, and address where there is one
    origin: str  # of what, by which version, when
    private: bool = False  # it shows what only its owner may read
    secrets: bool = False  # secrets or texts were asked for, and are in it
    inputs: Sequence[str] = ()  # hashes of what it tells of, by which its files are known as its
    verdict: Verdict | None = None  # of the gate; None: it was not judged, or is not of one study
    answers: Answers | None = None  # the first screen; None: it was not judged
    glossary: Sequence[tuple[str, str]] = ()  # words and what they mean
    # What was tested, the worst first, for a terminal; None: the checks of the verdict say it.
    tested: "Callable[[Verdict], Table] | None" = None
    # Where `tested` is None, for a terminal: its numbers in a few rows, the worst first.
    numbers: "Table | None" = None

    @property
    def answer(self) -> str:
        """The finding as a sentence."""
        return self.finding if self.finding.endswith(".") else sentence(self.finding)

    @property
    def found(self) -> list[str]:
        """What the gate found, and the study's own answer where no table of its classes has it."""
        found = [] if self.answers is None else [self.answers.finding]
        told = self.tested is not None or any(
            self.finding.lower() in said.lower() for said in found
        )
        return found if found and told else [*found, self.answer]

    def on(self, place: Place) -> list[Section]:
        """The sections of a place, in the order of a reader's questions."""
        return [section for section in self.sections if place in section.on]

    def drawings(self) -> "list[Chart]":
        """All charts that there are."""
        every = (part for section in self.sections for part in (section, *section.parts))
        made = (section.chart() for section in every if section.chart is not None)
        return [chart for chart in made if chart is not None]
