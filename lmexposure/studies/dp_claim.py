"""What a training with differential privacy promises, and what the promise leaves out."""

import math
from typing import Literal

from lmexposure._record import Count, Delta, Nats, NotNegative, Positive, Record, Rows, Share
from lmexposure._style import nats, short
from lmexposure.studies.dp_report import ExPost
from lmexposure.studies.white_box import Promise, WhiteBoxBounds

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
    """The promise of one training, of (epsilon, delta)-differential privacy."""

    method: Literal["dp-sgd"]  # of the training
    sampler: Literal["poisson"]  # "poisson": each unit is in each step by a coin of its own
    accountant: Literal["prv", "rdp"]  # that gave epsilon: "prv", or "rdp" where that failed
    unit: str  # what is added or removed: "document", or the field whose values tell users apart
    adjacency: Literal["add or remove one"]  # which corpora are neighbours
    epsilon: Nats  # in nats, lower = more private
    epsilon_rdp: Nats  # the same by Renyi divergences, which is never smaller but for rounding
    delta: Delta  # of both
    noise_multiplier: NotNegative  # standard deviation of the noise over `clip`
    clip: NotNegative  # largest norm of a unit's gradient in a step
    sample_rate: Share  # of a unit, in each step
    steps: Count  # that were taken
    units: Positive  # that there were
    largest_group: Positive  # documents of the unit that has most
    # the noise follows from a seed that someone chose, so that the promise holds only against those
    # who do not know it
    noise_is_given: bool
    not_covered: Rows[str]  # what the promise does not speak of
    # what the training let out about single units, which is no promise; None: their gradients were
    # not measured, or the training has not ended
    ex_post: ExPost | None = None
    # lower bounds by canaries in the gradients; None: there were none
    white_box: WhiteBoxBounds | None = None

    @property
    def stated_epsilon(self) -> float:
        """Epsilon in nats, rounded up as a person would state it: true where the promise is."""
        return math.ceil(self.epsilon * 1000) / 1000

    @property
    def promise(self) -> Promise:
        """What canaries in the gradients are held against."""
        noise = self.noise_multiplier
        return Promise(epsilon=self.epsilon, noise_multiplier=noise, steps=self.steps)

    def __str__(self) -> str:
        whose = "document" if self.unit == "document" else f"value of {self.unit}"
        return (
            f"epsilon {nats(self.epsilon)} at delta {short(self.delta)} for each of "
            f"{self.units:,} {whose}s after {self.steps:,} steps ({self.accountant.upper()}; by "
            f"RDP {nats(self.epsilon_rdp)}), noise multiplier {short(self.noise_multiplier)}, clip "
            f"{short(self.clip)}, in a step with probability {short(self.sample_rate)}"
        )
