"""defences.json: defences side by side at one utility, each under the attacks that fit it."""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from lmexposure._record import (
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
    Utc,
)
from lmexposure.errors import ResultError


class DefenceTry(Record):
    """One training of the search for a method's settings.

    Attributes:
        value: of the setting that is searched; None where a method has none.
        bits: validation loss, bits a token.
        ratio: of it to that without a defence, on the same documents.
        seconds: that it took.
    """

    value: Number | None
    bits: NotNegative
    ratio: NotNegative
    seconds: NotNegative


class DefenceSearch(Record):
    """How a method's settings were found, on seeds and canaries that the table does not have.

    Attributes:
        knob: the setting that was searched; None where a method has none.
        value: that was chosen.
        tries: in the order in which they were trained.
        reached: whether one of them is within the tolerance of the target.
        why: it was not; None where it was.
    """

    knob: str | None
    value: Number | None
    tries: Rows[DefenceTry]
    reached: bool
    why: str | None


class DefenceAttack(Record):
    """What the strongest of all attacks that were made finds.

    Attributes:
        kind: of the canaries, such as "random_number/x1".
        score, attack: see `SweepSettings`; "kept_tokens" reads the tokens of a secret that carried
            loss.
        among: how many pairs of kind and attack it was chosen from.
        tpr: true-positive rate at the FPR of the comparison; None where it is not resolved.
        low, high: its interval; None where there is none. All intervals of all attacks and methods
            hold together. Of the strongest attack of a method it is that of the largest true rate.
    """

    kind: str
    score: str
    attack: str
    among: Positive
    tpr: Share | None
    low: Share | None
    high: Share | None


class DefenceExposure(Record):
    """Canaries that are in one model several times.

    Attributes:
        repetitions: of each.
        canaries: how many.
        median, low, high: exposure in bits, higher = leaks more, with its interval.
        found: secrets that a search without any of their characters finds.
        by: the search: "best_first" within 10 guesses, "beam" or "greedy"; None: none was made.
    """

    repetitions: Positive
    canaries: Positive
    median: Number | None
    low: Number | None
    high: Number | None
    found: Count
    by: Literal["best_first", "beam", "greedy"] | None


class DefenceRow(Record):
    """One method.

    Attributes:
        name: by which it is asked for.
        meaning: what it does.
        promises_not: what it does not hide.
        search: how its settings were found.
        training: settings of the training beyond those that all have.
        target: multiple of the undefended models' validation loss that it is to have.
        models: that have scores.
        bits, sd: validation loss of these, mean and spread, bits a token.
        ratio: of `bits` to that without a defence, in models with the same seeds and coins.
        ranked: whether that is at the target.
        why: it is not; None where it is.
        population: TPR of ordinary documents, by LiRA; None where there are none.
        population_low, population_high: its interval.
        strongest: of all attacks on canaries; None where none has a number.
        attacks: all of them.
        above_p: how often chance alone puts the ranked defence with the lowest TPR so far below
            this method, model by model on the same canaries, paid for all attacks and defences;
            None of that defence itself, and where nothing is compared.
        worst: id of the canary that gives itself away most.
        worst_p: how often chance gives one such among all canaries.
        exposure: of repeated canaries; None where it was not measured.
        epsilon: largest that a model of the sweep claims, in nats; None: nothing is promised.
        delta: next to it.
        seconds: of a model, training and scores.
    """

    name: str
    meaning: str
    promises_not: str
    search: DefenceSearch
    training: dict[str, str | float | int | bool | None]
    target: NotNegative
    models: Positive
    bits: NotNegative
    sd: NotNegative | None
    ratio: NotNegative
    ranked: bool
    why: str | None
    population: Share | None
    population_low: Share | None
    population_high: Share | None
    strongest: DefenceAttack | None
    attacks: Rows[DefenceAttack]
    above_p: Share | None
    worst: str | None
    worst_p: Share | None
    exposure: DefenceExposure | None
    epsilon: Nats | None
    delta: Rate | None
    seconds: NotNegative

    @model_validator(mode="after")
    def _told(self) -> Self:
        if self.ranked == (self.why is not None):
            raise ValueError(f"{self.name} is ranked, or it is said why not")
        return self


class DefencesRecord(FileRecord):
    """Several defences at one utility.

    Attributes:
        fpr: false-positive rate of all TPRs.
        level: of the intervals.
        tolerance: how far from its target a method may be and still be ranked.
        documents, characters: of the corpus that was read.
        corpus_sha256: of that.
        canaries: of each sweep.
        rows: of the methods, as they were asked for, "none" first.
        failed: methods that have no models, and why.
        forecast_seconds: what was expected before the first training.
        measured: when, in UTC.
        lmexposure: the version.
        warnings: what is not as it should be.
    """

    NAME: ClassVar[str] = "defences.json"
    FAMILY: ClassVar[str] = "lmexposure.defences"
    VERSION: ClassVar[int] = 1
    ERROR = ResultError
    AGAIN: ClassVar[str] = "compare again: lmexposure defences, with the same flags"

    fpr: Rate
    level: Rate
    tolerance: Rate
    documents: Positive
    characters: Positive
    corpus_sha256: Sha256
    canaries: Count
    rows: Rows[DefenceRow]
    failed: dict[str, str]
    forecast_seconds: NotNegative | None
    measured: Utc
    lmexposure: str
    warnings: Rows[str]
