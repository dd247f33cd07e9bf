"""What result.json holds of the base: the model before the training that is judged.

Exposures are in bits, higher = more memorised. Calibrated exposures are by ranks of log-perplexity
minus the base's, so that what any model finds likely is not taken for memorised.
"""

from lmexposure._record import Bits, Count, Number, Positive, Record, Rows, Sha256
from lmexposure.records.result_classes import ClassKey, GuessingTest, QuantileInterval
from lmexposure.records.result_formats import Estimate, Role


class BaseCanary(Record):
    """One canary or control under the base.

    Attributes:
        id: as in the manifest.
        log_perplexity_bits: under the base; lower = likelier before the training.
        exposure: under the base, by its rank among the references.
    """

    id: str
    log_perplexity_bits: Bits
    exposure: Estimate


class BaseClass(Record):
    """A class of canaries, or the controls of a format, beside the base.

    Attributes:
        format, role, repetitions: which; a control has repetitions 0.
        n: how many.
        exposure: the median under the base, by ranks among the references.
        added: median of what the training added to each exposure by rank; below 0: it took away.
        added_capped: `added` is a lower bound.
        calibrated: the median of calibrated exposures.
        calibrated_mean: their mean; 1.44 where the training left nothing.
        capped: how many calibrated exposures are lower bounds.
        gained_bits: median of the bits by which the training made a canary likelier.
        reference_gained_bits: the same of the references.
        guessing_test: of the calibrated mean against chance.
    """

    format: str
    role: Role
    repetitions: Count
    n: Positive
    exposure: QuantileInterval
    added: Number
    added_capped: bool
    calibrated: QuantileInterval
    calibrated_mean: Number
    capped: Count
    gained_bits: Number
    reference_gained_bits: Number
    guessing_test: GuessingTest

    @property
    def key(self) -> ClassKey:
        """Which class."""
        return self.format, self.role, self.repetitions

    @property
    def calibrated_capped(self) -> bool:
        """Whether the median of calibrated exposures is a lower bound."""
        return 2 * self.capped >= self.n


class BaseModelRecord(Record):
    """The model before the training that is judged, and what the canaries are under it.

    Attributes:
        path: its directory or name, as in `Model`.
        weights_sha256: of its weights.
        switched_off: whether it is the measured model with its adapters switched off.
        canaries: canaries and controls, in the result's order.
        classes: in the order of the result's summary.
    """

    path: str
    weights_sha256: Sha256
    switched_off: bool
    canaries: Rows[BaseCanary]
    classes: Rows[BaseClass]
