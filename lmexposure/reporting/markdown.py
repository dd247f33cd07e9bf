"""report.md: a report of one screen, for a pull request or a model card."""

from collections.abc import Iterator, Sequence

from lmexposure._style import bits, outcome_word, percent
from lmexposure._text import printable
from lmexposure.gate import Outcome, Verdict
from lmexposure.reporting.answers import Answers, answers_of
from lmexposure.reporting.data import ReportData, Section
from lmexposure.reporting.markdown_text import code, fence, inline, section_table, table
from lmexposure.reporting.privacy_tables import primary_section
from lmexposure.reporting.sections import legend, most_memorised, overview_section

_ONE_SCREEN = 12  # rows; of more, those of the most memorised class of each format are shown


def report_markdown(data: ReportData) -> str:
    """The report as Markdown, every value escaped.

    Args:
        data: what `report_data` gave.
    """
    parts = [
        f"# {inline(data.title)}: {outcome_word(data.verdict.outcome)}",
        *_verdict(data.verdict, data.provenance.line, answers_of(data)),
        *_exposure(data),
        *_privacy(primary_section(data.privacy)),
        *_warnings(data.warnings),
        *_secrets(data),
        *_reproduce(data.command, data.where),
    ]
    return printable("\n\n".join(filter(None, parts)) + "\n")


def _verdict(verdict: Verdict, provenance: str, answers: Answers) -> Iterator[str]:
    """What was found, how sure that is, and what to do now."""
    yield f"**{inline(verdict.sentence)}**"
    yield inline(provenance)
    tested = [line for line in answers.tested if line.outcome is not Outcome.NOT_TESTED]
    if tested:
        yield "Tested:\n\n" + _bullets([f"{one.word}: {one.what}: {one.said}" for one in tested])
    if verdict.untested:
        yield "Not tested:\n\n" + _bullets(verdict.untested)
    yield " ".join(answers.sure)
    steps = (f"{n}. {inline(step)}" for n, step in enumerate(answers.steps, start=1))
    yield "What now:\n\n" + "\n".join(steps)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {inline(line)}" for line in lines)


def _exposure(data: ReportData) -> Iterator[str]:
    yield "## Exposure and extraction"
    rows = [(one.name, row) for one in data.formats for row in one.classes]
    if not rows:
        yield "No canaries were measured."
        return
    shown = rows if len(rows) <= _ONE_SCREEN else most_memorised(data.formats)
    overview = overview_section(shown)
    yield section_table(overview)
    yield _how_to_read(overview, rows[0][1].level, [form.bits for form in data.formats])
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
        yield _bullets(section.notes)


def _warnings(warnings: Sequence[str]) -> Iterator[str]:
    if warnings:
        yield "## Warnings"
        yield _bullets(warnings)


def _secrets(data: ReportData) -> Iterator[str]:
    """The secrets, where somebody asked for them; else nothing."""
    if data.redacted:
        return
    yield "## Secrets"
    yield "**This report holds secrets: it was asked to show them.**"
    yield "<details><summary>Secrets</summary>"
    yield table(
        ("canary", "secret"),
        [
            (code(one.id), code(one.secret))
            for form in data.formats
            for one in form.canaries
            if one.secret is not None
        ],
        left=2,
    )
    yield "</details>"


def _reproduce(command: str | None, where: str) -> Iterator[str]:
    if command is not None:
        yield "## Reproduce"
        yield inline(where)
        yield fence(command, "sh")
