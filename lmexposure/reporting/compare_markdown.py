"""compare.md: several runs side by side, for a pull request."""

from collections.abc import Iterator, Sequence

from lmexposure._style import LABELS, MISSING, bits, class_name, sentence
from lmexposure._text import printable
from lmexposure.reporting.compare import CompareData, ComparedFormat, ComparedRun
from lmexposure.reporting.compare_sections import differences_section, runs_section
from lmexposure.reporting.data import ClassRow, Section
from lmexposure.reporting.markdown_text import code, fence, inline, section_table, table
from lmexposure.reporting.sections import class_cells


def compare_markdown(data: CompareData) -> str:
    """The comparison as Markdown, every value escaped.

    Args:
        data: what `compare_data` gave.
    """
    parts = [
        f"# Compared: {inline(data.title)}",
        "\n".join(f"- **{inline(found.sentence)}**" for found in data.findings),
        _runs(runs_section(data.runs)),
        "\n".join(
            f"- {code(run.name)}: {inline(run.verdict.sentence)} ({inline(run.provenance.line)})"
            for run in data.runs
        ),
        *(part for form in data.formats for part in _format(form, data.runs)),
        *_differences(differences_section(data.differences)),
        "\n".join(f"- {inline(note)}" for note in data.notes),
        *_reproduce(data.runs),
    ]
    return printable("\n\n".join(filter(None, parts)) + "\n")


def _runs(section: Section) -> str:
    legend = (
        "epsilon in nats, higher = less private; validation loss in bits per token, lower = more "
        "useful."
    )
    claims = "\n".join(f"- {inline(note)}" for note in section.notes)
    return "\n\n".join(filter(None, [section_table(section), claims, legend]))


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


def _differences(section: Section) -> Iterator[str]:
    if section.rows:
        yield "## Each class held against the first run"
        yield " ".join(map(sentence, section.notes))
        yield section_table(section)


def _reproduce(runs: Sequence[ComparedRun]) -> Iterator[str]:
    known = [run for run in runs if run.command is not None]
    if known:
        yield "## Reproduce"
    for run in known:
        yield inline(run.where)
        yield fence(str(run.command), "sh")
