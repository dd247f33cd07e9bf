"""What is in the files of a run: typed, checked once where it is read, attributes ever after.

Open `result.py` to learn what result.json holds and what must be true in it, `run_record.py` for
run.json, `rows_record.py` for rows.json, `sweep_plan.py` and `sweep_result.py` for the files of a
sweep; `scores.py` reads the scores of every text, and `run.py` a directory of them all.
"""

from typing import TYPE_CHECKING

from lmexposure.core import register as _register

if TYPE_CHECKING:
    from lmexposure.studies.canife import (
        Canife,
        CanifeRound,
    )
    from lmexposure.studies.defence_settings import (
        DISTILLATION,
        DP_SGD,
        GOLDFISH,
        HAMP,
        METHODS,
        OF_METHOD,
        PLAIN,
        RELAXLOSS,
        SELENA,
        TAUGHT,
        TRAINING,
    )
    from lmexposure.studies.defences import (
        Defences,
        alike_to,
    )
    from lmexposure.studies.defences_record import (
        DefenceAttack,
        DefenceExposure,
        DefenceRow,
        DefenceSearch,
        DefenceTry,
    )
    from lmexposure.studies.defences_settings import (
        COMPARING,
        FIXED_FOR_DEFENCES,
        DefencesSettings,
        defences_sweep_names,
    )
    from lmexposure.studies.directories import refuse_other_study
    from lmexposure.studies.dp_claim import NOT_COVERED, DpClaim
    from lmexposure.studies.dp_report import PRIVATE_NOTES, DocumentPrivacy, ExPost
    from lmexposure.studies.federated_settings import (
        CANIFE,
        FEDERATED,
        CanifeSettings,
        FederatedSettings,
    )
    from lmexposure.studies.identifiers import (
        IdentifierClaim,
        IdentifierClass,
        IdentifierDifference,
        IdentifierModel,
        IdentifierRank,
        IdentifierRates,
        IdentifierSplit,
        NaturalIdentifiers,
    )
    from lmexposure.studies.result import (
        LEAST_GAIN,
        MOST_SHOWN,
        CheckpointClass,
        ContextRecord,
        MeasureOptions,
        Model,
        Result,
        Validation,
        WitnessResult,
    )
    from lmexposure.studies.result_base import BaseCanary, BaseClass, BaseModelRecord
    from lmexposure.studies.result_classes import (
        ClassKey,
        ClassSummary,
        ExtractionCount,
        GuessCount,
        GuessingBaseline,
        GuessingTest,
        QuantileInterval,
    )
    from lmexposure.studies.result_formats import (
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
    from lmexposure.studies.result_kinds import KindCandidate, KindMembership
    from lmexposure.studies.result_privacy import (
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
    from lmexposure.studies.result_views import FoundShare
    from lmexposure.studies.rows_record import RowsClass, RowsRecord
    from lmexposure.studies.run import (
        Evaluation,
        Measured,
        Provenance,
        RunFiles,
        open_run,
        run_of,
    )
    from lmexposure.studies.run_record import (
        SEVERAL,
        RunOptions,
        RunRecord,
        TrainingRecord,
    )
    from lmexposure.studies.scores import ScoreColumns, Scores, read_score_file, write_score_table
    from lmexposure.studies.setting_words import (
        RARE,
        flag_words,
        named_facts,
        path_word,
        run_settings,
        word,
    )
    from lmexposure.studies.settings import (
        HIDDEN,
        MACHINE,
        MEASURE_SETTINGS,
        MEASURING,
        NAMES_BY_TABLE,
        PANELS,
        PRIVACY,
        QUICK,
        SETTING_NAMES,
        SETTINGS_OF_ROWS,
        MeasureSettings,
        RunSettings,
        read_settings_file,
    )
    from lmexposure.studies.sweep import SweepResult
    from lmexposure.studies.sweep_counterfactual import (
        CounterfactualGroup,
        CounterfactualText,
        InfluentialPair,
        MeansApart,
        SweepCounterfactual,
        SweepInfluence,
    )
    from lmexposure.studies.sweep_kinds import kind_lines
    from lmexposure.studies.sweep_plan import AuditedText, SweepOptions, SweepPlan
    from lmexposure.studies.sweep_power import (
        KindComparison,
        KindPower,
        ShareUtility,
        SweepPower,
        SweepRate,
    )
    from lmexposure.studies.sweep_result import (
        MOST_LOST,
        FailedModel,
        SweepBound,
        SweepCurve,
        SweepEpsilon,
        SweepModel,
        SweepScore,
        SweepText,
        Utility,
        WorstText,
    )
    from lmexposure.studies.sweep_settings import (
        ATTACKS,
        READS,
        SCORES,
        SWEEPING,
        SweepSettings,
    )
    from lmexposure.studies.training_file import TRAINING_SCHEMA, TrainingFile, read_training
    from lmexposure.studies.training_settings import TrainingSettings
    from lmexposure.studies.verbatim import VerbatimRecord
    from lmexposure.studies.verbatim_checks import VERBATIM_CHECKS
    from lmexposure.studies.verbatim_record import (
        ExtractableShare,
        FoundPassage,
        FreeExtraction,
        GroupTest,
        NearWindow,
        Passage,
        RunTest,
        SeenFrom,
        VerbatimDocument,
        VerbatimModel,
        VerbatimPassages,
        VerbatimRule,
        VerbatimRun,
        VerbatimWindows,
    )
    from lmexposure.studies.verbatim_settings import (
        VERBATIM,
        VerbatimSettings,
        verbatim_run_names,
    )
    from lmexposure.studies.white_box import (
        Promise,
        WhiteBoxAudit,
        WhiteBoxBounds,
        inside_checks,
        inside_notes,
        inside_table,
    )
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "ATTACKS",
    "CANIFE",
    "COMPARING",
    "DISTILLATION",
    "DP_SGD",
    "FEDERATED",
    "FIXED_FOR_DEFENCES",
    "GOLDFISH",
    "HAMP",
    "HIDDEN",
    "LEAST_GAIN",
    "MACHINE",
    "MEASURE_SETTINGS",
    "MEASURING",
    "METHODS",
    "MOST_LOST",
    "MOST_SHOWN",
    "NAMES_BY_TABLE",
    "NOT_COVERED",
    "OF_METHOD",
    "PANELS",
    "PLAIN",
    "PRIVACY",
    "PRIVATE_NOTES",
    "QUICK",
    "RARE",
    "READS",
    "RELAXLOSS",
    "SCORES",
    "SELENA",
    "SETTINGS_OF_ROWS",
    "SETTING_NAMES",
    "SEVERAL",
    "SWEEPING",
    "TAUGHT",
    "TRAINING",
    "TRAINING_SCHEMA",
    "VERBATIM",
    "VERBATIM_CHECKS",
    "AreaUnderCurve",
    "AuditedText",
    "BaseCanary",
    "BaseClass",
    "BaseModelRecord",
    "Bound",
    "CanaryResult",
    "Canife",
    "CanifeRound",
    "CanifeSettings",
    "CheckpointClass",
    "ClaimCheck",
    "ClassBounds",
    "ClassKey",
    "ClassSummary",
    "ContextRecord",
    "CounterfactualGroup",
    "CounterfactualText",
    "DefenceAttack",
    "DefenceExposure",
    "DefenceRow",
    "DefenceSearch",
    "DefenceTry",
    "Defences",
    "DefencesSettings",
    "DocumentPrivacy",
    "DpClaim",
    "Estimate",
    "EstimateName",
    "Evaluation",
    "ExPost",
    "ExtractableShare",
    "Extraction",
    "ExtractionCount",
    "FailedModel",
    "FederatedSettings",
    "FormatResult",
    "FoundPassage",
    "FoundShare",
    "FreeExtraction",
    "GroupTest",
    "GuessCount",
    "GuessingBaseline",
    "GuessingTest",
    "IdentifierClaim",
    "IdentifierClass",
    "IdentifierDifference",
    "IdentifierModel",
    "IdentifierRank",
    "IdentifierRates",
    "IdentifierSplit",
    "InfluentialPair",
    "KindCandidate",
    "KindComparison",
    "KindMembership",
    "KindPower",
    "Margin",
    "MeansApart",
    "MeasureOptions",
    "MeasureSettings",
    "Measured",
    "Membership",
    "Method",
    "Model",
    "NaturalIdentifiers",
    "NearWindow",
    "Passage",
    "PrimaryBound",
    "Privacy",
    "PrivacyClass",
    "Promise",
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
    "RunTest",
    "ScoreColumns",
    "Scores",
    "Search",
    "SeenFrom",
    "ShareUtility",
    "SkewNormalFit",
    "SweepBound",
    "SweepCounterfactual",
    "SweepCurve",
    "SweepEpsilon",
    "SweepInfluence",
    "SweepModel",
    "SweepOptions",
    "SweepPlan",
    "SweepPower",
    "SweepRate",
    "SweepResult",
    "SweepScore",
    "SweepSettings",
    "SweepText",
    "TokenProof",
    "TrainingFile",
    "TrainingRecord",
    "TrainingSettings",
    "TruePositiveRate",
    "Utility",
    "Validation",
    "Validity",
    "VerbatimDocument",
    "VerbatimModel",
    "VerbatimPassages",
    "VerbatimRecord",
    "VerbatimRule",
    "VerbatimRun",
    "VerbatimSettings",
    "VerbatimWindows",
    "WhiteBoxAudit",
    "WhiteBoxBounds",
    "WitnessResult",
    "WorstText",
    "alike_to",
    "defences_sweep_names",
    "flag_words",
    "inside_checks",
    "inside_notes",
    "inside_table",
    "kind_lines",
    "named_facts",
    "open_run",
    "path_word",
    "read_score_file",
    "read_settings_file",
    "read_training",
    "refuse_other_study",
    "run_of",
    "run_settings",
    "verbatim_run_names",
    "word",
    "write_score_table",
]

# In the order in which they are listed.
_register("canife", "lmexposure.studies.canife:Canife")
_register("defences", "lmexposure.studies.defences:Defences")
_register("dp_report", "lmexposure.studies.dp_report:DocumentPrivacy")
_register("identifiers", "lmexposure.studies.identifiers:NaturalIdentifiers")
_register("sweep", "lmexposure.studies.sweep:SweepResult", begun="plan.json")
_register("verbatim", "lmexposure.studies.verbatim:VerbatimRecord")
_register("white_box", "lmexposure.studies.white_box:WhiteBoxAudit")
