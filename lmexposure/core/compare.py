"""Studies of one kind side by side: their main numbers, and the settings in which they differ."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter, methodcaller

from lmexposure._record import JsonValue
from lmexposure._style import (
    MISSING,
    count,
    interval,
    number,
    outcome_word,
    sentence,
    setting_value,
    short,
    signed,
    visible,
    whole,
)
from lmexposure.core.check import Outcome
from lmexposure.core.document import (
    Answers,
    CheckLine,
    Column,
    Document,
    Fact,
    Section,
    Table,
    date_of,
)
from lmexposure.core.study import Number, Study, judged
from lmexposure.errors import SettingsError


@dataclass(frozen=True)
class _Row:
    """One number under each study, in their order."""

    each: Sequence[Number]

    @property
    def name(self) -> str:
        return self.each[0].name

    @property
    def unit(self) -> str:
        return self.each[0].unit

    @property
    def head(self) -> str:
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def cell(self, place: int) -> str | None:
        own = self.each[place]
        if own.value is None:
            return None
        ends = "" if None in (own.low, own.high) else f" ({interval(own.low, own.high, 3)})"
        return f"{_written(own.value)}{ends}"

    def change(self, place: int) -> float | None:
        first, own = self.each[0], self.each[place]
        if first.value is None or own.value is None or not first.subtracted:
            return None
        return own.value - first.value


def compare_document(studies: Sequence[tuple[str, Study]]) -> Document:
    """Two or more studies of one kind, each with its name; the first is the base."""
    if len(studies) < 2:
        raise SettingsError(
            f"{count(len(studies), 'study', 'studies')} to compare; give two or more"
        )
    (_, base), *others = studies
    for name, other in others:
        if type(other) is not type(base):
            raise SettingsError(
                f"{name} is {other.WHAT}, and {studies[0][0]} is {base.WHAT}: they have no number "
                "in common; compare studies of one kind"
            )
    studies = _named_apart(studies)
    more = list(base.beside(studies))
    rows = _rows([study for _, study in studies])
    if not rows:
        raise SettingsError("these studies have no number in common, so nothing can be compared")
    names = [name for name, _ in studies]
    settings = _settings(studies)
    sections = [
        Section(
            id="numbers",
            title="Side by side",
            table=Table(rows, _number_columns(names)),
            notes=(
                f"difference: less the number of {names[0]}; it has no interval, so it does not "
                "show by itself that the two differ",
            ),
        )
    ]
    if settings.rows:
        sections.append(Section(id="settings", title="What they differ in", table=settings))
    verdicts = {name: judged(study) for name, study in studies}
    said = [f"{name}: {verdict.sentence}" for name, verdict in verdicts.items()]
    finding = base.told_beside(studies) or _finding(rows, names, len(settings.rows))
    return Document(
        title=f"{count(len(studies), base.WHAT.split(' ', 1)[1], 'studies')} side by side",
        kind=f"Comparison, {count(len(studies), 'study', 'studies')}",
        question="What differs, and in what were they made differently?",
        finding=finding,
        sections=[*sections, *more, Section(id="verdicts", title="Verdict of each", said=said)],
        main=Table(rows, _value_columns(names)),
        origin="; ".join(f"{name}: {study.provenance.line}" for name, study in studies),
        private=any(study.PRIVATE for _, study in studies),
        inputs=[study.inputs_sha256 for _, study in studies],
        answers=Answers(
            asked="What was found?",
            finding=finding if finding.endswith(".") else sentence(finding),
            since=[Fact(name=name, value=_measured(study)) for name, study in studies],
            tested=[
                CheckLine(outcome=verdict.outcome, what=name, said=outcome_word(verdict.outcome))
                for name, verdict in verdicts.items()
            ]
            + [
                CheckLine(
                    outcome=Outcome.NOT_TESTED,
                    what="what makes them differ",
                    said=_differing(len(settings.rows)),
                )
            ],
            sure=(
                "A difference without an interval or a p-value may be chance, and so may one of "
                "many that are large.",
            ),
            steps=(
                "Choose by differences that chance does not explain, between studies made alike.",
                "Release what passes by itself (lmexposure check): to leak less than another is no "
                "pass.",
            ),
        ),
    )


def _measured(study: Study) -> str:
    """Which model, and when."""
    return ", ".join(filter(None, [visible(study.model_name), date_of(study.when)]))


def _named_apart(studies: Sequence[tuple[str, Study]]) -> list[tuple[str, Study]]:
    """Those that share a name get a number."""
    names: list[str] = []
    for given, _ in studies:
        name, number_of = given, 1
        while name in names:
            number_of += 1
            name = f"{given} ({number_of})"
        names.append(name)
    return [(name, study) for name, (_, study) in zip(names, studies, strict=True)]


def _rows(studies: Sequence[Study]) -> list[_Row]:
    """The numbers that all of them have, in the order of the first."""
    found = [{own.name: own for own in study.numbers()} for study in studies]
    shared = [name for name in found[0] if all(name in own for own in found)]
    return [_Row([own[name] for own in found]) for name in shared]


def _number_columns(names: Sequence[str]) -> list[Column]:
    made = [Column(head="number", value="head", words=True)]
    for place, name in enumerate(names):
        made.append(Column(head=name, value=methodcaller("cell", place), name=f"shown_{place}"))
        if place:
            key = f"difference_{place}"
            made.append(
                Column(
                    head="difference", value=methodcaller("change", place), shown=_signed, name=key
                )
            )
    return made


def _value_columns(names: Sequence[str]) -> list[Column]:
    made = [Column(head=name, value=name, words=True) for name in ("name", "unit")]
    for place, name in enumerate(names):
        for end in ("value", "low", "high"):
            key = name if end == "value" else f"{name} {end}"
            made.append(Column(head=key, value=_end_of(place, end)))
    return made


def _end_of(place: int, end: str) -> Callable[[_Row], float | None]:
    return lambda row: getattr(row.each[place], end)


def _written(value: float) -> str:
    """A count as a count, and what three places would call nothing by its size."""
    if value.is_integer():
        return whole(int(value))
    return short(value) if abs(value) < 0.001 else number(value, 3)


def _signed(value: float) -> str:
    if value.is_integer():
        return f"{value:+z,.0f}"
    return f"{'+' * (value > 0)}{short(value)}" if abs(value) < 0.001 else signed(value, 3)


def _settings(studies: Sequence[tuple[str, Study]]) -> Table:
    """A row a setting in which they differ: its name, then its value in each."""
    asked = [study.asked() for _, study in studies]
    names = [name for name in asked[0] if any(own.get(name) != asked[0][name] for own in asked)]
    rows = [(name, *(_value(own.get(name)) for own in asked)) for name in names]
    heads = ["setting", *(name for name, _ in studies)]
    return Table(
        rows, [Column(head=h, value=itemgetter(n), words=True) for n, h in enumerate(heads)]
    )


def _value(value: JsonValue) -> str:
    return MISSING if value is None else setting_value(value)  # type: ignore[arg-type]


def _finding(rows: Sequence[_Row], names: Sequence[str], settings: int) -> str:
    first = rows[0]
    values = ", ".join(f"{first.cell(n) or MISSING} in {name}" for n, name in enumerate(names))
    return f"{first.head}: {values}; {_differing(settings)}"


def _differing(settings: int) -> str:
    return f"they differ in {count(settings, 'setting')}" if settings else "no setting differs"
