"""What every study is: a record that is checked, shown, written and opened alike. Knows no kind."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.core.check import EXIT_CODES, Check, CheckKind, Outcome, Verdict, verdict_of
    from lmexposure.core.markdown import bullets, code, fence, inline, table
    from lmexposure.core.outputs import (
        verdict_json,
        verdict_junit,
        verdict_sarif,
        verdict_summary,
        verdict_text,
    )
    from lmexposure.core.page import environment, filled, filled_page
    from lmexposure.core.thresholds import DEFAULT_GUESSES, PANEL, Thresholds, quantile_pair
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "DEFAULT_GUESSES",
    "EXIT_CODES",
    "PANEL",
    "Check",
    "CheckKind",
    "Outcome",
    "Thresholds",
    "Verdict",
    "bullets",
    "code",
    "environment",
    "fence",
    "filled",
    "filled_page",
    "inline",
    "quantile_pair",
    "table",
    "verdict_json",
    "verdict_junit",
    "verdict_of",
    "verdict_sarif",
    "verdict_summary",
    "verdict_text",
]
