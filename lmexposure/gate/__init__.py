"""What stops a release: thresholds against a result, one verdict, one exit code."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.gate.chance import unseen
    from lmexposure.gate.judge import check
    from lmexposure.gate.outputs.as_json import verdict_json
    from lmexposure.gate.outputs.as_junit import verdict_junit
    from lmexposure.gate.outputs.as_sarif import verdict_sarif
    from lmexposure.gate.outputs.as_summary import verdict_summary
    from lmexposure.gate.outputs.as_text import verdict_text
    from lmexposure.gate.thresholds import PANEL, Thresholds, quantile_pair
    from lmexposure.gate.verdict import EXIT_CODES, Check, Outcome, Verdict
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "EXIT_CODES",
    "PANEL",
    "Check",
    "Outcome",
    "Thresholds",
    "Verdict",
    "check",
    "quantile_pair",
    "unseen",
    "verdict_json",
    "verdict_junit",
    "verdict_sarif",
    "verdict_summary",
    "verdict_text",
]
