"""Several runs side by side: base against fine-tune, undefended against defended.

Only what can be compared is: the same format with as many secrets. Each later run is compared with
the first, class by class, and a sentence says which of them leaks more.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmexposure._style import (
    LABELS,
    class_name,
    interval,
    percent,
    probability,
    signed,
    visible,
    whole,
)
from lmexposure.core import Column, Place, Section, Table
from lmexposure.errors import SettingsError
from lmexposure.studies.exposure.differences import Difference, differences, findings
from lmexposure.studies.exposure.facts import command_of, where_of
from lmexposure.studies.exposure.files import RunFiles
from lmexposure.studies.exposure.parts import Role
from lmexposure.studies.exposure.record import ResultNumbers
from lmexposure.studies.exposure.rows import ClassRow, class_rows
from lmexposure.studies.exposure.tables import compared_columns, how_to_read
from lmexposure.studies.exposure.tables_privacy import claim_lines

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart

_READ: frozenset[Place] = frozenset({"md", "html"})
_SHOWN = ("median", "interval", "p_value", "exact", "guesses")
# Of `MeasureSettings`: what decides how near an estimate comes to the exposure.
_MEASURED = (
    *("estimate", "draws", "extraction", "guesses"),
    *("budget_steps", "budget_seconds", "live_states", "quick"),
)
# Of `ContextRecord`: what decides a log-perplexity, whoever knew it.
_ROWS = {
    "form": "form",
    "turn": "turn",
    "loss": "loss",
    "left": "in front",
    "left_tokens": "tokens in front",
    "right_tokens": "tokens behind",
    "unscored_tokens": "unscored tokens",
    "template_sha256": "chat template",
}
_LONGEST = 60  # characters of what is in front


Runs = Sequence[tuple[str, RunFiles]]


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """A class of a format in one run."""

    run: str
    role: Role
    repetitions: int
    references: int | None  # None where the run has no such format
    cell: ClassRow | None  # None where it has no such class

    @property
    def n(self) -> int:
        return 0 if self.cell is None else self.cell.n


def compared_sections(runs: Runs, *, level: float = 0.95) -> Iterator[Section]:
    """What a reader must know first, each class in each run, differences, how to do it again."""
    _refuse_other_formats(runs)
    if notes := list(_notes(runs)):
        yield Section(id="before", title="What to know before you compare", notes=notes)
    parts = [_classes(name, runs, place) for place, name in enumerate(_common(runs), 1)]
    tables = [part.table for part in parts if part.table is not None]
    yield Section(
        id="exposure",
        title="Exposure",
        text="Median exposure of each class in bits; higher = more memorised. Secrets that a model "
        "never saw have a median of 1 bit, by chance alone.",
        parts=parts,
        notes=how_to_read(tables, level),
        on=_READ,
    )
    rows = differences_of(runs, level)
    yield Section(
        id="differences",
        title=f"Each class compared with {runs[0][0]}",
        said=[] if rows else ["No two runs have a class in common, so none is compared."],
        table=Table(rows, _DIFFERENCES),
        notes=(*_meanings(level), *dict.fromkeys(f"assumes: {row.assumes}" for row in rows)),
        on=_READ,
    )
    yield Section(
        id="again",
        title="How to do it again",
        parts=[
            Section(
                id=f"again-{place}",
                title=name,
                said=(where_of(run),),
                code=command_of(run),
            )
            for place, (name, run) in enumerate(runs, 1)
            if run.result.home is not None
        ],
        on=_READ,
    )


def differences_of(runs: Runs, level: float = 0.95) -> list[Difference]:
    """Each class of each later run against the same class of the first."""
    names = [name for name, _ in runs]
    return differences([run.result for _, run in runs], names, level=level)


def compared_finding(runs: Runs) -> str:
    """Per later run, which leaks more, it or the first, and whether chance explains it."""
    names = [name for name, _ in runs]
    said = (found.sentence for found in findings(names, differences_of(runs)))
    return " ".join(said)


def _refuse_other_formats(runs: Runs) -> None:
    seen: dict[str, tuple[str, RunFiles]] = {}
    for name, run in runs:
        for form in run.result.formats:
            other, before = seen.setdefault(form.name, (name, run))
            what = _differs(before, run, form.name)
            if what:
                raise SettingsError(
                    f"{visible(other)} and {visible(name)} cannot be compared: "
                    f"format {form.name!r} {what}; compare runs of the same formats"
                )
    if not _common(runs):
        held = "; ".join(
            f"{name} has {', '.join(form.name for form in run.result.formats) or 'none'}"
            for name, run in runs
        )
        raise SettingsError(
            f"no two runs have a format in common ({visible(held)}); "
            "compare runs of the same formats"
        )


def _differs(base: RunFiles, other: RunFiles, name: str) -> str | None:
    """What is not the same about a format of two runs."""
    first, second = (run.result.format_named[name].space_size for run in (base, other))
    if first != second:
        return f"has |R| = {first} in the first and {second} in the second"
    if base.manifest is None or other.manifest is None:
        return None
    texts = [run.manifest.formats[name] for run in (base, other) if run.manifest is not None]
    if texts[0].template != texts[1].template:
        return f"is {texts[0].template!r} in the first and {texts[1].template!r} in the second"
    return "has other lists of words" if texts[0].lists != texts[1].lists else None


def _common(runs: Runs) -> list[str]:
    """Names of formats that two runs or more have, in order of appearance."""
    held = Counter(form.name for _, run in runs for form in run.result.formats)
    return [name for name, times in held.items() if times > 1]


def _classes(name: str, runs: Runs, place: int) -> Section:
    """Each class of a format in each run, a row each."""
    forms = [run.result.format_named.get(name) for _, run in runs]
    columns = [
        {} if form is None else {(r.role, r.repetitions): r for r in class_rows(run.result, form)}
        for (_, run), form in zip(runs, forms, strict=True)
    ]
    keys = sorted({key for own in columns for key in own}, key=lambda k: (k[0] != "control", k[1]))
    rows = [
        _Compared(
            run=run,
            role=role,
            repetitions=repetitions,
            references=None if form is None else form.references,
            cell=own.get((role, repetitions)),
        )
        for role, repetitions in keys
        for (run, _), form, own in zip(runs, forms, columns, strict=True)
    ]
    known = next(form for form in forms if form is not None)
    chosen = [(run, list(own.values())) for (run, _), own in zip(runs, columns, strict=True)]

    def chart() -> "Chart | None":
        from lmexposure.studies.exposure.charts_exposure import comparison_chart

        return comparison_chart(name, known.bits, chosen)

    return Section(
        id=f"exposure-{place}",
        title=f"Each class of {name} in each run, exposure in bits",
        chart=chart,
        table=Table(rows, [*_FIRST, *compared_columns(_SHOWN)]),
        notes=tuple(_most_guesses(chosen)),
    )


def _most_guesses(runs: Sequence[tuple[str, Sequence[ClassRow]]]) -> Iterator[str]:
    """How far each search went, for the numbers that it found."""
    for name, rows in runs:
        most = max((found.given for row in rows for found in row.guesses), default=0)
        if most:
            yield f"{LABELS['guesses']}, {name}: within {most:,} of the likeliest fills"


def _notes(runs: Runs) -> Iterator[str]:
    """What a reader must not take for a comparison."""
    (base, first), *others = runs
    for name, run in others:
        if run.result.manifest_sha256 != first.result.manifest_sha256:
            yield (
                f"{name} measured another manifest than {base}: other canaries, so no canary "
                "is compared with itself, and each class is compared as a whole"
            )
        if differ := setting_differences(first.result, run.result):
            yield (
                f"{base} and {name} were not measured alike ({differ}): medians are not "
                "directly comparable, and an exposure counts as higher only where its interval "
                "shows it"
            )
        if differ := context_differences(first.result, run.result):
            yield (
                f"{base} and {name} were scored in other rows ({differ}): a difference may be "
                "one of these rows, and not of what the models memorised; measure both in the rows "
                "of their training"
            )
    common = set(_common(runs))
    for name, run in runs:
        if not any(canary.role == "canary" for canary in run.result.canaries):
            yield f"{name} has no canaries: nothing says what its model memorised"
        own = [form.name for form in run.result.formats if form.name not in common]
        if own:
            yield f"only {name} has {', '.join(own)}: not shown"
        privacy = run.result.privacy
        yield from (
            f"{name}: {line}" for line in claim_lines(None if privacy is None else privacy.claim)
        )


def setting_differences(base: ResultNumbers, other: ResultNumbers) -> str:
    """Which settings of the measurement differ, and in what; "" where none does."""
    pairs = [
        (name.replace("_", " "), getattr(base.settings, name), getattr(other.settings, name))
        for name in _MEASURED
    ]
    pairs.append(("dtype", base.model.dtype, other.model.dtype))
    pairs += [
        (f"references of {name}", form.references, other.format_named[name].references)
        for name, form in base.format_named.items()
        if name in other.format_named
    ]
    return "; ".join(
        f"{name} {_value(first)} and {_value(second)}"
        for name, first, second in pairs
        if first != second
    )


def context_differences(base: ResultNumbers, other: ResultNumbers) -> str:
    """In what the rows differ that canaries were scored in; "" where they do not, or do not say."""
    if base.context is None or other.context is None:
        return ""
    pairs = [
        (words, getattr(base.context, name), getattr(other.context, name))
        for name, words in _ROWS.items()
    ]
    return "; ".join(
        f"{words} {_shown(first)} and {_shown(second)}"
        for words, first, second in pairs
        if first != second
    )


def _shown(value: object) -> str:
    if isinstance(value, str):
        text = repr(value)
        return text if len(text) <= _LONGEST else f"...{text[-_LONGEST:]}"
    return "none" if value is None else str(value)


def _value(value: object) -> str:
    if value is None:
        return "by default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _meanings(level: float) -> Iterator[str]:
    """What the columns of differences mean."""
    yield (
        "exposure in the run less exposure in the first, in bits; above 0 = memorised more than in "
        "the first"
    )
    yield (
        "the same canaries: the median of their differences, p the larger of a sign test's and of "
        "a median test beside the references' differences; others: the difference of both medians, "
        "p of a rank-sum test; either says how often chance alone puts two runs this far apart"
    )
    yield (
        "higher, lower: pairs of canaries whose exposure surely is; open: pairs that lower bounds, "
        "references or draws leave undecided, which interval and p count against a difference"
    )
    yield f"interval: of the median, at {percent(level)}"
    yield (
        "adjusted: p corrected for all classes together (Holm); controls only check the "
        "measurement, and have none"
    )


_FIRST = (
    Column(
        head=LABELS["repetitions"],
        value="repetitions",
        written=lambda row: class_name(row.role, row.repetitions),
        words=True,
    ),
    Column(head=LABELS["run"], value="run", words=True),
    Column(head=LABELS["n"], value="n", shown=whole),
    Column(head=LABELS["references"], value="references", shown=whole),
)
_DIFFERENCES = (
    Column(
        head="class",
        value=lambda row: f"{row.format}, {class_name(row.role, row.repetitions)}",
        words=True,
    ),
    Column(head=LABELS["run"], value="other", words=True),
    Column(head=LABELS["median"], value="median", shown=signed, unit="bits", worse="high"),
    Column(
        head=LABELS["interval"],
        value=lambda row: (row.low, row.high),
        written=lambda row: interval(row.low, row.high),
        unit="bits",
    ),
    Column(head=LABELS["p_value"], value="p_value", shown=probability),
    Column(
        head="adjusted",
        value="p_adjusted",
        written=lambda row: probability(row.p_adjusted),
    ),
    Column(
        head=LABELS["n"],
        value="n",
        written=lambda row: f"{row.n:,} same" if row.paired else f"{row.n:,} and {row.n_base:,}",
    ),
    Column(head="higher", value="higher", shown=whole),
    Column(head="lower", value="lower", shown=whole),
    Column(head="open", value="open", shown=whole),
)
