"""The records of a sweep: its plan.json, model.json of each model, and the parts of sweep.json.

Every model of a sweep reads the plan, on whatever machine it is trained; who has it has the coins,
and with the manifest next to it the secrets. Epsilon is in nats; TPR, FPR and areas are in [0, 1];
higher = more leaks, everywhere. Scores of what texts change are minus bits a token, so that texts
of different lengths compare; higher = more likely.
"""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from lmexposure._files import PRIVATE, content_hash, read_bytes
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
from lmexposure.studies.sweep_settings import SweepSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class MeansApart(Record):
    """A mean over the models with a text beside that over the models without it."""

    # mean_in, mean_out: of the score
    mean_in: Number
    mean_out: Number
    difference: Number  # mean_in - mean_out
    # low, high: its interval, for this text by itself
    low: Number
    high: Number


class CounterfactualText(Record):
    """One text over all models."""

    # id, kind: as in the plan
    id: str
    kind: str
    # models_in, models_out: that had it, and that had not
    models_in: Count
    models_out: Count
    # by minus the bits of its secret a token, of a document all its tokens, with Welch's interval;
    # None with fewer than two models on a side
    memorised: MeansApart | None
    # by how many bits the whole secret, or document, became likelier: the log2 of the ratio of the
    # geometric means of its probability; None likewise
    log_ratio: Number | None
    # how often chance gives any text of the group so large a studentised difference; None likewise
    p: Share | None
    # lower bound from this text alone, at a level that pays for all texts of the group; None where
    # coins allow none
    epsilon: Nats | None
    # the shares of models whose greedy tokens are the secret, with Newcombe's interval; None of a
    # document, and with fewer than two models on a side
    reproduced: MeansApart | None


class CounterfactualGroup(Record):
    """The texts of a group, the most memorised first."""

    group: Literal["canaries", "population"]  # "canaries" or "population"
    texts: Rows[CounterfactualText]  # by `memorised`, descending; those without come last
    # for each place in this order, what its text shows in models that did not choose it: the mean
    # of `memorised` in one half of the models, of the text that has this place in the other half;
    # None with too few models
    by_halves: Rows[Number | None]
    # standard deviation of the score between models alike, bits a token, of the median text; None
    # where no text has one
    spread: NotNegative | None

    @model_validator(mode="after")
    def _as_long(self) -> Self:
        if len(self.by_halves) != len(self.texts):
            raise ValueError(f"{len(self.by_halves)} halves for {len(self.texts)} texts")
        return self


class InfluentialPair(Record):
    """What one document changes in the score of another, which no model learned."""

    id: str  # of the document with coins
    held_out: str  # of the other
    # models_in, models_out: that had the first, and that had not
    models_in: Count
    models_out: Count
    # of minus the bits of the other, a token; higher = the other became likelier
    change: MeansApart
    p: Share  # how often chance gives any pair so large a studentised difference, of either sign


class SweepInfluence(Record):
    """Influence of the population on the documents for validation."""

    documents: Positive  # with coins
    held_out: Positive  # that no model learned
    found: Count  # pairs whose p is at most the significance
    pairs: Rows[InfluentialPair]  # some, the least likely by chance first


class SweepCounterfactual(Record):
    """Counterfactual memorisation of all texts with coins, and influence."""

    models: Positive  # whose scores these are
    level: Rate  # of the intervals
    significance: Rate  # of the p-values of a group together, and of the bounds of a group together
    permutations: Positive  # behind each p
    splits: Positive  # of the models into halves
    # canaries, then the population; those without texts are missing
    groups: Rows[CounterfactualGroup]
    # None where no document has coins, none is held out, or the models are too few
    influence: SweepInfluence | None
    notes: Rows[str]  # what is not as it should be

    def group(self, name: str) -> CounterfactualGroup | None:
        """That of this name; None where there is none."""
        return next((group for group in self.groups if group.group == name), None)


class KindPower(Record):
    """One kind of canaries in the models with one share of the canaries."""

    group: str  # the class that is told, such as "new_token/x1" or "pin/x1"
    kind: str  # of `canaries.KINDS`
    share: Share  # of the canaries that can be in these models
    canaries: Count  # of this class that can be
    models: Count  # that there are
    # under the ROC curve of all cells, primary score and attack; None: no cell has a score
    area: Share | None
    # area_low, area_high: its interval, models as units; None where there is none
    area_low: Share | None
    area_high: Share | None
    rate: CellRate  # TPR at the FPR of `SweepPower`
    separated: Count  # canaries that every model with them scores above every model without


class KindComparison(Record):
    """A class beside the first uniform fill of as many repetitions, in models with all canaries."""

    group: str  # the class
    against: str  # that of the uniform fill
    # TPR of the class - TPR of the uniform fill, at the FPR of `SweepPower`; None where one of them
    # cannot be resolved
    difference: Number | None
    # low, high: its interval, models as units, for all comparisons at once; None where there is
    # none
    low: Number | None
    high: Number | None
    # what the interval says: "stronger" lies above 0, "weaker" below, "open" over it, or there is
    # none
    verdict: Literal["stronger", "weaker", "open"]


class ShareUtility(Record):
    """How useful the models with one share of the canaries are."""

    share: Share  # of the canaries that can be in
    models: Count  # that there are
    inserted: NotNegative  # copies of canaries in a model, on average
    bits: NotNegative  # validation loss on average, bits per token, lower = more useful
    sd: NotNegative | None  # of it between models; None of one model
    # `bits` - those of the models without canaries; None where there are none such
    cost: Number | None
    # cost_low, cost_high: its interval; None where there is none
    cost_low: Number | None
    cost_high: Number | None


class SweepPower(Record):
    """Power of kinds at equal cost: as many canaries, insertions and models of each."""

    fpr: Rate  # at which the TPR is told
    level: Rate  # of the intervals
    rows: Rows[KindPower]  # share by share, in each class by class
    # of all other classes with the first uniform fill; none where there is none
    comparisons: Rows[KindComparison]
    # the class of the largest TPR among the models with all canaries; None where none is resolved
    strongest: str | None
    # its TPR is at least this, for all classes at once; None where there is no interval
    strongest_low: Share | None
    utility: Rows[ShareUtility]  # share by share
    notes: Rows[str]  # what is not as it should be, such as classes of unlike numbers of canaries

    @model_validator(mode="after")
    def _named_are_there(self) -> Self:
        groups = {row.group for row in self.rows}
        named = {c.group for c in self.comparisons} | {c.against for c in self.comparisons}
        if (named | {self.strongest} - {None}) - groups:
            raise ValueError("a comparison, or the strongest, is of a class without a row")
        return self


_HIDDEN = ConfigDict(hide_input_in_errors=True)


class AuditedText(Record):
    """A text that has coins and scores, or scores alone."""

    id: str  # "pin/x1/0003" of a canary; "document/0042" of an ordinary document, by its number
    # "canaries"; "partners", copies of near-duplicates that are not audited; "population"; or
    # "validation": no model saw it
    group: Literal["canaries", "partners", "population", "validation"]
    kind: str  # texts that are alike: "pin/x1" of canaries, else the group
    format: str | None  # of a canary; None otherwise
    repetitions: Count  # how often it is in a model that has it; 0 of a text for validation
    # the number of an ordinary document in the corpus before insertion, from 0; None of a canary
    document: Count | None


class SweepPlan(FileRecord):
    """plan.json: texts, coins and settings of a sweep."""

    model_config = _HIDDEN

    NAME: ClassVar[str] = "plan.json"
    FAMILY: ClassVar[str] = "lmexposure.sweep_plan"
    VERSION: ClassVar[int] = 1
    ERROR = ResultError
    AGAIN: ClassVar[str] = "prepare the sweep again, in another directory"
    SECRET: ClassVar[bool] = True

    manifest_sha256: Sha256
    """Of the manifest next to it, whose canaries are the candidates."""
    settings: SweepSettings
    """What was asked for."""
    seed: BigInteger
    """From which the seeds of all trainings follow; it gives away no secret and no coin."""
    tokenizer_sha256: Sha256
    """Of the one tokenizer of all models, as `models.tokenizer_sha256` gives it."""
    texts: Rows[AuditedText]
    """Those with coins and scores, canaries first, then the population; then, with scores alone,
    those for validation.
    """
    varied: Rows[Count]
    """Numbers of further documents that have coins and no scores (`vary` "all")."""
    validation: Rows[Count]
    """Numbers of the documents that every model is validated on, and none learns."""
    contexts: Rows[Count]
    """Numbers of those among them that are the further left contexts of a canary."""
    shares: Rows[Share]
    """For each model, the share of the canaries that can be in it: those that can be in models of a
    share are the first of their class. Of share 1 are the first models, as many as
    `settings.models`, and these alone decide.
    """
    coins: Rows[str] = Field(repr=False)
    """For each model a string of "1" (in) and "0" (out): canaries, partners, population, `varied`.
    """

    @model_validator(mode="after")
    def _agree(self) -> Self:
        width = len(self.scored) + len(self.varied)
        if len(self.coins) != len(self.shares):
            raise ValueError(f"{len(self.coins)} rows of coins for {len(self.shares)} models")
        if self.shares.count(1) != self.settings.models or sorted(self.shares)[::-1] != list(
            self.shares
        ):
            raise ValueError("the shares are not those of the settings, descending")
        for number, row in enumerate(self.coins):
            if len(row) != width or set(row) - {"0", "1"}:
                raise ValueError(f"the coins of model {number} are not {width} times 0 or 1")
        order = ["canaries", "partners", "population", "validation"]
        places = [order.index(text.group) for text in self.texts]
        if places != sorted(places) or len({text.id for text in self.texts}) < len(self.texts):
            raise ValueError(f"its texts are not {', '.join(order)}, in this order, each once")
        return self

    @property
    def scored(self) -> tuple[AuditedText, ...]:
        """The texts that have coins, K of them: canaries, partners, then the population."""
        return tuple(text for text in self.texts if text.group != "validation")

    @property
    def canaries(self) -> tuple[AuditedText, ...]:
        """The first of them."""
        return tuple(text for text in self.texts if text.group == "canaries")

    @property
    def inserted(self) -> tuple[AuditedText, ...]:
        """Canaries and their partners: what was inserted, in the order of the coins."""
        return tuple(text for text in self.texts if text.group in ("canaries", "partners"))

    @property
    def models(self) -> int:
        """How many there are, of all shares."""
        return len(self.shares)

    @cached_property
    def sha256(self) -> str:
        """Of its content: the name of the sweep."""
        return content_hash(self.to_dict())

    def included(self) -> "NDArray[np.bool_]":
        """Which text was in the training of which model, shape (S, K), as `scored`."""
        import numpy as np  # the gate reads sweeps, and computes nothing

        rows = "".join(row[: len(self.scored)] for row in self.coins)
        flat: NDArray[np.bool_] = np.frombuffer(rows.encode(), dtype=np.uint8) == ord("1")
        return flat.reshape(len(self.coins), len(self.scored))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a plan.json, or that of a sweep's directory.

        Raises:
            ResultError: no such file, or none that `sweep --prepare` wrote; it says why.
        """
        path = Path(path)
        path = path / cls.NAME if path.is_dir() else path
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ResultError(
                f"cannot read {path}: {failure.strerror}; prepare the sweep first"
            ) from failure
        return cls.parse(content, path)

    def save(self, path: str | Path) -> None:
        """Write the file, readable by its owner alone.

        Raises:
            FileError: the disk refused.
        """
        self.write(Path(path), mode=PRIVATE)


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
    settings: SweepSettings  # what was asked for
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
