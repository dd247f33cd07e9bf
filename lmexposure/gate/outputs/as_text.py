"""The verdict as lines for a terminal."""

from lmexposure._text import visible
from lmexposure.gate.verdict import Check, Outcome, Verdict
from lmexposure.records import Provenance

# What decides is read first.
_ORDER = (Outcome.LEAK, Outcome.INCONCLUSIVE, Outcome.PASS)


def verdict_text(verdict: Verdict, provenance: Provenance) -> str:
    """The sentence, where it comes from, a line for each check, and what was not tested."""
    lines = [visible(verdict.sentence), provenance.line, ""]
    for outcome in _ORDER:
        lines += [_line(check) for check in verdict.checks if _shown(check, outcome)]
    for title, phrases in (("Tested:", verdict.tested), ("Not tested:", verdict.untested)):
        if phrases:
            lines += ["", title, *(f"  {visible(one)}" for one in phrases)]
    return "\n".join(lines)


def _shown(check: Check, outcome: Outcome) -> bool:
    """Of what only had to be in order, a class that is so has no line of its own."""
    in_order = outcome is Outcome.PASS and check.key in ("min_canaries", "scores")
    return check.outcome is outcome and not in_order


def _line(check: Check) -> str:
    where = f" ({visible(check.scope)})" if check.scope else ""
    return f"{check.outcome:<12}  {visible(check.name)}{where}: {visible(check.reason)}"
