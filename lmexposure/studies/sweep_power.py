"""How well each kind of canary shows what a training gives away, all at equal cost."""

from typing import Literal, Self

from pydantic import model_validator

from lmexposure._record import Count, NotNegative, Number, Rate, Record, Rows, Share
from lmexposure.statistics import CellRate


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
