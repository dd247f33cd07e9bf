"""canife: a federated training with privacy of users, and what canaries saw of its rounds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import model_validator

from lmexposure._record import (
    Count,
    JsonValue,
    Nats,
    NotNegative,
    Number,
    Positive,
    Record,
    Rows,
)
from lmexposure._settings import own_values
from lmexposure._style import LABELS, count, nats, number, percent, short, short_hash, whole
from lmexposure.core import (
    CLAIMED_EPSILON,
    EPSILON_LIMIT,
    Check,
    CheckKind,
    Column,
    Dated,
    Document,
    Outcome,
    Section,
    Table,
    Thresholds,
    Verdict,
    attainable_outcome,
    facts,
    met_outcome,
)
from lmexposure.core import Number as MainNumber
from lmexposure.studies.training_settings import CanifeSettings, FederatedSettings
from lmexposure.studies.white_box import EPSILON_MEANS, bounds_sure

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart

_LEAST_HEALTH = 0.5
_MORE = "Attack fewer rounds (--every), or play more mock rounds (--mock-rounds)."
_LOSS = "nats a token"
_NOT_LEARNED = "did not learn, so this is no training to judge"
_LEARN = "; give more rounds, another learning rate or less noise"


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


class Canife(Dated):
    """A federated training, its claim, and its attacked rounds."""

    KIND: ClassVar[str] = "canife"
    WHAT: ClassVar[str] = "a federated training"
    LIMITS: ClassVar[frozenset[str]] = frozenset({"max_epsilon"})
    AGAIN: ClassVar[str] = "audit again with the same settings"
    CHECKS: ClassVar[Mapping[str, CheckKind]] = {
        "claimed_epsilon": replace(
            CLAIMED_EPSILON,
            help="What the training promises, beside what canaries saw of its rounds.",
            remedy=_MORE,
            own_significance=True,
        ),
        "max_epsilon": replace(
            EPSILON_LIMIT,
            help="A lower bound on the epsilon of a user in the whole training, in nats; higher = "
            "less private.",
            remedy=_MORE,
            own_significance=True,
        ),
        "validation": CheckKind(
            help="A model that did not learn has memorised nothing, which says nothing about a "
            "model that did.",
            remedy="Give more rounds, another learning rate or less noise: a model that learned "
            "nothing leaks nothing.",
            precondition=True,
        ),
        "health": CheckKind(
            help="How little a crafted canary has in common with clients: below this it says "
            "little.",
            remedy="Design canaries for longer (--iterations), against more clients "
            "(--set design_clients=N).",
            precondition=True,
        ),
    }

    clients: Positive  # that took part by their coins
    aside: Count  # clients that took no part: the design pool, and mock rounds
    weights: Positive  # of the model
    training: FederatedSettings  # but for its seed; `delta` is that of all epsilons
    attacks: CanifeSettings  # but for their seed; `significance` is that of all bounds together
    attacked: Rows[CanifeRound]  # rounds, in order
    attainable: Nats  # the most that `largest` could have been, with perfect canaries
    losses: Rows[NotNegative]  # on mock clients, before each round and after the last

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
        less = (row for at, row in seen if at is not None and at < self.training.noise_multiplier)
        return next(less, None)

    @property
    def refuted(self) -> bool:
        """Whether a round has less noise than is claimed, or the training more epsilon."""
        past = self.claimed is not None and self.largest > self.claimed
        return past or self.refuting is not None

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
    def finding(self) -> str:
        """What canaries saw of the training, in a line."""
        seen = f"canaries show an epsilon of at least {nats(self.largest)}"
        if self.claimed is None:
            return f"the training had no noise, so that no epsilon holds for it; {seen}"
        seen += f", and {nats(self.claimed)} is claimed"
        if (worst := self.refuting) is not None:
            return (
                f"the claim is refuted: round {worst.round} had a noise multiplier of at most "
                f"{short(worst.noise_at_most)}, and {short(self.training.noise_multiplier)} is "
                f"claimed; {seen}"
            )
        if self.refuted:
            return f"the claim is refuted: {seen}"
        if not self.could_refute:
            return (
                f"the claim is not tested: max attainable with these mock rounds is "
                f"{nats(self.attainable)}; {seen}"
            )
        return f"{seen}: the claim is not refuted"

    @property
    def model_name(self) -> str:
        """It has no name, and is told by its size."""
        return f"a model of {whole(self.weights)} weights"

    def of_data(self) -> Mapping[str, str]:
        """Whose texts, and what is promised of them."""
        clients = f"the texts of {count(self.clients, 'client')}"
        return {"corpus": clients, "data": "whether a user took part in the training"}

    def sure(self, verdict: Verdict, limits: Thresholds) -> Iterator[str]:
        """At which level the bounds hold, and what they could not show."""
        yield from bounds_sure(self.attacks.significance, self.attainable)

    def numbers(self) -> Iterator[MainNumber]:
        """The bound, the claim, and what the model learned."""
        nats_of = partial(MainNumber, unit="nats")
        yield from (
            nats_of(name="lower bound on epsilon", value=self.largest, worse="high"),
            nats_of(name="claimed epsilon", value=self.claimed, worse="high"),
            nats_of(name="max attainable", value=self.attainable),
            MainNumber(name="loss on mock clients", value=self.losses[-1], unit=_LOSS),
        )

    def asked(self) -> Mapping[str, JsonValue]:
        """What decided the training and its rounds."""
        counted: dict[str, JsonValue] = {"clients": self.clients, "aside": self.aside}
        return counted | own_values(self.training) | own_values(self.attacks)

    def document(self) -> Document:
        """Claimed and seen, round by round."""
        rounds = Table(self.attacked, _COLUMNS)
        return Document(
            title="Federated training, seen by canaries",
            kind=f"Federated training, {self.training.rounds} rounds",
            question="Does the training keep its promise to users?",
            finding=self.finding,
            sections=(
                Section(
                    id="rounds",
                    title="Epsilon, round by round",
                    text=_HOW,
                    table=rounds,
                    chart=self._epsilon_chart,
                    notes=self._notes(),
                ),
                Section(
                    id="scores",
                    title="With and without the canary",
                    text="" if self._scored else "No round has scores of both kinds.",
                    chart=self._scores_chart,
                    folded=True,
                    on=frozenset({"html"}),
                ),
                Section(
                    id="training",
                    title="The training",
                    table=self._training(),
                    notes=(_UNIT,),
                    folded=True,
                ),
            ),
            main=rounds,
            numbers=Table(sorted(self.attacked, key=lambda row: -row.epsilon_round), _COLUMNS[:7]),
            meaning=EPSILON_MEANS,
            sources=tuple(_SOURCES.items()),
            origin=f"{whole(self.weights)} weights, {count(self.clients, 'client')} "
            f"({short_hash(self.inputs_sha256)}); lmexposure {self.lmexposure}, {self.measured}",
        )

    def checks(self, limits: Thresholds) -> Iterator[Check | str]:
        """What canaries saw of its rounds against claim and threshold."""
        worst = min(row.health for row in self.attacked)
        healthy, before, after = worst >= _LEAST_HEALTH, self.losses[0], self.losses[-1]
        name, beside = "health of the canaries", "at least" if healthy else "below"
        why = f"the least healthy canary has a health of {short(worst)}, {beside} "
        why += short(_LEAST_HEALTH)
        yield Check.of("health", name, met_outcome(healthy), why, worst, _LEAST_HEALTH)
        why = (
            f"the model {'learned' if self.learned else _NOT_LEARNED}: the loss on mock clients "
            f"went from {number(before, 3)} to {number(after, 3)} {_LOSS}"
            f"{'' if self.learned else _LEARN}"
        )
        learned = met_outcome(self.learned)
        yield Check.of("validation", "model learned", learned, why, after, before, unit=_LOSS)
        most, claimed = limits.max_epsilon, self.claimed
        yield self._below(float(most)) if most is not None else "epsilon: no threshold was given"
        if claimed is not None:
            yield self._keeps(claimed)
            return
        yield "a claim: the training had no noise"
        if most is None:  # nothing is claimed and nothing allowed: what was seen is no pass
            why = (
                f"the training added no noise, and claims nothing: {self._seen}; say how much is "
                "allowed (--max-epsilon)"
            )
            yield self._of_epsilon("claimed_epsilon", Outcome.INCONCLUSIVE, None, why)

    def _keeps(self, claimed: float) -> Check:
        outcome = attainable_outcome(self.refuted, self.could_refute)
        seen = f"{self._seen}, and {nats(claimed)} is claimed"
        if outcome is Outcome.PASS and self.attainable <= claimed:
            seen += (
                f"; single rounds could have refuted it, and not the training as a whole, of which "
                f"canaries can show {nats(self.attainable)} at most"
            )
        if (worst := self.refuting) is not None:
            seen = (
                f"round {worst.round} had a noise multiplier of at most "
                f"{short(worst.noise_at_most)}, and {short(self.training.noise_multiplier)} is "
                f"claimed; it shows an epsilon of at least {nats(worst.epsilon_round)} nats, and "
                f"{nats(worst.claimed_round)} is claimed; {seen}"
            )
        return self._of_epsilon("claimed_epsilon", outcome, claimed, seen)

    def _below(self, most: float) -> Check:
        """Without noise no epsilon holds, whatever canaries could show of it."""
        still, beyond = not self.training.noise_multiplier, self.largest > most
        seen = f"{self._seen}, {'above' if beyond else 'not above'} the {nats(most)} allowed"
        if still:
            seen = f"the training added no noise, so that no epsilon holds for it; {seen}"
        outcome = attainable_outcome(beyond or still, self.attainable > most)
        return self._of_epsilon("max_epsilon", outcome, most, seen)

    def _of_epsilon(self, key: str, outcome: Outcome, most: float | None, why: str) -> Check:
        if outcome is Outcome.INCONCLUSIVE and most is not None:
            why += (
                f"; max attainable with these mock rounds is {nats(self.attainable)}: attack fewer "
                "rounds (--every), or play more mock rounds (--mock-rounds)"
            )
        of_claim = key == "claimed_epsilon"
        name = "claimed epsilon, round by round" if of_claim else "lower bound on epsilon"
        return Check.of(key, name, outcome, why, self.largest, most, unit="nats", asked=True)

    @property
    def _seen(self) -> str:
        return f"epsilon is at least {nats(self.largest)} nats (delta {short(self.training.delta)})"

    @property
    def _scored(self) -> Sequence[CanifeRound]:
        """Rounds with scores of both kinds."""
        return [row for row in self.attacked if 0 < sum(row.coins) < len(row.coins)]

    def _epsilon_chart(self) -> "Chart":
        from lmexposure.core.charts import lines_chart

        lines = {
            name: [(row.round, read(row)) for row in self.attacked if read(row) is not None]
            for name, read in _LINES.items()
        }
        return lines_chart(
            name="canife-epsilon",
            title="Epsilon over rounds",
            caption="Dashed is what the noise promises, and the line below it what canaries have "
            "shown at least. A line above its dashed one refutes the promise.",
            lines=lines,
            axes=("Round", "Epsilon (nats)"),
            shown=nats,
            dashed=("so far, claimed", "round, claimed"),
        )

    def _scores_chart(self) -> "Chart | None":
        from lmexposure.core.charts import sides_chart

        if not self._scored:
            return None
        row = max(self._scored, key=lambda row: row.health)
        inside = [score for score, coin in zip(row.scores, row.coins, strict=True) if coin]
        outside = [score for score, coin in zip(row.scores, row.coins, strict=True) if not coin]
        return sides_chart(
            name="canife-scores",
            title=f"Scores of round {row.round}",
            caption="How much of the canary a released sum holds, of mock rounds with it and "
            "without, each the same height together. The less the lines cover each other, the less "
            "is hidden.",
            description=(
                f"{len(inside)} with the canary, mean {number(fmean(inside), 2)}; {len(outside)} "
                f"without, mean {number(fmean(outside), 2)}; standard deviation "
                f"{number(row.noise, 2)}."
            ),
            panels={"Score (canaries)": (row.scores, row.coins)},
        )

    def _notes(self) -> list[str]:
        notes = [
            f"nats at {LABELS['delta']} {short(self.training.delta)}; seen: lower bounds, which "
            f"hold for Gaussian noise, all together at {percent(1 - self.attacks.significance)}; "
            "claimed: as the noise promises",
            "round: of a round that the canary's client is in; so far: of the training up to there",
            "attainable: the most that a canary could have shown, told right in every mock round; "
            f"for the training {nats(self.attainable)}",
            "so far: composed over all rounds, assuming that the noise of each is that of the last "
            "attacked round and that clients take part by coins at the rate of the training; at "
            "least what a round alone shows at that rate",
            "point: an estimate as in [1], chosen on the data; no bound, and about 3.9 at most "
            "with 100 mock rounds",
            "noise at most: the largest noise multiplier that the round can have had; "
            f"{short(self.training.noise_multiplier)} is claimed",
            "health: 1 where the canary has nothing in common with clients, 0 where it has as much "
            "as random text; random text: what a text of random tokens shows in its place",
        ]
        return notes if self.attacks.frozen else [*notes, _NOT_FROZEN]

    def _training(self) -> Table:
        asked = self.training
        batch = "all rows" if asked.local_batch is None else count(asked.local_batch, "row")
        return facts(
            ("clients", whole(self.clients)),
            ("put aside to attack", whole(self.aside)),
            ("rounds", whole(asked.rounds)),
            ("a client's rate", short(asked.client_rate)),
            ("a client's steps", f"{count(asked.local_epochs, 'epoch')} of {batch} a step"),
            ("clip", short(asked.clip)),
            ("noise multiplier", short(asked.noise_multiplier)),
            (
                "loss on mock clients, nats a token",
                f"{number(self.losses[0], 3)} before, {number(self.losses[-1], 3)} after"
                f"{'' if self.learned else ': the model did not learn'}",
            ),
        )


_COLUMNS = (
    Column(head="round", value="round"),
    Column(head="seen", value="epsilon_round", shown=nats, unit="nats", worse="high"),
    Column(head="attainable", value="attainable_round", shown=nats, unit="nats"),
    Column(head="claimed", value="claimed_round", shown=nats, unit="nats", worse="high"),
    Column(head="point", value="point", shown=nats, unit="nats", worse="high"),
    Column(head="seen so far", value="epsilon_so_far", shown=nats, unit="nats", worse="high"),
    Column(head="claimed so far", value="claimed_so_far", shown=nats, unit="nats", worse="high"),
    Column(head="noise at most", value="noise_at_most", shown=short, worse="low"),
    Column(head="health", value="health", shown=2),
    Column(head="random text", value="random_epsilon_round", shown=nats, unit="nats"),
    Column(value="loss", unit=_LOSS),
    *(Column(value=name) for name in ("norm", "noise", "mu", "random_noise")),
)
_LINES = {
    "so far, claimed": attrgetter("claimed_so_far"),
    "so far, seen": attrgetter("epsilon_so_far"),
    "round, claimed": attrgetter("claimed_round"),
    "round, seen": attrgetter("epsilon_round"),
}
_HOW = (
    "We craft a text whose update looks like no client's, let its client take part at random, and "
    "test whether the released sum gives it away. A bound "
    "below the claim refutes nothing, and proves nothing; where the most that was attainable is "
    "below it too, the claim was not tested. [1]"
)
_NOT_FROZEN = (
    "rounds were not frozen: the model went on between the coins of a canary, and each coin was "
    "guessed"
)
_UNIT = "the unit of privacy is a client with all that it holds; add or remove one client"
_SOURCES = {
    "Maddock et al. 2023, CANIFE: Crafting Canaries for Empirical Privacy Measurement in "
    "Federated Learning": "https://arxiv.org/abs/2210.02912",
    "Dong, Roth and Su 2019, Gaussian Differential Privacy": "https://arxiv.org/abs/1905.02383",
}
