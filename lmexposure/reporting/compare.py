"""Several runs side by side: base against fine-tune, undefended against defended.

Only what can be compared is: the same format with as many secrets. Each later run is compared with
the first, class by class, and a sentence says which of them leaks more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lmexposure._style import (
    LABELS,
    MISSING,
    class_name,
    interval,
    nats,
    number,
    outcome_word,
    percent,
    probability,
    short,
    signed,
    whole,
)
from lmexposure._text import visible
from lmexposure.core import Fact, Thresholds, Verdict
from lmexposure.errors import ResultError, SettingsError
from lmexposure.gate import check
from lmexposure.reporting.build import class_rows
from lmexposure.reporting.data import ClassRow, Section
from lmexposure.reporting.differences import Difference, Finding, differences, findings
from lmexposure.reporting.facts import command_of, model_facts, where_of
from lmexposure.reporting.privacy import claim_lines
from lmexposure.reporting.sections import class_cells, class_columns
from lmexposure.studies import ClaimCheck, FormatResult, Provenance, Result, Role, RunFiles

_SHOWN = ("median", "interval", "p_value", "exact", "guesses")
_OF_RUN = ("run", "validity", "epsilon_bound", "delta", "max_attainable", "validation_bits")
# Of `MeasureOptions`: what decides how near an estimate comes to the exposure.
_MEASURED = (
    *("method", "draws", "extraction", "guesses"),
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


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One run, as the head of its column."""

    name: str  # of the run; made different where two have one name
    verdict: Verdict  # of the gate, with the same thresholds for all
    provenance: Provenance  # which version measured which model, and when
    model: tuple[Fact, ...]  # what was measured
    manifest_sha256: str  # of what was inserted; equal hashes mean the same canaries
    # the primary lower bound, in nats, higher = less private; None where there is none
    epsilon: float | None
    delta: float | None  # at which it holds
    validity: str | None  # the kind of training that it holds for
    max_attainable: float | None  # what a perfect attack would have shown, in nats
    claim: ClaimCheck | None  # what the bound says of a claim; None without one
    # loss in bits per token, lower = more useful; None where it is not known
    validation_bits: float | None
    command: str | None  # what gives the result again; None where it is not known
    where: str  # the directory that it is given in, and what must be there


@dataclass(frozen=True, kw_only=True)
class ComparedClass:
    """One number of repetitions of one format."""

    role: Role  # "canary" or "control"; a control has repetitions 0
    repetitions: int
    # what each run has of it, in the runs' order; None where it has no such class
    cells: tuple[ClassRow | None, ...]


@dataclass(frozen=True, kw_only=True)
class ComparedFormat:
    """One format that two runs or more have."""

    name: str  # of the format
    pattern: str | None  # its text with holes; None where no run has its manifest
    bits: float  # log2 of the size of the randomness space
    space_size: str  # that size, exactly, as text
    # fills that each run compared with; None where it has no such format
    references: tuple[int | None, ...]
    classes: tuple[ComparedClass, ...]  # controls first, then ascending repetitions


@dataclass(frozen=True, kw_only=True)
class CompareData:
    """Everything that a comparison shows."""

    title: str  # names of the runs
    runs: tuple[ComparedRun, ...]  # in the order given; the others are compared with the first
    # those that two runs or more have, in the first run's order
    formats: tuple[ComparedFormat, ...]
    # per later run, which leaks more, it or the first, and whether chance explains it
    findings: tuple[Finding, ...]
    differences: tuple[Difference, ...]  # per later run and class that the first one has too
    notes: tuple[str, ...]  # what could not be compared, or not alike, and why


def compare_data(
    runs: Sequence[RunFiles], *, thresholds: Thresholds | None = None, level: float = 0.95
) -> CompareData:
    """Several runs side by side."""
    if len(runs) < 2:
        raise SettingsError(f"{len(runs)} run to compare; give at least two run directories")
    names = _names(runs)
    _refuse_other_formats(runs, names)
    limits = thresholds or Thresholds()
    rows = differences([run.result for run in runs], names, level=level)
    return CompareData(
        title=" and ".join(names) if len(names) == 2 else ", ".join(names),
        runs=tuple(_run(run, name, limits) for run, name in zip(runs, names, strict=True)),
        formats=tuple(_formats(runs)),
        findings=tuple(findings(names, rows)),
        differences=tuple(rows),
        notes=tuple(_notes(runs, names)),
    )


def _names(runs: Sequence[RunFiles]) -> list[str]:
    """A name for each run; those that share one get a number."""
    names: list[str] = []
    for run in runs:
        name, number = run.name, 1
        while name in names:
            number += 1
            name = f"{run.name} ({number})"
        names.append(name)
    return names


def _refuse_other_formats(runs: Sequence[RunFiles], names: Sequence[str]) -> None:
    seen: dict[str, tuple[str, RunFiles]] = {}
    for run, name in zip(runs, names, strict=True):
        for form in run.result.formats:
            other, before = seen.setdefault(form.name, (name, run))
            what = _differs(before, run, form.name)
            if what:
                raise ResultError(
                    f"{visible(other)} and {visible(name)} cannot be compared: "
                    f"format {form.name!r} {what}; compare runs of the same formats"
                )
    if not any(_common(runs)):
        held = "; ".join(
            f"{name} has {', '.join(form.name for form in run.result.formats) or 'none'}"
            for run, name in zip(runs, names, strict=True)
        )
        raise ResultError(
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


def _common(runs: Sequence[RunFiles]) -> Iterator[str]:
    """Names of formats that two runs or more have, in order of appearance."""
    held = [run.result.format_named for run in runs]
    listed = [form.name for run in runs for form in run.result.formats]
    for name in dict.fromkeys(listed):
        if sum(name in names for names in held) > 1:
            yield name


def _run(run: RunFiles, name: str, thresholds: Thresholds) -> ComparedRun:
    privacy, validation = run.result.privacy, run.result.model.validation
    primary = None if privacy is None else privacy.primary
    return ComparedRun(
        name=name,
        verdict=check(run.result, thresholds),
        provenance=run.provenance,
        model=model_facts(run),
        manifest_sha256=run.result.manifest_sha256,
        epsilon=None if primary is None else primary.value,
        delta=None if primary is None else primary.delta,
        validity=None if primary is None else primary.validity,
        max_attainable=None if privacy is None else privacy.max_attainable,
        claim=None if privacy is None else privacy.claim,
        validation_bits=None if validation is None else validation.validation_bits,
        command=command_of(run),
        where=where_of(run),
    )


def _formats(runs: Sequence[RunFiles]) -> Iterator[ComparedFormat]:
    for name in _common(runs):
        forms = [run.result.format_named.get(name) for run in runs]
        known = next(form for form in forms if form is not None)
        manifests = (run.manifest for run in runs)
        held = (
            manifest for manifest in manifests if manifest is not None and name in manifest.formats
        )
        manifest = next(held, None)
        yield ComparedFormat(
            name=name,
            pattern=None if manifest is None else manifest.formats[name].template,
            bits=known.bits,
            space_size=str(known.space_size),
            references=tuple(None if form is None else form.references for form in forms),
            classes=tuple(_classes(runs, forms)),
        )


def _classes(
    runs: Sequence[RunFiles], forms: Sequence[FormatResult | None]
) -> Iterator[ComparedClass]:
    columns = [
        {} if form is None else {(r.role, r.repetitions): r for r in class_rows(run.result, form)}
        for run, form in zip(runs, forms, strict=True)
    ]
    keys = {key for column in columns for key in column}
    for role, repetitions in sorted(keys, key=lambda key: (key[0] != "control", key[1])):
        yield ComparedClass(
            role=role,
            repetitions=repetitions,
            cells=tuple(column.get((role, repetitions)) for column in columns),
        )


def _notes(runs: Sequence[RunFiles], names: Sequence[str]) -> Iterator[str]:
    """What a reader must not take for a comparison."""
    for run, name in zip(runs[1:], names[1:], strict=True):
        if run.result.manifest_sha256 != runs[0].result.manifest_sha256:
            yield (
                f"{name} measured another manifest than {names[0]}: other canaries, so no canary "
                "is compared with itself, and each class is compared as a whole"
            )
        if differ := setting_differences(runs[0].result, run.result):
            yield (
                f"{names[0]} and {name} were not measured alike ({differ}): medians are not "
                "directly comparable, and an exposure counts as higher only where its interval "
                "shows it"
            )
        if differ := context_differences(runs[0].result, run.result):
            yield (
                f"{names[0]} and {name} were scored in other rows ({differ}): a difference may be "
                "one of these rows, and not of what the models memorised; measure both in the rows "
                "of their training"
            )
    for run, name in zip(runs, names, strict=True):
        if not any(canary.role == "canary" for canary in run.result.canaries):
            yield f"{name} has no canaries: nothing says what its model memorised"
    common = set(_common(runs))
    for run, name in zip(runs, names, strict=True):
        own = [form.name for form in run.result.formats if form.name not in common]
        if own:
            yield f"only {name} has {', '.join(own)}: not shown"


def setting_differences(base: Result, other: Result) -> str:
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


def context_differences(base: Result, other: Result) -> str:
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


def runs_section(runs: Sequence[ComparedRun]) -> Section:
    """Each run's verdict, bound and validation loss; claims as notes."""
    run, *others = (LABELS[name] for name in _OF_RUN)
    return Section(
        title="Verdict and primary bound of each run",
        columns=(run, "verdict", *others),
        rows=tuple(
            (
                run.name,
                outcome_word(run.verdict.outcome),
                run.validity or MISSING,
                nats(run.epsilon),
                short(run.delta),
                nats(run.max_attainable),
                number(run.validation_bits, 3),
            )
            for run in runs
        ),
        words=3,
        notes=tuple(f"{run.name}: {line}" for run in runs for line in claim_lines(run.claim)),
    )


def classes_section(form: ComparedFormat, runs: Sequence[ComparedRun]) -> Section:
    """Each class of a format in each run, a row each."""
    first = (LABELS["repetitions"], LABELS["run"], LABELS["n"], LABELS["references"])
    return Section(
        title=f"Each class of {form.name} in each run, exposure in bits",
        columns=(*first, *class_columns(_SHOWN)),
        rows=tuple(
            (
                class_name(row.role, row.repetitions),
                run.name,
                whole(0 if cell is None else cell.n),
                whole(references),
                *([MISSING] * len(_SHOWN) if cell is None else class_cells(cell, _SHOWN)),
            )
            for row in form.classes
            for run, cell, references in zip(runs, row.cells, form.references, strict=True)
        ),
        words=2,
        notes=tuple(_most_guesses(form, runs)),
    )


def _most_guesses(form: ComparedFormat, runs: Sequence[ComparedRun]) -> Iterator[str]:
    """How far each search went, for the numbers that it found."""
    for place, run in enumerate(runs):
        cells = [row.cells[place] for row in form.classes]
        most = max((found.given for cell in cells if cell for found in cell.guesses), default=0)
        if most:
            yield f"{LABELS['guesses']}, {run.name}: within {most:,} of the likeliest fills"


def differences_section(rows: Sequence[Difference]) -> Section:
    """Each class of each later run against the same class of the first."""
    return Section(
        title="Difference of exposure, class by class",
        columns=(
            "class",
            *(LABELS[name] for name in ("run", "median", "interval", "p_value")),
            "adjusted",
            LABELS["n"],
            "higher",
            "lower",
            "open",
        ),
        rows=tuple(map(_difference, rows)),
        words=2,
        notes=(
            "exposure in the run less exposure in the first, in bits; above 0 = memorised more "
            "than in the first",
            "the same canaries: the median of their differences, p the larger of a sign test's and "
            "of a median test beside the references' differences; others: the difference of both "
            "medians, p of a rank-sum test; either says how often chance alone puts two runs this "
            "far apart",
            "higher, lower: pairs of canaries whose exposure surely is; open: pairs that lower "
            "bounds, references or draws leave undecided, which interval and p count against a "
            "difference",
            *(f"interval: of the median, at {percent(row.level)}" for row in rows[:1]),
            "adjusted: p corrected for all classes together (Holm); controls only check the "
            "measurement, and have none",
        ),
    )


def _difference(row: Difference) -> tuple[str, ...]:
    return (
        f"{row.format}, {class_name(row.role, row.repetitions)}",
        row.other,
        signed(row.median),
        interval(row.low, row.high),
        probability(row.p_value),
        probability(row.p_adjusted),
        f"{row.n:,} same" if row.paired else f"{row.n:,} and {row.n_base:,}",
        whole(row.higher),
        whole(row.lower),
        whole(row.open),
    )
