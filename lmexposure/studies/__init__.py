"""What is in the files of a run: typed, checked once where it is read, attributes ever after.

Open `exposure/record.py` to learn what result.json holds and what must be true in it,
`exposure/run_record.py` for run.json and rows.json, `sweep_record.py` for the files of a sweep;
`exposure/scores.py` reads the scores of every text, and `exposure/files.py` a run's directory.
"""

from typing import TYPE_CHECKING

from lmexposure.core import OTHERS as _OTHERS
from lmexposure.core import register as _register

if TYPE_CHECKING:
    from lmexposure.studies.canife import Canife, CanifeRound
    from lmexposure.studies.defences import (
        DefenceAttack,
        DefenceExposure,
        DefenceRow,
        Defences,
        DefenceSearch,
        DefenceTry,
        alike_to,
    )
    from lmexposure.studies.dp import NOT_COVERED, DocumentPrivacy, DpClaim
    from lmexposure.studies.exposure.files import Evaluation, RunFiles, read_look
    from lmexposure.studies.exposure.model_card import card_with_results, save_card
    from lmexposure.studies.exposure.parts import (
        BaseCanary,
        BaseClass,
        BaseModelRecord,
        CanaryResult,
        ClassSummary,
        EstimateName,
        Extraction,
        ExtractionCount,
        FormatResult,
        GuessCount,
        KindCandidate,
        KindMembership,
        Margin,
        OtherEstimate,
        Role,
        Search,
        SkewNormalFit,
        TokenProof,
    )
    from lmexposure.studies.exposure.record import (
        LEAST_GAIN,
        MOST_SHOWN,
        CheckpointClass,
        ContextRecord,
        Model,
        Validation,
        WitnessResult,
    )
    from lmexposure.studies.exposure.result import Result
    from lmexposure.studies.exposure.run_record import (
        SEVERAL,
        TRAINING_SCHEMA,
        RowsClass,
        RowsRecord,
        RunRecord,
        TrainingFile,
        TrainingResult,
        read_training,
    )
    from lmexposure.studies.exposure.scores import (
        ScoreColumns,
        Scores,
        read_score_file,
        write_score_table,
    )
    from lmexposure.studies.exposure.tables import privacy_sections
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
    from lmexposure.studies.setting_words import (
        FLAGS,
        flag_words,
        flags_of,
        run_settings,
        set_words,
        settings_for,
        word,
    )
    from lmexposure.studies.settings import (
        HIDDEN,
        IDENTIFIERS,
        MACHINE,
        MEASURE_SETTINGS,
        MEASURING,
        PRIVACY,
        REPETITIONS,
        SETTINGS_OF_ROWS,
        VERBATIM,
        IdentifierSettings,
        MeasureSettings,
        RunSettings,
        VerbatimSettings,
    )
    from lmexposure.studies.sweep import SweepResult
    from lmexposure.studies.sweep_checks import too_few_models
    from lmexposure.studies.sweep_record import (
        MOST_LOST,
        AuditedText,
        CounterfactualGroup,
        CounterfactualText,
        FailedModel,
        InfluentialPair,
        KindComparison,
        KindPower,
        MeansApart,
        ShareUtility,
        SweepBound,
        SweepCounterfactual,
        SweepCurve,
        SweepEpsilon,
        SweepInfluence,
        SweepModel,
        SweepPlan,
        SweepPower,
        SweepScore,
        SweepText,
        Utility,
        WorstText,
    )
    from lmexposure.studies.sweep_settings import (
        ATTACKS,
        COMPARING,
        MOST_POPULATION,
        POPULATION_SHARE,
        READS,
        SCORES,
        SWEEPING,
        DefencesSettings,
        SweepSettings,
    )
    from lmexposure.studies.training_settings import (
        CANIFE,
        DISTILLATION,
        DP_SGD,
        FEDERATED,
        GOLDFISH,
        HAMP,
        OF_METHOD,
        PLAIN,
        RELAXLOSS,
        SELENA,
        TRAINING,
        CanifeSettings,
        CanifeStudySettings,
        FederatedSettings,
        TrainingSettings,
    )
    from lmexposure.studies.verbatim import VerbatimRecord
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
        VerbatimRun,
        VerbatimWindows,
    )
    from lmexposure.studies.white_box import WhiteBoxAudit, WhiteBoxBounds
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)


# In the order in which they are listed.
_register("canife", "lmexposure.studies.canife:Canife")
_register("defences", "lmexposure.studies.defences:Defences")
_register("dp_report", "lmexposure.studies.dp:DocumentPrivacy", part=True)
_register("identifiers", "lmexposure.studies.identifiers:NaturalIdentifiers")
_register("result", "lmexposure.studies.exposure.result:Result", begun="run.json")
_register("sweep", "lmexposure.studies.sweep:SweepResult", begun="plan.json")
_register("verbatim", "lmexposure.studies.verbatim:VerbatimRecord")
_register("white_box", "lmexposure.studies.white_box:WhiteBoxAudit", part=True)
_OTHERS.update({"training.json": "a training", "checkpoint.pt": "a training"})
