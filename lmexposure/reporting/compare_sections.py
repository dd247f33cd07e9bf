"""A comparison of runs in words: sections of text cells for Markdown and the page."""

from collections.abc import Iterator, Sequence

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
from lmexposure.reporting.compare import ComparedFormat, ComparedRun
from lmexposure.reporting.data import Section
from lmexposure.reporting.pairs import Difference
from lmexposure.reporting.privacy_tables import claim_lines
from lmexposure.reporting.sections import class_cells, class_columns

_SHOWN = ("median", "interval", "p_value", "exact", "guesses")
_OF_RUN = ("run", "validity", "epsilon_bound", "delta", "max_attainable", "validation_bits")


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
            "the same canaries: the median of their differences, p of a sign test; others: the "
            "difference of both medians, p of a rank-sum test; either says how often chance alone "
            "parts two runs as far",
            "higher, lower: pairs of canaries whose exposure surely is; open: pairs of which lower "
            "bounds, references or draws do not tell, and interval and p count these against a "
            "difference",
            *(f"interval: of the median, at {percent(row.level)}" for row in rows[:1]),
            "adjusted: so that the p of all classes hold together (Holm); controls check the "
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
