"""What a sweep measured: parts of sweep.json, and model.json of each of its models.

Epsilon is in nats; TPR, FPR and areas are in [0, 1]; higher = more leaks, everywhere.
"""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from lmexposure._record import (
    BigInteger,
    Count,
    FileRecord,
    Nats,
    NotNegative,
    Number,
    Positive,
    Rate,
    Record,
    Rows,
    Sha256,
    Share,
)
from lmexposure.core import Dated
from lmexposure.errors import ResultError
from lmexposure.statistics import CellRate, EpsilonBound
from lmexposure.studies.exposure.run_record import TrainingResult
from lmexposure.studies.sweep_counterfactual import SweepCounterfactual
from lmexposure.studies.sweep_plan import SweepOptions
from lmexposure.studies.sweep_power import SweepPower

# Of the models, without scores or that learned nothing: of more than that, those that are left may
# not be like the others.
MOST_LOST = 0.1


class SweepModel(FileRecord):
    """model.json: one model of a sweep, written when everything else of it is there."""

    NAME: ClassVar[str] = "model.json"
    FAMILY: ClassVar[str] = "lmexposure.sweep_model"
    VERSION: ClassVar[int] = 1
    ERROR = ResultError
    AGAIN: ClassVar[str] = "remove the model's directory, and the sweep trains it again"

    number: Count  # of the model in its sweep, from 0
    plan_sha256: Sha256  # of the plan that it was trained by
    seed: BigInteger  # of its initial weights and of the order of its training
    scores_sha256: Sha256  # of scores.npz next to it
    training: TrainingResult  # what the training came to
    device: str  # that it was trained on
    versions: dict[str, str]  # of lmexposure, torch and transformers, by name
    seconds: NotNegative  # that training and scoring took


class FailedModel(Record):
    """A model that has no scores."""

    number: Count  # of the model, from 0
    reason: str  # what became of it, as its training said


class Utility(Record):
    """How useful the models are: loss on the same documents, bits a token, lower = better."""

    # mean, sd: over the models; the sd is None of a single one
    mean: NotNegative
    sd: NotNegative | None
    initial: NotNegative  # mean before training
    learned: Count  # models whose training lowered it
    tokens: NotNegative  # that a model was trained on, in the mean
    seconds: NotNegative  # that a model took, in the mean


class SweepCurve(Record):
    """A ROC curve of some points, ascending, with an interval of the TPR where there is one."""

    # fpr, tpr: of the points, shape (P,)
    fpr: Rows[Share]
    tpr: Rows[Share]
    # low, high: of the TPR at each, models as units; empty where there is no interval
    low: Rows[Share]
    high: Rows[Share]

    @model_validator(mode="after")
    def _as_long(self) -> Self:
        if len(self.fpr) != len(self.tpr) or {len(self.low), len(self.high)} - {0, len(self.fpr)}:
            raise ValueError("the columns of a curve are not of one length")
        return self


class SweepScore(Record):
    """How well one score, under one attack, tells texts that were in from those that were not."""

    group: str  # "canaries", "population", or a kind of canaries such as "pin/x1"
    # score, attack: see `SweepSettings`
    score: str
    attack: str
    primary: bool  # whether it was named beforehand; of a group one is
    area: Share | None  # under the ROC curve of all cells; None where no cell has a score
    # area_low, area_high: its interval, models as units; None where there is none
    area_low: Share | None
    area_high: Share | None
    rates: Rows[CellRate]  # TPR at low FPR
    # cells_in, cells_out: that have a score
    cells_in: Count
    cells_out: Count
    cells_missing: Count  # that have none, such as those of LiRA with too few models on a side
    curve: SweepCurve | None  # of the primary ones; None of the others
    notes: Rows[str]  # what is not as it should be


class SweepText(Record):
    """One canary over all models, by its raw primary score."""

    # id, kind: as in the plan
    id: str
    kind: str
    # models_in, models_out: that had it, and that had not
    models_in: Count
    models_out: Count
    # share of the models with it that score strictly above every model without; None where all had
    # it, or none
    tpr: Share | None
    p: Share | None  # how often chance alone gives so high a `tpr`, for this text by itself
    advantage_low: Share  # TPR - FPR is at least this, for all texts of the group at once
    separated: bool  # every model that had it scores above every model that had not
    # mean score of the models with it minus that of the others, in units of the score; None where
    # one side is empty
    difference: Number | None
    # lower bound from this text alone, at the significance of one that was named beforehand; None
    # where coins allow none
    epsilon: Nats | None


class WorstText(Record):
    """The text that gives itself away most, paid for by the number of texts it was chosen from."""

    id: str  # of the text
    among: Positive  # how many it was chosen from
    tpr: Share | None  # as in `SweepText`
    p: Share  # how often chance gives one such among them
    advantage_low: Share  # TPR - FPR is at least this
    separated: bool  # as in `SweepText`
    # on epsilon, at a level that pays for the choice; None where coins allow none
    bound: EpsilonBound | None
    # scores_in, scores_out: its raw primary scores, ascending
    scores_in: Rows[Number]
    scores_out: Rows[Number]


class SweepBound(Record):
    """A lower bound on the epsilon of the training recipe."""

    # "together" (all models at once), "per_model" (the largest of a bound from each model's own
    # coins), "per_canary" (the largest of a bound from each canary's own coins)
    question: Literal["together", "per_model", "per_canary"]
    repetitions: Positive  # of the canaries that it is of
    chosen_from: Positive  # of how many bounds it is the largest, which its significance pays for
    # the bound; its `max_attainable` is the ceiling for these models and canaries
    bound: EpsilonBound


class SweepEpsilon(Record):
    """What is claimed of epsilon."""

    # the bound that was named beforehand, "together" of the fewest repetitions; None where coins
    # allow none, or no canary was audited
    primary: SweepBound | None
    significance: Rate  # of the primary bound; the others have each as much, and not together
    bounds: Rows[SweepBound]  # all, the primary among them
    refused: Rows[str]  # why there are none, or fewer


class SweepNumbers(Dated):
    """What many models say together; `SweepResult` tells it."""

    plan_sha256: Sha256  # of the plan
    manifest_sha256: Sha256  # of the manifest next to it
    matrices_sha256: Sha256  # of matrices.npz next to it
    settings: SweepOptions  # what was asked for
    models: Count  # of which there are scores, among those that can have all canaries
    failed: Rows[FailedModel]  # those that have none, whatever their share
    # canaries, population: texts of that group with coins
    canaries: Count
    population: Count
    validation: Count  # documents that no model saw
    documents: Count  # of the corpus, before insertion
    utility: Utility  # of the models
    scores: Rows[SweepScore]  # group by group, the primary first
    # every canary; the population has no rows of its own but `worst_of_population`
    texts: Rows[SweepText]
    worst: WorstText | None  # of the canaries; None where no canary can be judged
    worst_of_population: WorstText | None  # of the ordinary documents, likewise
    epsilon: SweepEpsilon  # bounds, of canaries alone
    # what each text changes; None where that was not asked
    counterfactual: SweepCounterfactual | None
    power: SweepPower | None  # of each kind of canaries; None of a sweep of one class and one share
    warnings: Rows[str]  # what a reader must know, a sentence each

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if len(self.texts) != self.canaries:
            raise ValueError(f"{len(self.texts)} texts for {self.canaries} canaries")
        groups = {row.group for row in self.scores}
        for group in sorted(groups):
            if sum(row.primary for row in self.scores if row.group == group) != 1:
                raise ValueError(f"group {group!r} has not one primary score")
        if self.worst is not None and self.worst.id not in {text.id for text in self.texts}:
            raise ValueError(f"the worst canary {self.worst.id!r} is none of its texts")
        return self

    @property
    def primary(self) -> dict[str, SweepScore]:
        """The primary score of each group."""
        return {row.group: row for row in self.scores if row.primary}

    @property
    def lost(self) -> int:
        """Models without scores, of those that can have all canaries."""
        return sum(model.number < self.settings.models for model in self.failed)
