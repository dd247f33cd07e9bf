"""compare.md: several runs side by side, for a pull request."""

from collections.abc import Iterator, Sequence

from lmexposure._style import (
    LABELS,
    MISSING,
    bits,
    class_name,
    interval,
    nats,
    number,
    outcome_word,
    probability,
    short,
    signed,
)
from lmexposure._text import printable
from lmexposure.reporting.compare import CompareData, ComparedFormat, ComparedRun
from lmexposure.reporting.data import ClassRow
from lmexposure.reporting.markdown_text import code, fence, inline, table
from lmexposure.reporting.pairs import Difference
from lmexposure.reporting.sections import class_cells


def compare_markdown(data: CompareData) -> str:
    """The comparison as Markdown, every value escaped.

    Args:
        data: what `compare_data` gave.
    """
    parts = [
        f"# Compared: {inline(data.title)}",
        "\n".join(f"- **{inline(found.sentence)}**" for found in data.findings),
        _runs(data.runs),
        "\n".join(
            f"- {code(run.name)}: {inline(run.verdict.sentence)} ({inline(run.provenance.line)})"
            for run in data.runs
        ),
        *(part for form in data.formats for part in _format(form, data.runs)),
        *_differences(data.differences),
        "\n".join(f"- {inline(note)}" for note in data.notes),
        *_reproduce(data.runs),
    ]
    return printable("\n\n".join(filter(None, parts)) + "\n")


def _runs(runs: Sequence[ComparedRun]) -> str:
    header = (
        LABELS["run"],
        "verdict",
        LABELS["epsilon_bound"],
        LABELS["delta"],
        LABELS["max_attainable"],
        LABELS["validation_bits"],
    )
    rows = [
        (
            code(run.name),
            outcome_word(run.verdict.outcome),
            nats(run.epsilon),
            short(run.delta),
            nats(run.max_attainable),
            number(run.validation_bits, 3),
        )
        for run in runs
    ]
    legend = (
        "epsilon in nats, higher = less private; validation loss in bits per token, lower = more "
        "useful."
    )
    return f"{table(header, rows, left=2)}\n\n{legend}"


def _format(form: ComparedFormat, runs: Sequence[ComparedRun]) -> Iterator[str]:
    yield f"## {code(form.name)}"
    yield (
        f"Median exposure in bits with its interval; higher = more memorised; guessing has 1, the "
        f"whole secret {bits(form.bits, 1)}. Then p (chance), and secrets found by guessing; "
        "(n/m): guessing alone would find half as many or more."
    )
    yield table(
        [LABELS["repetitions"], *(code(run.name) for run in runs)],
        [[class_name(row.role, row.repetitions), *map(_cell, row.cells)] for row in form.classes],
    )


def _cell(row: ClassRow | None) -> str:
    if row is None:
        return MISSING
    median, ends, p_value, found = class_cells(row, ("median", "interval", "p_value", "guesses"))
    return f"{median} ({ends}), p {p_value}, {found}"


def _differences(rows: Sequence[Difference]) -> Iterator[str]:
    if not rows:
        return
    yield "## Each class held against the first run"
    yield (
        "Exposure under the later run less exposure under the first, in bits; above 0 = the later "
        "run memorised more. The same canaries: the median of their differences, p of a sign test; "
        "others: the difference of both medians, p of a rank-sum test. Interval and p hold what "
        "lower bounds, references and draws leave open; adjusted: so that the p of all classes "
        "hold together (Holm); open: pairs of which they do not tell which is higher."
    )
    header = ("run", "less", "format", "repetitions", "n", "median", "interval", "p_value")
    heads = [LABELS.get(name, name) for name in (*header, "adjusted", "open")]
    yield table(heads, [_difference(row) for row in rows], left=3)


def _difference(row: Difference) -> list[str]:
    return [
        code(row.other),
        code(row.base),
        code(row.format),
        class_name(row.role, row.repetitions),
        f"{row.n:,} same" if row.paired else f"{row.n:,} and {row.n_base:,}",
        signed(row.median),
        interval(row.low, row.high),
        probability(row.p_value),
        probability(row.p_adjusted),
        str(row.open),
    ]


def _reproduce(runs: Sequence[ComparedRun]) -> Iterator[str]:
    known = [run for run in runs if run.command is not None]
    if known:
        yield "## Reproduce"
    for run in known:
        yield inline(run.where)
        yield fence(str(run.command), "sh")
