"""What result.json holds of the base: the model before the training that is judged.

Exposures are in bits, higher = more memorised. Calibrated exposures are by ranks of log-perplexity
minus the base's, so that what any model finds likely is not taken for memorised.
"""

from lmexposure._record import Bits, Count, Number, Positive, Record, Rows, Sha256
from lmexposure.statistics import Estimate, GuessingTest, QuantileInterval
from lmexposure.studies.exposure.classes import ClassKey
from lmexposure.studies.exposure.formats import Role


class BaseCanary(Record):
    """One canary or control under the base."""

    id: str  # as in the manifest
    log_perplexity_bits: Bits  # under the base; lower = likelier before the training
    exposure: Estimate  # under the base, by its rank among the references


class BaseClass(Record):
    """A class of canaries, or the controls of a format, beside the base."""

    # format, role, repetitions: which; a control has repetitions 0
    format: str
    role: Role
    repetitions: Count
    n: Positive  # how many
    exposure: QuantileInterval  # the median under the base, by ranks among the references
    # median of what the training added to each exposure by rank; below 0: it took away
    added: Number
    added_capped: bool  # `added` is a lower bound
    calibrated: QuantileInterval  # the median of calibrated exposures
    calibrated_mean: Number  # their mean; 1.44 where the training left nothing
    capped: Count  # how many calibrated exposures are lower bounds
    gained_bits: Number  # median of the bits by which the training made a canary likelier
    reference_gained_bits: Number  # the same of the references
    guessing_test: GuessingTest  # of the calibrated mean against chance

    @property
    def key(self) -> ClassKey:
        """Which class."""
        return self.format, self.role, self.repetitions

    @property
    def calibrated_capped(self) -> bool:
        """Whether the median of calibrated exposures is a lower bound."""
        return 2 * self.capped >= self.n


class BaseModelRecord(Record):
    """The model before the training that is judged, and what the canaries are under it."""

    path: str  # its directory or name, as in `Model`
    weights_sha256: Sha256  # of its weights
    switched_off: bool  # whether it is the measured model with its adapters switched off
    canaries: Rows[BaseCanary]  # canaries and controls, in the result's order
    classes: Rows[BaseClass]  # in the order of the result's summary
