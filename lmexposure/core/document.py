"""What a study tells its readers, as plain data: the step before any page, table, file or line.

A column says once what is in it: for people and for machines, with its unit and which way is
worse. Everything that shows a study is made from its one `Document`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lmexposure._style import MISSING, sentence
from lmexposure.core.answers import Answers
from lmexposure.core.check import Verdict

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart

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
    shown: Callable[[Any], str] = str  # the value as people read it; None is missing everywhere
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
        return MISSING if value is None else self.shown(value)


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
    chart: "Callable[[], Chart | None] | None" = None  # draws with matplotlib, so not before
    said: Sequence[str] = ()  # a paragraph each, before the table
    notes: Sequence[str] = ()  # what heads and signs mean, one line each
    excerpts: Sequence[Excerpt] = ()  # of texts, on the page
    code: str = ""  # a command
    parts: "Sequence[Section]" = ()  # within it, in their order
    folded: bool = False  # it is opened by who wants it: of long tables
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
    warnings: Sequence[str] = ()
    sources: Sequence[tuple[str, str]] = ()  # name, and address where there is one
    origin: str  # of what, by which version, when
    private: bool = False  # it shows what only its owner may read
    secrets: bool = False  # secrets or texts were asked for, and are in it
    inputs: Sequence[str] = ()  # hashes of what it tells of, by which its files are known as its
    # verdict, answers: of the gate, which come first; None: it is not of one study
    verdict: Verdict | None = None
    answers: Answers | None = None
    glossary: Sequence[tuple[str, str]] = ()  # words and what they mean

    @property
    def answer(self) -> str:
        """The finding as a sentence."""
        return self.finding if self.finding.endswith(".") else sentence(self.finding)

    def on(self, place: Place) -> list[Section]:
        """The sections of a place, in the order of a reader's questions."""
        return [section for section in self.sections if place in section.on]

    def drawings(self) -> "list[Chart]":
        """All charts that there are."""
        every = (part for section in self.sections for part in (section, *section.parts))
        made = (section.chart() for section in every if section.chart is not None)
        return [chart for chart in made if chart is not None]
