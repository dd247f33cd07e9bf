"""The verdict as Markdown, for the summary of a step in GitHub Actions or a pull request."""

import re

from lmexposure._style import outcome_word
from lmexposure._text import visible
from lmexposure.gate.verdict import Check, Outcome, Verdict
from lmexposure.records import Provenance

_ORDER = (Outcome.LEAK, Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.NOT_TESTED)
# Whatever could begin a link, an image, a cell, a formula or emphasis.
_MARKUP = re.compile(r"([\\`*_\[\]#|~$])")


def verdict_summary(verdict: Verdict, provenance: Provenance) -> str:
    """A heading, the sentence, where it comes from, a table of checks, what was not tested."""
    lines = [
        f"## lmexposure: {outcome_word(verdict.outcome)}",
        "",
        _escaped(verdict.sentence),
        "",
        _escaped(provenance.line),
        "",
        "| outcome | check | of | why |",
        "| --- | --- | --- | --- |",
    ]
    for outcome in _ORDER:
        lines += [_row(check) for check in verdict.checks if check.outcome is outcome]
    if verdict.untested:
        lines += ["", "Not tested:", "", *(f"- {_escaped(one)}" for one in verdict.untested)]
    return "\n".join(lines) + "\n"


def _row(check: Check) -> str:
    alarming = check.outcome in (Outcome.LEAK, Outcome.INCONCLUSIVE)
    shown = f"**{check.outcome}**" if alarming else str(check.outcome)
    cells = [shown, *(_escaped(text) for text in (check.name, check.scope, check.reason))]
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is; names of people are not called."""
    plain = visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(r"\\\1", plain).replace("@", "&#64;").replace("://", "&#58;//")
