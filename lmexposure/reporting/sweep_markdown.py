"""The report of a sweep as Markdown for a pull request, every value escaped."""

from collections.abc import Iterator

from lmexposure._style import outcome_word
from lmexposure._text import printable
from lmexposure.core import bullets, inline
from lmexposure.reporting.data import Section
from lmexposure.reporting.markdown import (
    commands_shown,
    section_table,
    verdict_shown,
    warnings_shown,
)
from lmexposure.reporting.sweep_answers import sweep_answers
from lmexposure.reporting.sweep_counterfactual import (
    counterfactual_lines,
    counterfactual_sections,
    left_out,
)
from lmexposure.reporting.sweep_data import SweepReportData
from lmexposure.reporting.sweep_power import power_sections
from lmexposure.reporting.sweep_tables import (
    average_section,
    bounds_section,
    epsilon_line,
    most_leaking,
    texts_section,
    worst_section,
)

_MOST_TEXTS = 20


def sweep_markdown(data: SweepReportData) -> str:
    """The report as Markdown, every value escaped."""
    result = data.result
    parts = [
        f"# {inline(data.title)}: {outcome_word(data.verdict.outcome)}",
        *verdict_shown(data.verdict, data.provenance.line, sweep_answers(data)),
        "## The worst text",
        *_section(worst_section(result)),
        *_texts(data),
        *_changes(data),
        "## On average",
        *_section(average_section(result)),
        *_power(data),
        "## Privacy",
        f"**{inline(epsilon_line(result))}**",
        *_section(bounds_section(result)),
        "## Utility",
        bullets([f"{fact.name}: {fact.value}" for fact in data.utility]),
        *warnings_shown(data.warnings),
        *commands_shown(
            data.command,
            "Such a sweep again, with secrets and coins of its own; CORPUS is the corpus before "
            "insertion.",
        ),
    ]
    return printable("\n\n".join(filter(None, parts)) + "\n")


def _section(section: Section) -> Iterator[str]:
    if section.rows:
        yield inline(section.title) + "."
        yield section_table(section)
    if section.notes:
        yield bullets(section.notes)


def _changes(data: SweepReportData) -> Iterator[str]:
    """What single texts change."""
    found = data.result.counterfactual
    if found is None or not found.groups:
        return
    yield "## What single texts change"
    yield bullets(counterfactual_lines(found))
    more = left_out(found, _MOST_TEXTS)
    for section in counterfactual_sections(found, _MOST_TEXTS):
        yield f"<details><summary>{inline(section.title)}</summary>"
        yield section_table(section)
        yield bullets(section.notes)
        yield "</details>"
    if more:
        yield f"{more:,} less memorised texts are in the CSV file."
    if found.notes:
        yield bullets(found.notes)


def _power(data: SweepReportData) -> Iterator[str]:
    """How much each kind of canary shows; nothing where there is one."""
    if data.result.power is None:
        return
    yield "## Kinds of canaries"
    for section in power_sections(data.result.power):
        yield from _section(section)


def _texts(data: SweepReportData) -> Iterator[str]:
    """The canaries that leak most, folded."""
    texts = most_leaking(data.result.texts)
    if not texts:
        return
    shown = texts_section(texts[:_MOST_TEXTS])
    some = f"The {len(shown.rows)} most leaking of " if len(texts) > _MOST_TEXTS else "All "
    yield f"<details><summary>{some}{len(texts):,} canaries</summary>"
    yield section_table(shown)
    yield bullets(shown.notes)
    yield "</details>"
