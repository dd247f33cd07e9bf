"""What a private training promises, and dp_report: what it let out about each document."""

import math
from collections.abc import Iterator, Mapping
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
    Record,
    Rows,
    Share,
)
from lmexposure._style import LABELS, count, nats, short, visible, whole
from lmexposure.core import Column, Dated, Document, Number, Section, Table, Thresholds, Verdict
from lmexposure.studies.white_box import EPSILON_MEANS, Promise, WhiteBoxBounds

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart

_FIELDS = ("least", "q05", "q25", "median", "q75", "q95", "largest")
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_NAMES = ("least", "5 %", "25 %", "median", "75 %", "95 %", "largest")
PRIVATE_NOTES = (
    "each is of the gradients that this training had, and depends on what the unit holds: the "
    "list is for the owner of the corpus alone",
    "no promise: who stops a training, or drops documents, because of these numbers is covered by "
    "none of them, nor by the claim",
)


class ExPost(Record):
    """How the epsilons of single documents lie, ex post: of the gradients that there were."""

    # of the training at which gradients were measured; in between, they are taken to be as large
    moments: Positive
    # least, q05, q25, median, q75, q95, largest: quantiles over the units, in nats, lower = more
    # private; each an epsilon that some unit has
    least: Nats
    q05: Nats
    q25: Nats
    median: Nats
    q75: Nats
    q95: Nats
    largest: Nats

    @property
    def quantiles(self) -> tuple[float, ...]:
        """All of them, from the least to the largest."""
        return tuple(getattr(self, name) for name in _FIELDS)


class DocumentPrivacy(Dated):
    """dp_report.json: each unit's epsilon ex post.

    A unit's epsilon depends on what the unit holds, and says something about it: the file is for
    the owner of the corpus alone. And it is not adaptively composable: who stops, or drops
    documents, because of these numbers has no promise left.
    """

    KIND: ClassVar[str] = "dp_report"
    WHAT: ClassVar[str] = "a list of epsilons ex post"
    PRIVATE: ClassVar[bool] = True
    AGAIN: ClassVar[str] = "train again by DP-SGD with document norms"
    SECRET: ClassVar[bool] = True

    unit: str  # "document", or the field whose values tell users apart
    claimed: Nats  # the epsilon that the training promised to all, in nats
    delta: Delta  # of all epsilons
    moments: Positive  # of the training at which gradients were measured
    # of the units: "document N" by its number in the corpus, from 1, or the field's value
    names: Rows[str]
    epsilons: Rows[Nats]  # of the units, in nats, lower = more private

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if not 0 < len(self.names) == len(self.epsilons):
            raise ValueError(
                f"{len(self.names)} names and {len(self.epsilons)} epsilons; each unit has one"
            )
        return self

    @property
    def ex_post(self) -> ExPost:
        """How the epsilons lie."""
        # Of those that there are, the next above: no epsilon is shown smaller than it is. The gate
        # reads this, and is light: no numpy.
        ascending = sorted(self.epsilons)
        each = [ascending[math.ceil(share * (len(ascending) - 1))] for share in _QUANTILES]
        return ExPost(moments=self.moments, **dict(zip(_FIELDS, each, strict=True)))

    def document(self) -> Document:
        """How the epsilons lie; its main table has every unit, the least private first."""
        found = self.ex_post
        rows = [*zip(_NAMES, found.quantiles, strict=True), ("claimed for all", self.claimed)]
        units = sorted(zip(self.names, self.epsilons, strict=True), key=lambda unit: -unit[1])
        columns = (
            Column(head=f"of {whole(len(units))}", value=itemgetter(0), words=True),
            Column(head="epsilon", value=itemgetter(1), shown=nats, unit="nats"),
        )
        return Document(
            title="What single documents lost",
            kind=f"Epsilon ex post, {whole(len(units))} {self.unit}s",
            question="How much did the training let out about single documents?",
            finding=f"half of them have an epsilon of at most {nats(found.median)}, the worst "
            f"{nats(found.largest)}, of {nats(self.claimed)} claimed for all",
            sections=(
                Section(
                    id="epsilons",
                    title=f"Epsilon of each {self.unit}, ex post",
                    table=Table(rows, columns),
                    chart=self._chart,
                    notes=(
                        f"nats at {LABELS['delta']} {short(self.delta)}, by gradients at "
                        f"{whole(self.moments)} moments of the training; lower = more private",
                        *PRIVATE_NOTES,
                    ),
                ),
            ),
            main=Table(units, _UNITS),
            meaning=EPSILON_MEANS,
            origin=self.provenance.line,
            private=True,
        )

    def of_data(self) -> Mapping[str, str]:
        """Whose epsilons these are."""
        return {"corpus": count(len(self.names), visible(self.unit))}

    def sure(self, verdict: Verdict, limits: Thresholds) -> Iterator[str]:
        """No test, so that it errs in no direction."""
        yield (
            "No test was made: each number is of the gradients that there were, has no interval, "
            "and promises nothing."
        )

    def _chart(self) -> "Chart":
        """Epsilons in their order, below what was claimed for all."""
        from lmexposure.core.charts import lines_chart

        lines = {
            "epsilon, ex post": list(zip(_QUANTILES, self.ex_post.quantiles, strict=True)),
            "claimed for all": [(0.0, self.claimed), (1.0, self.claimed)],
        }
        return lines_chart(
            name="dp-report",
            title=f"What each {visible(self.unit)} lost, from the least to the most",
            caption="The farther a line is below the claim, the less the training let out about "
            "those than it might have.",
            lines=lines,
            axes=(f"Share of {visible(self.unit)}s", "Epsilon (nats)"),
            shown=nats,
            dashed=("claimed for all",),
        )

    def checks(self, limits: Thresholds) -> Iterator[str]:
        """None: what single gradients let out bounds no epsilon, from above or below."""
        yield (
            "epsilon: these numbers are of the gradients that there were, and no bound; audit the "
            "training from inside (--set gradient_canaries=N)"
        )

    def numbers(self) -> Iterator[Number]:
        """The claim, and what most and the worst have."""
        found = self.ex_post
        for name, value in (
            ("claimed epsilon", self.claimed),
            ("median epsilon", found.median),
            ("largest epsilon", found.largest),
        ):
            yield Number(name=name, value=value, unit="nats", worse="high")

    def asked(self) -> Mapping[str, JsonValue]:
        """Whose epsilons these are, and how they were measured."""
        return {name: getattr(self, name) for name in ("unit", "delta", "moments")}


_UNITS = (
    Column(value=itemgetter(0), name="unit", words=True),
    Column(value=itemgetter(1), name="epsilon", unit="nats", worse="high"),
)
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
        noise, steps = self.noise_multiplier, self.steps
        return Promise(epsilon=self.epsilon, noise_multiplier=noise, steps=steps)

    def __str__(self) -> str:
        whose = "document" if self.unit == "document" else f"value of {self.unit}"
        return (
            f"epsilon {nats(self.epsilon)} at delta {short(self.delta)} for each of "
            f"{self.units:,} {whose}s after {self.steps:,} steps ({self.accountant.upper()}; by "
            f"RDP {nats(self.epsilon_rdp)}), noise multiplier {short(self.noise_multiplier)}, clip "
            f"{short(self.clip)}, in a step with probability {short(self.sample_rate)}"
        )
