"""What each text of a sweep changes: in its own score, and in those of texts that no model learned.

Scores are minus bits a token, so that texts of different lengths compare; higher = more likely.
"""

from typing import Literal, Self

from pydantic import model_validator

from lmexposure._record import Count, Nats, NotNegative, Number, Positive, Rate, Record, Rows, Share


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
