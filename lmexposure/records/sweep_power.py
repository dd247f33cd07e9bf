"""How well each kind of canary shows what a training gives away, all at equal cost."""

from typing import Literal, Self

from pydantic import model_validator

from lmexposure._record import Count, NotNegative, Number, Rate, Record, Rows, Share


class SweepRate(Record):
    """TPR at a FPR, over the cells (model, text) of a group.

    Attributes:
        fpr: false-positive rate allowed.
        value: the TPR; None where these cells cannot resolve the FPR.
        low, high: its interval, for which models are the units; None where there is none.
        note: why there is no number, and how many models it takes; None where there is one.
    """

    fpr: Rate
    value: Share | None
    low: Share | None
    high: Share | None
    note: str | None

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        if self.value is None and self.note is None:
            raise ValueError(f"the TPR at FPR {self.fpr:g} is missing, and no note says why")
        return self


class KindPower(Record):
    """One kind of canaries in the models with one share of the canaries.

    Attributes:
        group: the class that is told, such as "new_token/x1" or "pin/x1".
        kind: of `canaries.KINDS`.
        share: of the canaries that can be in these models.
        canaries: of this class that can be.
        models: that there are.
        area: under the ROC curve of all cells, primary score and attack; None: no cell has a score.
        area_low, area_high: its interval, models as units; None where there is none.
        rate: TPR at the FPR of `SweepPower`.
        separated: canaries that every model with them scores above every model without.
    """

    group: str
    kind: str
    share: Share
    canaries: Count
    models: Count
    area: Share | None
    area_low: Share | None
    area_high: Share | None
    rate: SweepRate
    separated: Count


class KindComparison(Record):
    """A class beside the first uniform fill of as many repetitions, in models with all canaries.

    Attributes:
        group: the class.
        against: that of the uniform fill.
        difference: TPR of the class - TPR of the uniform fill, at the FPR of `SweepPower`; None
            where one of them cannot be resolved.
        low, high: its interval, models as units, for all comparisons at once; None where there is
            none.
        verdict: what the interval says: "stronger" lies above 0, "weaker" below, "open" over it, or
            there is none.
    """

    group: str
    against: str
    difference: Number | None
    low: Number | None
    high: Number | None
    verdict: Literal["stronger", "weaker", "open"]


class ShareUtility(Record):
    """How useful the models with one share of the canaries are.

    Attributes:
        share: of the canaries that can be in.
        models: that there are.
        inserted: copies of canaries in a model, on average.
        bits: validation loss on average, bits per token, lower = more useful.
        sd: of it between models; None of one model.
        cost: `bits` - those of the models without canaries; None where there are none such.
        cost_low, cost_high: its interval; None where there is none.
    """

    share: Share
    models: Count
    inserted: NotNegative
    bits: NotNegative
    sd: NotNegative | None
    cost: Number | None
    cost_low: Number | None
    cost_high: Number | None


class SweepPower(Record):
    """Power of kinds at equal cost: as many canaries, insertions and models of each.

    Attributes:
        fpr: at which the TPR is told.
        level: of the intervals.
        rows: share by share, in each class by class.
        comparisons: of all other classes with the first uniform fill; none where there is none.
        strongest: the class of the largest TPR among the models with all canaries; None where none
            is resolved.
        strongest_low: its TPR is at least this, for all classes at once; None where there is no
            interval.
        utility: share by share.
        notes: what is not as it should be, such as classes of unlike numbers of canaries.
    """

    fpr: Rate
    level: Rate
    rows: Rows[KindPower]
    comparisons: Rows[KindComparison]
    strongest: str | None
    strongest_low: Share | None
    utility: Rows[ShareUtility]
    notes: Rows[str]

    @model_validator(mode="after")
    def _named_are_there(self) -> Self:
        groups = {row.group for row in self.rows}
        named = {c.group for c in self.comparisons} | {c.against for c in self.comparisons}
        if (named | {self.strongest} - {None}) - groups:
            raise ValueError("a comparison, or the strongest, is of a class without a row")
        return self
