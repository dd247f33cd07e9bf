"""What is in the files of a run: typed, checked once where it is read, attributes ever after.

Open `result.py` to learn what result.json holds and what must be true in it, `run_record.py` for
run.json; `scores.py` reads the scores of every text, and `run.py` a directory of them all.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.records.provenance import Provenance, utc_now
    from lmexposure.records.result import (
        AreaUnderCurve,
        Bound,
        CanaryResult,
        ClaimCheck,
        ClassBounds,
        ClassKey,
        ClassSummary,
        Estimate,
        EstimateName,
        Extraction,
        ExtractionCount,
        FormatResult,
        GuessCount,
        GuessingBaseline,
        GuessingTest,
        Margin,
        MeasureOptions,
        Membership,
        Method,
        Model,
        PrimaryBound,
        Privacy,
        PrivacyClass,
        QuantileInterval,
        Result,
        Role,
        Search,
        SkewNormalFit,
        TokenProof,
        TruePositiveRate,
        Validation,
        Validity,
    )
    from lmexposure.records.result_views import FoundShare
    from lmexposure.records.run import Evaluation, Measured, RunFiles, open_run, run_of
    from lmexposure.records.run_record import SEVERAL, RunOptions, RunRecord, TrainingRecord
    from lmexposure.records.score_columns import ScoreColumns, read_score_file
    from lmexposure.records.scores import Scores, write_score_table
    from lmexposure.records.settings import (
        HIDDEN,
        KNOWN,
        MACHINE,
        MEASURE_SETTINGS,
        MEASURING,
        NAMES_BY_TABLE,
        PANELS,
        PRIVACY,
        QUICK,
        RENAMED,
        MeasureSettings,
        RunSettings,
    )
    from lmexposure.records.settings_file import read_settings_file
    from lmexposure.records.training_settings import TRAINING, TrainingSettings
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "HIDDEN",
    "KNOWN",
    "MACHINE",
    "MEASURE_SETTINGS",
    "MEASURING",
    "NAMES_BY_TABLE",
    "PANELS",
    "PRIVACY",
    "QUICK",
    "RENAMED",
    "SEVERAL",
    "TRAINING",
    "AreaUnderCurve",
    "Bound",
    "CanaryResult",
    "ClaimCheck",
    "ClassBounds",
    "ClassKey",
    "ClassSummary",
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
