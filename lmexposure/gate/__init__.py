"""What stops a release: thresholds against a result, one verdict, one exit code."""

from lmexposure.gate.judge import check_result
from lmexposure.gate.outputs.as_json import verdict_json
from lmexposure.gate.outputs.as_junit import verdict_junit
from lmexposure.gate.outputs.as_sarif import verdict_sarif
from lmexposure.gate.outputs.as_summary import verdict_summary
from lmexposure.gate.outputs.as_text import verdict_text
from lmexposure.gate.thresholds import Thresholds
from lmexposure.gate.verdict import EXIT_CODES, Check, Outcome, Verdict

__all__ = [
    "EXIT_CODES",
    "Check",
    "Outcome",
    "Thresholds",
    "Verdict",
    "check_result",
    "verdict_json",
    "verdict_junit",
    "verdict_sarif",
    "verdict_summary",
    "verdict_text",
]
