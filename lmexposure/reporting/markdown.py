"""Reports and comparisons as Markdown for a pull request or a model card, every value escaped."""

from collections.abc import Iterator, Sequence

from lmexposure._style import LABELS, MISSING, bits, class_name, outcome_word, percent, sentence
from lmexposure._text import printable
from lmexposure.core import Answers, Outcome, Verdict, bullets, code, fence, inline, table
from lmexposure.reporting.answers import answers_of
from lmexposure.reporting.beside import memorised_section, white_box_section
from lmexposure.reporting.compare import (
    CompareData,
    ComparedFormat,
    ComparedRun,
    differences_section,
    runs_section,
)
from lmexposure.reporting.data import ClassRow, ReportData, Section
from lmexposure.reporting.kinds import kinds_section
from lmexposure.reporting.privacy import primary_section
from lmexposure.reporting.promise import promise_section
from lmexposure.reporting.sections import (
    base_section,
    class_cells,
    legend,
    most_memorised,
    overview_section,
    trajectory_section,
)

_ONE_SCREEN = 12  # rows; of more, those of the most memorised class of each format are shown


def report_markdown(data: ReportData) -> str:
    """The report as Markdown, every value escaped."""
    parts = [
        f"# {inline(data.title)}: {outcome_word(data.verdict.outcome)}",
        *verdict_shown(data.verdict, data.provenance.line, answers_of(data)),
        *_exposure(data),
        *_privacy(primary_section(data.privacy)),
        *_table_of(promise_section(data.promise)),
        *_table_of(white_box_section(data.promise, data.privacy)),
        *_table_of(kinds_section(data.kinds)),
        *_table_of(memorised_section(data.memorised)),
        *warnings_shown(data.warnings),
        *_secrets(data),
        *commands_shown(data.command, data.where),
    ]
    return printable("\n\n".join(filter(None, parts)) + "\n")


def verdict_shown(verdict: Verdict, provenance: str, answers: Answers) -> Iterator[str]:
    """What was found, how sure that is, and what to do now."""
    yield f"**{inline(verdict.sentence)}**"
    yield inline(provenance)
    tested = [line for line in answers.tested if line.outcome is not Outcome.NOT_TESTED]
    if tested:
        yield "Tested:\n\n" + bullets([f"{line.word}: {line.what}: {line.said}" for line in tested])
    if verdict.untested:
        yield "Not tested:\n\n" + bullets(verdict.untested)
    yield " ".join(answers.sure)
    steps = (f"{n}. {inline(step)}" for n, step in enumerate(answers.steps, start=1))
    yield "What now:\n\n" + "\n".join(steps)


def _exposure(data: ReportData) -> Iterator[str]:
    yield "## Exposure and extraction"
    rows = [(form.name, row) for form in data.formats for row in form.classes]
    if not rows:
        yield "No canaries were measured."
        return
    shown = rows if len(rows) <= _ONE_SCREEN else most_memorised(data.formats)
    overview = overview_section(shown)
    yield section_table(overview)
    yield _how_to_read(overview, rows[0][1].level, [form.bits for form in data.formats])
    yield inline(data.scored)
    for form in data.formats:
        if form.base is not None:
            section = base_section(form, form.base)
            yield f"### {inline(section.title)}"
            yield section_table(section)
            yield inline(". ".join(legend([section], percent(rows[0][1].level)).notes) + ".")
    if data.trajectory:
        checkpoints = trajectory_section(data.trajectory)
        yield f"<details><summary>{inline(checkpoints.title)}</summary>"
        yield section_table(checkpoints)
        yield "</details>"
    if len(shown) < len(rows):
        yield f"<details><summary>All {len(rows)} classes</summary>"
        yield section_table(overview_section(rows))
        yield "</details>"


def _how_to_read(section: Section, level: float, sizes: Sequence[float]) -> str:
    ends = [bits(size, 1) for size in sorted({min(sizes), max(sizes)})]
    lines = [
        "Exposure in bits, higher = more memorised; guessing has a median of 1 bit, and "
        f"{' to '.join(ends)} are the whole secret",
        *legend([section], percent(level)).notes,
        *section.notes,
    ]
    return inline(f"{'. '.join(lines)}.")


def _privacy(section: Section) -> Iterator[str]:
    yield "## Privacy"
    yield f"**{inline(section.title)}**"
    if section.notes:
        yield bullets(section.notes)


def _table_of(section: Section | None) -> Iterator[str]:
    """A section under a heading of its own; nothing where there is none."""
    if section is not None:
        yield f"## {inline(section.title)}"
        yield section_table(section)
        yield bullets(section.notes)


def warnings_shown(warnings: Sequence[str]) -> Iterator[str]:
    """The warnings under a heading of their own; nothing without one."""
    if warnings:
        yield "## Warnings"
        yield bullets(warnings)


def _secrets(data: ReportData) -> Iterator[str]:
    """The secrets, where they were asked for; else nothing."""
    if data.redacted:
        return
    yield "## Secrets"
    yield "**This report holds secrets: it was asked to show them.**"
    yield "<details><summary>Secrets</summary>"
    yield table(
        ("canary", "secret"),
        [
            (code(canary.id), code(canary.secret))
            for form in data.formats
            for canary in form.canaries
            if canary.secret is not None
        ],
        left=2,
    )
    yield "</details>"


def commands_shown(command: str | None, where: str) -> Iterator[str]:
    """The command that does it again, where it is known, and where it is given."""
    if command is not None:
        yield "## Reproduce"
        yield inline(where)
        yield fence(command)


def compare_markdown(data: CompareData) -> str:
    """The comparison as Markdown, every value escaped."""
    parts = [
        f"# Compared: {inline(data.title)}",
        "\n".join(f"- **{inline(found.sentence)}**" for found in data.findings),
        _runs_table(runs_section(data.runs)),
        "\n".join(
            f"- {code(run.name)}: {inline(run.verdict.sentence)} ({inline(run.provenance.line)})"
            for run in data.runs
        ),
        *(part for form in data.formats for part in _format(form, data.runs)),
        *_differences(differences_section(data.differences)),
        "\n".join(f"- {inline(note)}" for note in data.notes),
        *_commands(data.runs),
    ]
    return printable("\n\n".join(filter(None, parts)) + "\n")


def _runs_table(section: Section) -> str:
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
        yield "## Each class compared with the first run"
        yield " ".join(map(sentence, section.notes))
        yield section_table(section)


def _commands(runs: Sequence[ComparedRun]) -> Iterator[str]:
    known = [run for run in runs if run.command is not None]
    if known:
        yield "## Reproduce"
    for run in known:
        yield inline(run.where)
        yield fence(str(run.command))


def section_table(section: Section) -> str:
    """The table of a section; its names are code, and its numbers hold nothing from data."""
    rows = [(*map(code, row[: section.words]), *row[section.words :]) for row in section.rows]
    return table(section.columns, rows, left=section.words)
