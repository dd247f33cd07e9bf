"""white_box.json: what the noise of a private training leaves of canaries in its gradients."""

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from lmexposure._files import PRIVATE, read_bytes
from lmexposure._record import (
    Count,
    Delta,
    FileRecord,
    Nats,
    NotNegative,
    Positive,
    Rate,
    Record,
    Rows,
    Share,
)
from lmexposure.errors import ResultError
from lmexposure.records.result_privacy import Bound


class WhiteBoxBounds(Record):
    """Lower bounds on epsilon by someone who sees the noisy gradients; all hold together."""

    kind: Literal["hadamard", "dirac"]  # of the directions
    weights: Positive  # dimensions that the directions lie in
    canaries: Count  # that coins were tossed for, once, for the whole training
    included: Count  # of them
    sample_rate: Share  # of an included canary, in each step
    steps: Count  # that were taken
    tosses: Count  # coins of single steps, each for a canary in that step alone
    noise_multiplier: NotNegative  # the least that the optimizer had
    delta: Delta  # of all epsilons
    # by canaries of the whole training, for every private training; None: too few
    one_run: Bound | None
    one_run_gaussian: Bound | None  # by the same, for a Gaussian trade-off; None: too few
    # of a single step that the canary is in; its `mu` counts. None: no such coins.
    step: Bound | None
    noise_at_most: NotNegative | None  # the noise multiplier that `step` leaves room for; None: any
    # epsilon of all steps with that noise, granted that units are sampled at `sample_rate`; of one
    # step, where their noise changed; None: there is no `step`
    composed: Nats | None
    attainable: Nats  # the most that `largest` could have been: had every canary been guessed
    # the least that `noise_at_most` could have been; None: any
    noise_attainable: NotNegative | None
    significance: Rate  # of all bounds together
    assumptions: Rows[str]  # what is taken for granted

    @property
    def largest(self) -> float:
        """The largest bound on the epsilon of the whole training, in nats."""
        bounds = [bound.value for bound in (self.one_run, self.one_run_gaussian) if bound]
        return max([0.0, *bounds, *([] if self.composed is None else [self.composed])])

    def refutes(self, *, epsilon: float, noise_multiplier: float) -> bool:
        """Whether a claim of epsilon, or of the noise that it is made of, cannot be true."""
        return _below(self.noise_at_most, noise_multiplier) or self.largest > epsilon

    def could_refute(self, *, epsilon: float, noise_multiplier: float) -> bool:
        """Whether `refutes` could have said so, had every canary been guessed."""
        return _below(self.noise_attainable, noise_multiplier) or self.attainable > epsilon


def _below(noise: float | None, claimed: float) -> bool:
    return noise is not None and noise < claimed


class WhiteBoxAudit(FileRecord):
    """white_box.json: the bounds, and the scores and coins that they are made of."""

    NAME: ClassVar[str] = "white_box.json"
    FAMILY: ClassVar[str] = "lmexposure.white_box"
    VERSION: ClassVar[int] = 1
    ERROR = ResultError
    AGAIN: ClassVar[str] = "train again with --method dp-sgd --gradient-canaries"
    SECRET: ClassVar[bool] = True

    bounds: WhiteBoxBounds  # on epsilon
    # of each canary: noisy sums along it, over all steps, what is known of the records taken off;
    # in units of the clip, higher = more likely in
    scores: Rows[float]
    coins: Rows[bool]  # whether the canary was in
    step_scores: Rows[float]  # the same of each canary of a single step
    step_coins: Rows[bool]  # whether it was in

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        for name in ("scores", "step_scores"):
            scores, coins = getattr(self, name), getattr(self, name.replace("scores", "coins"))
            if len(scores) != len(coins):
                raise ValueError(f"{len(scores)} {name} and {len(coins)} coins; each has one")
        return self

    @classmethod
    def read(cls, training: str | Path) -> Self:
        """Read the file of a training, or of a run."""
        path = Path(training)
        path = path if path.name == cls.NAME else path / cls.NAME
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ResultError(f"cannot read {path}: {failure.strerror}; {cls.AGAIN}") from failure
        return cls.parse(content, path)

    def save(self, training: Path) -> None:
        """Write the file into the directory of a training, readable by its owner alone."""
        self.write(training / self.NAME, mode=PRIVATE)
