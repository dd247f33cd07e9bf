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
    """An attacked round; epsilons in nats at the training's delta, higher = less private.

    Attributes:
        round: its number, from 1; without frozen rounds the first that the canary was in.
        loss: of the model on mock clients before it, nats a token.
        health: of the canary: 1 less the ratio of its mean squared product with the design pool to
            that of random texts. 1: nothing in common.
        norm: of its client's update before the clip.
        scores: of mock rounds: about 1 with the canary, about 0 without.
        coins: whether it was in.
        noise: standard deviation of the scores but for the canary's own part.
        point: epsilon of the round as the source of the method has it; no bound.
        mu: lower bound on the round's; 0 without signal.
        epsilon_round: of that.
        attainable_round: the most that `epsilon_round` could have been, of a perfect canary.
        noise_at_most: noise multiplier that the bound leaves room for; None: any.
        epsilon_so_far: of the training to here, where noise is as in the last attacked round; no
            less than a round shows by itself, at the clients' rate.
        claimed_round, claimed_so_far: as the noise promises; None: without noise, nothing.
        random_noise: as `noise`, of a random text as long as the clip; None: none was scored.
        random_epsilon_round: as `epsilon_round`, of that.
    """

    round: Positive
    loss: NotNegative
    health: Number
    norm: NotNegative
    scores: Rows[float]
    coins: Rows[bool]
    noise: NotNegative | None
    point: Nats
    mu: NotNegative
    epsilon_round: Nats
    attainable_round: Nats
    noise_at_most: NotNegative | None
    epsilon_so_far: Nats
    claimed_round: Nats | None
    claimed_so_far: Nats | None
    random_noise: NotNegative | None
    random_epsilon_round: Nats | None

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if len(self.scores) != len(self.coins):
            raise ValueError(f"{len(self.scores)} scores and {len(self.coins)} coins")
        return self


class CanifeRecord(FileRecord):
    """A federated training, its claim, and its attacked rounds.

    Attributes:
        inputs_sha256: of the clients' tokens and of all settings.
        clients: that took part by their coins.
        aside: clients that took no part: the design pool, and mock rounds.
        weights: of the model.
        rounds: of the training.
        client_rate: of a client, in each round.
        local_epochs: of a client.
        local_batch: rows of a client's step; None: all.
        clip: of a client's update.
        noise_multiplier: of the noise; 0: there was no privacy.
        delta: of all epsilons.
        frozen: whether rounds were frozen to be attacked.
        significance: of all bounds together.
        attacked: rounds, in order.
        attainable: the most that `largest` could have been, with perfect canaries.
        losses: on mock clients, before each round and after the last.
        measured: when, in UTC.
        lmexposure: the version.
    """

    NAME: ClassVar[str] = "canife.json"
    FAMILY: ClassVar[str] = "lmexposure.canife"
    VERSION: ClassVar[int] = 1
    ERROR = ResultError
    AGAIN: ClassVar[str] = "audit again: lmexposure canife, with the same flags"

    inputs_sha256: Sha256
    clients: Positive
    aside: Count
    weights: Positive
    rounds: Positive
    client_rate: NotNegative
    local_epochs: Positive
    local_batch: Positive | None
    clip: NotNegative
    noise_multiplier: NotNegative
    delta: Delta
    frozen: bool
    significance: Rate
    attacked: Rows[CanifeRound]
    attainable: Nats
    losses: Rows[NotNegative]
    measured: Utc
    lmexposure: str

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

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a canife.json, or that of its directory.

        Raises:
            ResultError: no such file, or a damaged one; it says why.
        """
        path = Path(path)
        path = path / cls.NAME if path.is_dir() else path
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ResultError(f"cannot read {path}: {failure.strerror}; {cls.AGAIN}") from failure
        return cls.parse(content, path)
