"""What is in the files of a run: typed, checked once where it is read, attributes ever after.

Open `result.py` to learn what result.json holds and what must be true in it, `run_record.py` for
run.json, `rows_record.py` for rows.json; `scores.py` reads the scores of every text, and `run.py` a
directory of them all.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.records.result import (
        MOST_SHOWN,
        CheckpointClass,
        ContextRecord,
        MeasureOptions,
        Model,
        Result,
        Validation,
    )
    from lmexposure.records.result_base import BaseCanary, BaseClass, BaseModelRecord
    from lmexposure.records.result_classes import (
        ClassKey,
        ClassSummary,
        ExtractionCount,
        GuessCount,
        GuessingBaseline,
        GuessingTest,
        QuantileInterval,
    )
    from lmexposure.records.result_formats import (
        CanaryResult,
        Estimate,
        EstimateName,
        Extraction,
        FormatResult,
        Margin,
        Method,
        Role,
        Search,
        SkewNormalFit,
        TokenProof,
    )
    from lmexposure.records.result_privacy import (
        AreaUnderCurve,
        Bound,
        ClaimCheck,
        ClassBounds,
        Membership,
        PrimaryBound,
        Privacy,
        PrivacyClass,
        TruePositiveRate,
        Validity,
    )
    from lmexposure.records.result_views import FoundShare
    from lmexposure.records.rows_record import RowsClass, RowsRecord
    from lmexposure.records.run import (
        Evaluation,
        Measured,
        Provenance,
        RunFiles,
        open_run,
        run_of,
    )
    from lmexposure.records.run_record import (
        SEVERAL,
        RunOptions,
        RunRecord,
        TrainingRecord,
        utc_now,
    )
    from lmexposure.records.scores import ScoreColumns, Scores, read_score_file, write_score_table
    from lmexposure.records.settings import (
        HIDDEN,
        MACHINE,
        MEASURE_SETTINGS,
        MEASURING,
        NAMES_BY_TABLE,
        OLD_SETTING_NAMES,
        PANELS,
        PRIVACY,
        QUICK,
        SETTING_NAMES,
        MeasureSettings,
        RunSettings,
        read_settings_file,
    )
    from lmexposure.records.training_settings import TRAINING, TrainingSettings
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "HIDDEN",
    "MACHINE",
    "MEASURE_SETTINGS",
    "MEASURING",
    "MOST_SHOWN",
    "NAMES_BY_TABLE",
    "OLD_SETTING_NAMES",
    "PANELS",
    "PRIVACY",
    "QUICK",
    "SETTING_NAMES",
    "SEVERAL",
    "TRAINING",
    "AreaUnderCurve",
    "BaseCanary",
    "BaseClass",
    "BaseModelRecord",
    "Bound",
    "CanaryResult",
    "CheckpointClass",
    "ClaimCheck",
    "ClassBounds",
    "ClassKey",
    "ClassSummary",
    "ContextRecord",
    "Estimate",
    "EstimateName",
    "Evaluation",
    "Extraction",
    "ExtractionCount",
    "FormatResult",
    "FoundShare",
    "GuessCount",
    "GuessingBaseline",
    "GuessingTest",
    "Margin",
    "MeasureOptions",
    "MeasureSettings",
    "Measured",
    "Membership",
    "Method",
    "Model",
    "PrimaryBound",
    "Privacy",
    "PrivacyClass",
    "Provenance",
    "QuantileInterval",
    "Result",
    "Role",
    "RowsClass",
    "RowsRecord",
    "RunFiles",
    "RunOptions",
    "RunRecord",
    "RunSettings",
    "ScoreColumns",
    "Scores",
    "Search",
    "SkewNormalFit",
    "TokenProof",
    "TrainingRecord",
    "TrainingSettings",
    "TruePositiveRate",
    "Validation",
    "Validity",
    "open_run",
    "read_score_file",
    "read_settings_file",
    "run_of",
    "utc_now",
    "write_score_table",
]
