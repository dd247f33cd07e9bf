"""white_box: what the noise of a private training leaves of canaries in its gradients."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator

from lmexposure._record import (
    Count,
    Delta,
    JsonValue,
    Nats,
    NotNegative,
    Positive,
    Rate,
    Record,
    Rows,
    Share,
)
from lmexposure._style import LABELS, count, nats, number, percent, short, validity, whole
from lmexposure.core import (
    CLAIMED_EPSILON,
    EPSILON_LIMIT,
    Check,
    CheckKind,
    Column,
    Dated,
    Document,
    Number,
    Outcome,
    Section,
    Table,
    Thresholds,
    Verdict,
    attainable_outcome,
)
from lmexposure.statistics import EpsilonBound

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart

_PROMISE = {
    Outcome.LEAK: "seen from inside, the training does not keep its promise",
    Outcome.PASS: "seen from inside, nothing contradicts the promise",
    Outcome.INCONCLUSIVE: "seen from inside, nothing could have contradicted the promise",
}
EPSILON_MEANS = (
    "Epsilon says how much an outcome may depend on one text, or one user: by a factor of at most "
    "e^epsilon, 2.7 for an epsilon of 1, 148 for 5. Smaller = more private; a measured bound shows "
    "how much it was at least."
)
_MORE = "Train longer, or with more gradient canaries (--set gradient_canaries=N)."


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
    one_run: EpsilonBound | None
    one_run_gaussian: EpsilonBound | None  # by the same, for a Gaussian trade-off; None: too few
    # of a single step that the canary is in; its `mu` counts. None: no such coins.
    step: EpsilonBound | None
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


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a private training claims."""

    epsilon: float | None  # in nats; None: nothing is claimed of it
    noise_multiplier: float  # that its optimizer adds
    steps: int


class WhiteBoxAudit(Dated):
    """The bounds, and the scores and coins that they are made of.

    `GradientCanaries.audit` makes it, of a training of one's own too.
    """

    KIND: ClassVar[str] = "white_box"
    WHAT: ClassVar[str] = "an audit of gradients"
    PRIVATE: ClassVar[bool] = True
    LIMITS: ClassVar[frozenset[str]] = frozenset({"max_epsilon"})
    AGAIN: ClassVar[str] = "train again by DP-SGD with gradient canaries"
    SECRET: ClassVar[bool] = True
    CHECKS: ClassVar[Mapping[str, CheckKind]] = {
        "claimed_epsilon": replace(
            CLAIMED_EPSILON,
            help="What a private training claims, epsilon and noise, beside what someone sees who "
            "reads every noisy gradient.",
            remedy=_MORE,
        ),
        "max_epsilon": replace(
            EPSILON_LIMIT,
            help="A lower bound on the epsilon of the training, in nats, by someone who reads "
            "every noisy gradient; higher = less private.",
            remedy=_MORE,
        ),
    }

    bounds: WhiteBoxBounds  # on epsilon
    claimed_epsilon: Nats | None  # of the training, at the delta of the bounds; None: none
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

    @property
    def _promise(self) -> Promise:
        noise, steps = self.bounds.noise_multiplier, self.bounds.steps
        return Promise(epsilon=self.claimed_epsilon, noise_multiplier=noise, steps=steps)

    def document(self) -> Document:
        """Bounds from the loosest to the claim, and the scores."""
        bounds = self.bounds
        return Document(
            title="Canaries in the gradients",
            kind=f"White-box audit, {count(bounds.steps, 'step')}",
            question="Does the noise hide what it promises to hide?",
            finding=_seen(bounds),
            meaning=EPSILON_MEANS,
            sections=(
                Section(
                    id="inside",
                    title="Seen from inside",
                    table=inside_table(bounds, self._promise),
                    chart=self.chart,
                    notes=inside_notes(bounds),
                ),
            ),
            main=Table([bounds], _MAIN),
            origin=f"{self.provenance.line}; {whole(bounds.weights)} weights",
            private=True,
        )

    def checks(self, limits: Thresholds) -> Iterator[Check | str]:
        """The claim, and a threshold, beside what was seen."""
        yield from inside_checks(self.bounds, self._promise, limits)
        if self.claimed_epsilon is None:
            yield "a claimed epsilon: none was given"
        if limits.max_epsilon is None:
            yield "epsilon: no threshold was given"

    @property
    def model_name(self) -> str:
        """It has no name, and is told by its size."""
        steps = count(self.bounds.steps, "step")
        return f"a model of {whole(self.bounds.weights)} weights, {steps}"

    def of_data(self) -> Mapping[str, str]:
        """What is promised of it."""
        return {"data": "whether a text was in it, for whoever sees every noisy gradient"}

    def sure(self, verdict: Verdict, limits: Thresholds) -> Iterator[str]:
        """At which level the bounds hold, and what they could not show."""
        yield from bounds_sure(self.bounds.significance, self.bounds.attainable)

    def numbers(self) -> Iterator[Number]:
        """The largest bound, its ceiling, and what room is left for noise."""
        bounds, claimed, nats_of = self.bounds, self.claimed_epsilon, partial(Number, unit="nats")
        yield from (
            nats_of(name="lower bound on epsilon", value=bounds.largest, worse="high"),
            nats_of(name="claimed epsilon", value=claimed, worse="high"),
            nats_of(name="max attainable", value=bounds.attainable),
            Number(name="noise multiplier at most", value=bounds.noise_at_most, worse="low"),
        )

    def asked(self) -> Mapping[str, JsonValue]:
        """What was audited, and how."""
        names = ("kind", "weights", "canaries", "sample_rate", "steps", "noise_multiplier")
        return {name: getattr(self.bounds, name) for name in (*names, "delta", "significance")}

    def chart(self) -> "Chart | None":
        """What the noise leaves of the canaries, of the whole training and of single steps."""
        from lmexposure.core.charts import sides_chart

        panels = {
            "Score, whole training": (self.scores, self.coins),
            "Score, single steps": (self.step_scores, self.step_coins),
        }
        shown = {name: pair for name, pair in panels.items() if 0 < sum(pair[1]) < len(pair[1])}
        if not shown:
            return None
        return sides_chart(
            name="white-box",
            kind="white_box",
            title="What the noise leaves of canaries in the gradients",
            caption=(
                "The noisy gradients along each canary, of those that were in and of those that "
                "were not, the same height together. The less the two lines cover each other, the "
                "less the noise hides."
            ),
            description=" ".join(_in_words(name, *pair) for name, pair in shown.items()),
            panels={f"{name} (clips)": pair for name, pair in shown.items()},
        )


_MAIN = (
    Column(value="largest", unit="nats", worse="high"),
    Column(value="attainable", unit="nats"),
    Column(value="noise_at_most", worse="low"),
    Column(value="noise_attainable"),
    Column(value="composed", unit="nats", worse="high"),
    Column(value="one_run.value", name="one_run", unit="nats"),
    Column(value="one_run_gaussian.value", name="one_run_gaussian"),
    Column(value="step.value", name="step", unit="nats"),
    *(Column(value=name) for name in ("canaries", "included", "tosses", "steps")),
    *(Column(value=name) for name in ("noise_multiplier", "sample_rate", "delta", "significance")),
)
_COLUMNS = (
    Column(head="what", value=itemgetter(0), words=True),
    Column(head="holds for", value=itemgetter(1), words=True, name="holds_for"),
    Column(head="of", value=itemgetter(2), words=True),
    Column(head="epsilon", value=itemgetter(3), shown=nats, unit="nats", worse="high"),
)
_NOTES = (
    "lower bounds on epsilon, in nats: a claim below one of them is refuted, and so is a noise "
    "multiplier that is above what a step leaves room for. From outside, the "
    "finished model alone is asked; from inside, every noisy gradient is seen, and all other "
    "documents are known",
    "by canaries of the whole training: each would be a document whose gradient is as long as the "
    "clip, and is in or not for all steps",
    "step by step: a canary is in a single step or not, so that each step is an experiment; then "
    "its noise is composed over all steps, granted that documents are sampled as claimed",
)


def bounds_sure(significance: float, attainable: float) -> Iterator[str]:
    """How sure lower bounds are that hold together, and what they could have shown at most."""
    yield (
        f"All bounds hold together with {percent(1 - significance)} confidence, granted what they "
        f"assume: at most {percent(significance)} of trainings that keep their promise are called "
        "leaking."
    )
    yield (
        "Missed leaks: a low bound is no proof, since these canaries could have shown "
        f"{nats(attainable)} at most."
    )


def inside_table(
    found: WhiteBoxBounds, promise: Promise, outside: tuple[str, str, float] | None = None
) -> Table:
    """Bounds from the loosest to the claim; `outside`: for whom it holds, of what, and epsilon."""
    return Table(list(_rows(found, promise, outside)), _COLUMNS)


def inside_notes(found: WhiteBoxBounds) -> tuple[str, ...]:
    """What the bounds mean, what they could have been, and what they take for granted."""
    return (
        *_NOTES,
        f"{LABELS['delta']} {short(found.delta)}; the bounds from inside hold together at "
        f"{percent(1 - found.significance)}",
        f"max attainable in {count(found.steps, 'step')}: {nats(found.attainable)}, and room for a "
        f"noise multiplier of at most {_noise(found.noise_attainable)}; a promise that these could "
        "not have contradicted is not tested",
        *found.assumptions,
    )


def inside_checks(found: WhiteBoxBounds, promise: Promise, limits: Thresholds) -> Iterator[Check]:
    """What was seen beside the promise, of an epsilon and of its noise, and beside a threshold."""
    noise, promised, claimed = found.noise_at_most, promise.noise_multiplier, promise.epsilon
    # Where no epsilon is claimed, none is refuted.
    said = {"epsilon": inf if claimed is None else claimed, "noise_multiplier": promised}
    outcome = attainable_outcome(found.refutes(**said), found.could_refute(**said))
    room = "any noise" if noise is None else f"a noise multiplier of at most {short(noise)}"
    reason = (
        f"{_PROMISE[outcome]}: its steps fit {room}, and {short(promised)} is promised; "
        f"{_seen(found)}"
    )
    if claimed is not None:
        reason += f", {_beyond(found.largest, claimed)} the {nats(claimed)} promised"
    yield _check("claimed epsilon", "claimed_epsilon", outcome, found, claimed, reason)
    if limits.max_epsilon is not None:
        most = float(limits.max_epsilon)
        outcome = attainable_outcome(found.largest > most, found.attainable > most)
        reason = f"{_seen(found)}, {_beyond(found.largest, most)} the allowed {nats(most)}"
        yield _check("lower bound on epsilon", "max_epsilon", outcome, found, most, reason)


def _check(
    name: str, key: str, outcome: Outcome, found: WhiteBoxBounds, most: float | None, reason: str
) -> Check:
    if outcome is Outcome.INCONCLUSIVE:
        reason += (
            f"; max attainable in {count(found.steps, 'step')} is {nats(found.attainable)}: train "
            "longer, or with more gradient canaries (--set gradient_canaries=N)"
        )
    name = f"{name}, from inside"
    return Check.of(key, name, outcome, reason, found.largest, most, unit="nats", asked=True)


def _rows(
    found: WhiteBoxBounds, promise: Promise, outside: tuple[str, str, float] | None
) -> Iterator[tuple[str, str, str, float | None]]:
    if outside is not None:
        yield "from outside", *outside
    canaries = f"{whole(found.included)} of {whole(found.canaries)} canaries in"
    if (bound := found.one_run) is not None:
        yield "whole training", validity(bound.validity), canaries, bound.value
    if (bound := found.one_run_gaussian) is not None:
        yield "whole training, Gaussian", validity(bound.validity), canaries, bound.value
    if (step := found.step) is not None:
        right = f"{whole(step.counts['correct'])} of {whole(found.tosses)} coins guessed"
        least, promised = _noise(found.noise_at_most), short(promise.noise_multiplier)
        room = f"noise multiplier at most {least}, {promised} claimed"
        yield "step by step, composed", validity(step.validity), right, found.composed
        yield "a single step", validity(step.validity), room, step.value
    yield "promised", "", f"{whole(promise.steps)} steps", promise.epsilon


def _seen(found: WhiteBoxBounds) -> str:
    return (
        f"epsilon is at least {nats(found.largest)} nats (delta {short(found.delta)}, significance "
        f"{short(found.significance)})"
    )


def _beyond(value: float, most: float) -> str:
    return "above" if value > most else "not above"


def _below(noise: float | None, claimed: float) -> bool:
    return noise is not None and noise < claimed


def _noise(value: float | None) -> str:
    return "any" if value is None else short(value)


def _in_words(name: str, scores: tuple[float, ...], coins: tuple[bool, ...]) -> str:
    import numpy as np

    chosen, every = np.array(coins), np.array(scores)
    inside, outside = every[chosen], every[~chosen]
    return (
        f"{name}: {count(inside.size, 'canary', 'canaries')} in, mean score "
        f"{number(float(inside.mean()), 2)}; {outside.size:,} not in, mean "
        f"{number(float(outside.mean()), 2)}, standard deviation "
        f"{number(float(outside.std()), 2)}."
    )
