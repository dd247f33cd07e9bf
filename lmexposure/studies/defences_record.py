"""What is said of one defence: how it was found, what attacks see of it, what it costs."""

from typing import Literal, Self

from pydantic import model_validator

from lmexposure._record import (
    Count,
    Nats,
    NotNegative,
    Number,
    Positive,
    Rate,
    Record,
    Rows,
    Share,
)


class DefenceTry(Record):
    """One training of the search for a method's settings."""

    value: Number | None  # of the setting that is searched; None where a method has none
    bits: NotNegative  # validation loss, bits a token
    ratio: NotNegative  # of it to that without a defence, on the same documents
    seconds: NotNegative  # that it took


class DefenceSearch(Record):
    """How a method's settings were found, on seeds and canaries that the table does not have."""

    knob: str | None  # the setting that was searched; None where a method has none
    value: Number | None  # that was chosen
    tries: Rows[DefenceTry]  # in the order in which they were trained
    reached: bool  # whether one of them is within the tolerance of the target
    why: str | None  # it was not; None where it was


class DefenceAttack(Record):
    """What the strongest of all attacks that were made finds."""

    kind: str  # of the canaries, such as "random_number/x1"
    # score, attack: see `SweepSettings`; "kept_tokens" reads the tokens of a secret that carried
    # loss
    score: str
    attack: str
    among: Positive  # how many pairs of kind and attack it was chosen from
    # true-positive rate at the FPR of the comparison; None where it is not resolved
    tpr: Share | None
    # low, high: its interval; None where there is none. All intervals of all attacks and methods
    # hold together. Of the strongest attack of a method it is that of the largest true rate.
    low: Share | None
    high: Share | None


class DefenceExposure(Record):
    """Canaries that are in one model several times."""

    repetitions: Positive  # of each
    canaries: Positive  # how many
    # median, low, high: exposure in bits, higher = leaks more, with its interval
    median: Number | None
    low: Number | None
    high: Number | None
    found: Count  # secrets that a search without any of their characters finds
    # the search: "best_first" within 10 guesses, "beam" or "greedy"; None: none was made
    by: Literal["best_first", "beam", "greedy"] | None


class DefenceRow(Record):
    """One method."""

    name: str  # by which it is asked for
    meaning: str  # what it does
    promises_not: str  # what it does not hide
    search: DefenceSearch  # how its settings were found
    # settings of the training beyond those that all have
    training: dict[str, str | float | int | bool | None]
    target: NotNegative  # multiple of the undefended models' validation loss that it is to have
    models: Positive  # that have scores
    # bits, sd: validation loss of these, mean and spread, bits a token
    bits: NotNegative
    sd: NotNegative | None
    # of `bits` to that without a defence, in models with the same seeds and coins
    ratio: NotNegative
    ranked: bool  # whether that is at the target
    why: str | None  # it is not; None where it is
    population: Share | None  # TPR of ordinary documents, by LiRA; None where there are none
    # population_low, population_high: its interval
    population_low: Share | None
    population_high: Share | None
    strongest: DefenceAttack | None  # of all attacks on canaries; None where none has a number
    attacks: Rows[DefenceAttack]  # all of them
    # how often chance alone puts the ranked defence with the lowest TPR so far below this method,
    # model by model on the same canaries, paid for all attacks and defences; None of that defence
    # itself, and where nothing is compared
    above_p: Share | None
    worst: str | None  # id of the canary that gives itself away most
    worst_p: Share | None  # how often chance gives one such among all canaries
    exposure: DefenceExposure | None  # of repeated canaries; None where it was not measured
    # largest that a model of the sweep claims, in nats; None: nothing is promised
    epsilon: Nats | None
    delta: Rate | None  # next to it
    seconds: NotNegative  # of a model, training and scores

    @model_validator(mode="after")
    def _told(self) -> Self:
        if self.ranked == (self.why is not None):
            raise ValueError(f"{self.name} is ranked, or it is said why not")
        return self
