"""report.md: a report of one screen, for a pull request or a model card."""

from collections.abc import Iterator, Sequence

from lmexposure._text import printable
from lmexposure.gate import Outcome, Verdict
from lmexposure.records import ClaimCheck, Privacy
from lmexposure.reporting.answers import Answers, answers_of
from lmexposure.reporting.data import ClassRow, ReportData
from lmexposure.reporting.figures import (
    class_name,
    found_of,
    interval,
    median_bits,
    number,
    probability,
)
from lmexposure.reporting.markdown_text import code, fence, inline, table

WORDS = {
    Outcome.PASS: "No leak found",
    Outcome.LEAK: "Leaks",
    Outcome.INCONCLUSIVE: "Inconclusive",
}
# What `validity` of a bound means.
_VALIDITY = {
    "any-dp": "every private training (any-dp)",
    "iid-scores": "scores that are independent and alike (iid-scores)",
    "gaussian": "a Gaussian trade-off only (gaussian)",
}
_ONE_SCREEN = 12  # rows; of more, those of the most memorised class of each format are shown
_HEADER = (
    "format",
    "repetitions",
    "canaries",
    "median exposure",
    "interval",
    "p (chance)",
    "found by guessing",
    "found with some revealed",
)


def report_markdown(data: ReportData) -> str:
    """The report as Markdown, every value escaped.

    Args:
        data: what `report_data` gave.
    """
    parts = [
        f"# {inline(data.title)}: {WORDS[data.verdict.outcome].lower()}",
        *_verdict(data.verdict, data.provenance.line),
        *_answers(answers_of(data)),
        *_exposure(data),
        *_privacy(data.privacy),
        *_warnings(data.warnings),
        *_secrets(data),
        *_reproduce(data.command, data.where),
    ]
    return printable("\n\n".join(filter(None, parts)) + "\n")


def _verdict(verdict: Verdict, provenance: str) -> Iterator[str]:
    yield f"**{inline(verdict.sentence)}**"
    yield inline(provenance)
    if verdict.tested:
        yield "Tested:\n\n" + _bullets(verdict.tested)
    if verdict.untested:
        yield "Not tested:\n\n" + _bullets(verdict.untested)


def _answers(answers: Answers) -> Iterator[str]:
    """How sure, and what now; the rest of the answers is the verdict itself."""
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
    shown = rows if len(rows) <= _ONE_SCREEN else _worst(data)
    yield _class_table(shown)
    yield _how_to_read(shown, [one.bits for one in data.formats])
    if len(shown) < len(rows):
        yield f"<details><summary>All {len(rows)} classes</summary>"
        yield _class_table(rows)
        yield "</details>"


def _worst(data: ReportData) -> list[tuple[str, ClassRow]]:
    """Of each format the class with the highest median."""
    return [
        (one.name, max(one.classes, key=lambda row: row.median))
        for one in data.formats
        if one.classes
    ]


def _class_table(rows: Sequence[tuple[str, ClassRow]]) -> str:
    most = max((one.given for _, row in rows for one in row.revealed), default=0)
    return table(
        _HEADER,
        [
            (
                code(name),
                class_name(row.role, row.repetitions),
                str(row.n),
                median_bits(row),
                interval(row.low, row.high),
                probability(row.p_value),
                found_of(row.guesses[-1] if row.guesses else None),
                found_of(next((one for one in row.revealed if one.given == most), None)),
            )
            for name, row in rows
        ],
    )


def _how_to_read(rows: Sequence[tuple[str, ClassRow]], bits: Sequence[float]) -> str:
    level = rows[0][1].level
    given = max((one.given for _, row in rows for one in row.guesses), default=0)
    revealed = max((one.given for _, row in rows for one in row.revealed), default=0)
    space = f"{min(bits):.1f}" if min(bits) == max(bits) else f"{min(bits):.1f} .. {max(bits):.1f}"
    return (
        f"Exposure in bits; higher = more memorised. Guessing has a median of 1 bit; {space} bits "
        f"are the whole secret. Intervals are of the median, at {level:.0%}. p (chance): how often "
        "chance alone gives such a mean. "
        + (f"Found by guessing: within {given:,} of the likeliest fills. " if given else "")
        + (f"Some revealed: {revealed} characters. " if revealed else "")
        + "(n/m): guessing alone would find half as many or more."
    )


def _privacy(privacy: Privacy | None) -> Iterator[str]:
    yield "## Privacy"
    lines = privacy_lines(privacy)
    yield lines[0]
    if lines[1:]:
        yield "\n".join(f"- {line}" for line in lines[1:])


def privacy_lines(privacy: Privacy | None) -> list[str]:
    """The bound to quote, then its conditions, as Markdown.

    Args:
        privacy: of a result; None where it has none.
    """
    if privacy is None:
        return ["No bound on epsilon: the result holds none."]
    bound = privacy.primary
    if bound is None:
        return ["No bound on epsilon: no class has canaries on both sides."]
    where = f"repetitions {bound.repetitions} of {_formats(bound.formats)}"
    lines = [
        f"**epsilon ≥ {number(bound.value, 3)}** nats at delta {bound.delta:.3g}, a lower bound "
        f"({inline(bound.method)}; {where}; {inline(bound.adjacency)}); higher = less private.",
        f"holds for {_VALIDITY.get(bound.validity, inline(bound.validity))}, at significance "
        f"{bound.significance:.3g}; all bounds together at {privacy.significance:g}",
    ]
    if privacy.max_attainable is not None:
        lines.append(
            f"a perfect attack on so many canaries would have shown {privacy.max_attainable:.3f}"
        )
    lines += [f"assumes: {inline(line)}" for line in bound.assumptions]
    lines += [f"note: {inline(line)}" for line in privacy.notes]
    return lines + _claim(privacy.claim)


def _formats(names: Sequence[str]) -> str:
    return ", ".join(map(code, names)) if len(names) < 4 else f"{len(names)} formats"


def _claim(claim: ClaimCheck | None) -> list[str]:
    if claim is None:
        return ["no epsilon was claimed"]
    said = f"epsilon {claim.claimed_epsilon:g} at delta {claim.claimed_delta:g}"
    return [f"claim of {said}: **{inline(claim.verdict)}**: {inline(claim.reason)}"]


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
