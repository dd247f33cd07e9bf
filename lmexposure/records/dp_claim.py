"""What a training with differential privacy promises, and what the promise leaves out."""

from typing import Literal

from lmexposure._record import Count, Delta, Nats, NotNegative, Positive, Record, Rows, Share
from lmexposure._style import nats, short
from lmexposure.records.document_privacy import ExPost
from lmexposure.records.white_box import WhiteBoxBounds

# What no accountant counts; each run of the method says so.
NOT_COVERED = (
    "the search of settings: the claim is of this one training",
    "early stopping and the choice of the checkpoint, which read validation documents that were "
    "not trained on",
    "a tokenizer that was built from the corpus",
    "the number of units, of which the sample rate is made",
    "losses on documents, which the curve of the training and this result show without noise",
    "attacks on floating-point noise, and on a generator that is not cryptographic",
)


class DpClaim(Record):
    """The promise of one training, of (epsilon, delta)-differential privacy.

    Attributes:
        method: of the training.
        sampler: "poisson": each unit is in each step by a coin of its own.
        accountant: that gave epsilon: "prv", or "rdp" where that failed.
        unit: what is added or removed: "document", or the field whose values tell users apart.
        adjacency: which corpora are neighbours.
        epsilon: in nats, lower = more private.
        epsilon_rdp: the same by Renyi divergences, which is never smaller but for rounding.
        delta: of both.
        noise_multiplier: standard deviation of the noise over `clip`.
        clip: largest norm of a unit's gradient in a step.
        sample_rate: of a unit, in each step.
        steps: that were taken.
        units: that there were.
        largest_group: documents of the unit that has most.
        noise_is_given: the noise follows from a seed that someone chose, so that the promise holds
            only against those who do not know it.
        not_covered: what the promise does not speak of.
        ex_post: what the training let out about single units, which is no promise; None: their
            gradients were not measured, or the training has not ended.
        white_box: lower bounds by canaries in the gradients; None: there were none.
    """

    method: Literal["dp-sgd"]
    sampler: Literal["poisson"]
    accountant: Literal["prv", "rdp"]
    unit: str
    adjacency: Literal["add or remove one"]
    epsilon: Nats
    epsilon_rdp: Nats
    delta: Delta
    noise_multiplier: NotNegative
    clip: NotNegative
    sample_rate: Share
    steps: Count
    units: Positive
    largest_group: Positive
    noise_is_given: bool
    not_covered: Rows[str]
    ex_post: ExPost | None = None
    white_box: WhiteBoxBounds | None = None

    def __str__(self) -> str:
        whose = "document" if self.unit == "document" else f"value of {self.unit}"
        return (
            f"epsilon {nats(self.epsilon)} at delta {short(self.delta)} for each of "
            f"{self.units:,} {whose}s after {self.steps:,} steps ({self.accountant.upper()}; by "
            f"RDP {nats(self.epsilon_rdp)}), noise multiplier {short(self.noise_multiplier)}, clip "
            f"{short(self.clip)}, in a step with probability {short(self.sample_rate)}"
        )
