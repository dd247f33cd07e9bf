"""What every study is: a record that is checked, shown, written and opened alike. Knows no kind."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure._record import Count, JsonValue, NotNegative, Positive, Record, Rows, Share
    from lmexposure.core.check import (
        CLAIMED_EPSILON,
        EPSILON_LIMIT,
        LIMIT,
        THRESHOLDS,
        Check,
        CheckKind,
        Outcome,
        Thresholds,
        Verdict,
        attainable_outcome,
        doubted,
        interval_outcome,
        met_outcome,
        quantile_pair,
    )
    from lmexposure.core.compare import compare_document
    from lmexposure.core.document import (
        Answers,
        CheckLine,
        Column,
        Document,
        Excerpt,
        Fact,
        Place,
        Section,
        Table,
        facts,
        interval_column,
    )
    from lmexposure.core.lm import Encoded, LanguageModel, Stepping, TokenModel, TokenScores
    from lmexposure.core.outputs import (
        verdict_json,
        verdict_junit,
        verdict_sarif,
        verdict_summary,
        verdict_text,
    )
    from lmexposure.core.registry import OTHERS, kinds, own_records, register
    from lmexposure.core.render import as_csv, as_markdown, code, fence, inline, table
    from lmexposure.core.report import FORMATS, check_formats, write_document, write_report
    from lmexposure.core.study import (
        HOME,
        Dated,
        Number,
        Provenance,
        Study,
        judged,
        kind_of,
        open_study,
        refuse_other_study,
        telling_name,
        utc_now,
    )
    from lmexposure.core.work import REPORTS, Held, Part, Work, claimed, refuse_other_wish
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)
