"""What is in the files of a run: typed, checked once where it is read, attributes ever after.

Open `result.py` to learn what result.json holds and what must be true in it, `run_record.py` for
run.json; `scores.py` reads the scores of every text, and `run.py` a directory of them all.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.records.provenance import Provenance, utc_now
    from lmexposure.records.result import (
        Bound,
        CanaryResult,
        ClaimCheck,
        ClassSummary,
        Estimate,
        Extraction,
        FormatResult,
        MeasureOptions,
        Model,
        PrimaryBound,
        Privacy,
        PrivacyClass,
        QuantileInterval,
        Result,
        Search,
        SkewNormalFit,
        Validation,
    )
    from lmexposure.records.result_views import FoundShare
    from lmexposure.records.run import Evaluation, RunFiles, open_run
    from lmexposure.records.run_record import RunOptions, RunRecord, TrainingRecord
    from lmexposure.records.score_columns import read_score_file
    from lmexposure.records.scores import Scores
    from lmexposure.records.settings import MeasureSettings, RunSettings
    from lmexposure.records.settings_file import read_settings_file
    from lmexposure.records.training_settings import TrainingSettings
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(
        __name__,
        {
            "provenance": ["Provenance", "utc_now"],
            "result": [
                "Bound",
                "CanaryResult",
                "ClaimCheck",
                "ClassSummary",
                "Estimate",
                "Extraction",
                "FormatResult",
                "MeasureOptions",
                "Model",
                "PrimaryBound",
                "Privacy",
                "PrivacyClass",
                "QuantileInterval",
                "Result",
                "Search",
                "SkewNormalFit",
                "Validation",
            ],
            "result_views": ["FoundShare"],
            "run": ["Evaluation", "RunFiles", "open_run"],
            "run_record": ["RunOptions", "RunRecord", "TrainingRecord"],
            "score_columns": ["read_score_file"],
            "scores": ["Scores"],
            "settings": ["MeasureSettings", "RunSettings"],
            "settings_file": ["read_settings_file"],
            "training_settings": ["TrainingSettings"],
        },
    )

__all__ = [
    "Bound",
    "CanaryResult",
    "ClaimCheck",
    "ClassSummary",
    "Estimate",
    "Evaluation",
    "Extraction",
    "FormatResult",
    "FoundShare",
    "MeasureOptions",
    "MeasureSettings",
    "Model",
    "PrimaryBound",
    "Privacy",
    "PrivacyClass",
    "Provenance",
    "QuantileInterval",
    "Result",
    "RunFiles",
    "RunOptions",
    "RunRecord",
    "RunSettings",
    "Scores",
    "Search",
    "SkewNormalFit",
    "TrainingRecord",
    "TrainingSettings",
    "Validation",
    "open_run",
    "read_score_file",
    "read_settings_file",
    "utc_now",
]
