"""What every study is: a record that is checked, shown, written and opened alike. Knows no kind."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure._record import Count, JsonValue, NotNegative, Positive, Record, Rows, Share
    from lmexposure.core.answers import Answers, CheckLine, Fact, answers_of, date_of
    from lmexposure.core.check import (
        EXIT_CODES,
        Check,
        CheckKind,
        Outcome,
        Verdict,
        attainable_outcome,
        verdict_of,
    )
    from lmexposure.core.compare import compare_document
    from lmexposure.core.document import Column, Document, Excerpt, Place, Section, Table, facts
    from lmexposure.core.markdown import bullets, code, fence, inline, table
    from lmexposure.core.outputs import (
        verdict_json,
        verdict_junit,
        verdict_sarif,
        verdict_summary,
        verdict_text,
    )
    from lmexposure.core.page import environment, filled, filled_page
    from lmexposure.core.registry import kinds, own_records, register
    from lmexposure.core.render import as_csv, as_markdown
    from lmexposure.core.report import (
        FORMATS,
        check_formats,
        drawn_files,
        known_by,
        write_document,
        write_files,
        write_report,
    )
    from lmexposure.core.study import (
        Number,
        Study,
        judged,
        kind_at,
        kind_of,
        open_study,
        utc_now,
    )
    from lmexposure.core.thresholds import DEFAULT_GUESSES, PANEL, Thresholds, quantile_pair
    from lmexposure.core.work import Part, Work
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "DEFAULT_GUESSES",
    "EXIT_CODES",
    "FORMATS",
    "PANEL",
    "Answers",
    "Check",
    "CheckKind",
    "CheckLine",
    "Column",
    "Count",
    "Document",
    "Excerpt",
    "Fact",
    "JsonValue",
    "NotNegative",
    "Number",
    "Outcome",
    "Part",
    "Place",
    "Positive",
    "Record",
    "Rows",
    "Section",
    "Share",
    "Study",
    "Table",
    "Thresholds",
    "Verdict",
    "Work",
    "answers_of",
    "as_csv",
    "as_markdown",
    "attainable_outcome",
    "bullets",
    "check_formats",
    "code",
    "compare_document",
    "date_of",
    "drawn_files",
    "environment",
    "facts",
    "fence",
    "filled",
    "filled_page",
    "inline",
    "judged",
    "kind_at",
    "kind_of",
    "kinds",
    "known_by",
    "open_study",
    "own_records",
    "quantile_pair",
    "register",
    "table",
    "utc_now",
    "verdict_json",
    "verdict_junit",
    "verdict_of",
    "verdict_sarif",
    "verdict_summary",
    "verdict_text",
    "write_document",
    "write_files",
    "write_report",
]
