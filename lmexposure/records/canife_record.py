"""canife.json: a federated training with privacy of users, and what canaries saw of its rounds."""

from pathlib import Path
from typing import ClassVar, Self

from pydantic import model_validator

from lmexposure._files import read_bytes
from lmexposure._record import (
    Count,
    Delta,
    FileRecord,
    Nats,
    NotNegative,
    Number,
    Positive,
    Rate,
    Record,
    Rows,
    Sha256,
    Utc,
)
from lmexposure.errors import ResultError


class CanifeRound(Record):
    """An attacked round; epsilons in nats at the training's delta, higher = less private."""

    round: Positive  # its number, from 1; without frozen rounds the first that the canary was in
    loss: NotNegative  # of the model on mock clients before it, nats a token
    # of the canary: 1 less the ratio of its mean squared product with the design pool to that of
    # random texts. 1: nothing in common.
    health: Number
    norm: NotNegative  # of its client's update before the clip
    scores: Rows[float]  # of mock rounds: about 1 with the canary, about 0 without
    coins: Rows[bool]  # whether it was in
    noise: NotNegative | None  # standard deviation of the scores but for the canary's own part
    point: Nats  # epsilon of the round as the source of the method has it; no bound
    mu: NotNegative  # lower bound on the round's; 0 without signal
    epsilon_round: Nats  # of that
    attainable_round: Nats  # the most that `epsilon_round` could have been, of a perfect canary
    noise_at_most: NotNegative | None  # noise multiplier that the bound leaves room for; None: any
    # of the training to here, where noise is as in the last attacked round; no less than a round
    # shows by itself, at the clients' rate
    epsilon_so_far: Nats
    # claimed_round, claimed_so_far: as the noise promises; None: without noise, nothing
    claimed_round: Nats | None
    claimed_so_far: Nats | None
    # as `noise`, of a random text as long as the clip; None: none was scored
    random_noise: NotNegative | None
    random_epsilon_round: Nats | None  # as `epsilon_round`, of that

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if len(self.scores) != len(self.coins):
            raise ValueError(f"{len(self.scores)} scores and {len(self.coins)} coins")
        return self


class CanifeRecord(FileRecord):
    """A federated training, its claim, and its attacked rounds."""

    NAME: ClassVar[str] = "canife.json"
    FAMILY: ClassVar[str] = "lmexposure.canife"
    VERSION: ClassVar[int] = 1
    ERROR = ResultError
    AGAIN: ClassVar[str] = "audit again: lmexposure canife, with the same flags"

    inputs_sha256: Sha256  # of the clients' tokens and of all settings
    clients: Positive  # that took part by their coins
    aside: Count  # clients that took no part: the design pool, and mock rounds
    weights: Positive  # of the model
    rounds: Positive  # of the training
    client_rate: NotNegative  # of a client, in each round
    local_epochs: Positive  # of a client
    local_batch: Positive | None  # rows of a client's step; None: all
    clip: NotNegative  # of a client's update
    noise_multiplier: NotNegative  # of the noise; 0: there was no privacy
    delta: Delta  # of all epsilons
    frozen: bool  # whether rounds were frozen to be attacked
    significance: Rate  # of all bounds together
    attacked: Rows[CanifeRound]  # rounds, in order
    attainable: Nats  # the most that `largest` could have been, with perfect canaries
    losses: Rows[NotNegative]  # on mock clients, before each round and after the last
    measured: Utc  # when, in UTC
    lmexposure: str  # the version

    @model_validator(mode="after")
    def _has_rounds(self) -> Self:
        if not self.attacked:
            raise ValueError("no round was attacked")
        return self

    @property
    def largest(self) -> float:
        """The largest bound on the epsilon of the whole training, in nats."""
        return max(row.epsilon_so_far for row in self.attacked)

    @property
    def claimed(self) -> float | None:
        """Epsilon of the whole training as its noise promises; None without noise."""
        return self.attacked[-1].claimed_so_far

    @property
    def refuting(self) -> CanifeRound | None:
        """The first attacked round that has less noise than is claimed."""
        seen = ((row.noise_at_most, row) for row in self.attacked)
        less = (row for at, row in seen if at is not None and at < self.noise_multiplier)
        return next(less, None)

    @property
    def refuted(self) -> bool:
        """Whether a round has less noise than is claimed, or the training more epsilon."""
        most = self.claimed
        return self.refuting is not None or (most is not None and self.largest > most)

    @property
    def could_refute(self) -> bool:
        """Whether `refuted` could have been so, with perfect canaries."""
        pairs = [(row.attainable_round, row.claimed_round) for row in self.attacked]
        pairs.append((self.attainable, self.claimed))
        return any(claim is not None and most > claim for most, claim in pairs)

    @property
    def learned(self) -> bool:
        """Whether the loss on mock clients fell."""
        return self.losses[-1] < self.losses[0]

    @property
    def hashes(self) -> dict[str, str]:
        """Of what it was made from, for whoever judges it."""
        return {
            "inputs_sha256": self.inputs_sha256,
        }

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a canife.json, or that of its directory."""
        path = Path(path)
        path = path / cls.NAME if path.is_dir() else path
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ResultError(f"cannot read {path}: {failure.strerror}; {cls.AGAIN}") from failure
        return cls.parse(content, path)
