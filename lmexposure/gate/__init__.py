"""What stops a release: thresholds against a result, one verdict, one exit code."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.gate.canife_verdict import check_canife
    from lmexposure.gate.checks import Check, CheckKind, Outcome, unseen_share
    from lmexposure.gate.outputs import (
        verdict_json,
        verdict_junit,
        verdict_sarif,
        verdict_summary,
        verdict_text,
    )
    from lmexposure.gate.sweep_verdict import check_sweep
    from lmexposure.gate.thresholds import PANEL, Thresholds, quantile_pair
    from lmexposure.gate.verbatim_verdict import check_verbatim
    from lmexposure.gate.verdict import CHECK_KINDS, EXIT_CODES, Verdict, check, rows_unknown
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "CHECK_KINDS",
    "EXIT_CODES",
    "PANEL",
    "Check",
    "CheckKind",
    "Outcome",
    "Thresholds",
    "Verdict",
    "check",
    "check_canife",
    "check_sweep",
    "check_verbatim",
    "quantile_pair",
    "rows_unknown",
    "unseen_share",
    "verdict_json",
    "verdict_junit",
    "verdict_sarif",
    "verdict_summary",
    "verdict_text",
]
