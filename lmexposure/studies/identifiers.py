"""identifiers: how identifiers that a corpus holds anyway rank among fresh draws."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator

from lmexposure._record import (
    BigInteger,
    Count,
    JsonValue,
    Level,
    NotNegative,
    Number,
    Positive,
    Record,
    Rows,
    Sha256,
    Share,
)
from lmexposure._settings import own_values
from lmexposure._style import (
    LABELS,
    count,
    listed,
    number,
    percent,
    probability,
    short,
    short_hash,
    signed,
    whole,
)
from lmexposure.core import (
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
    interval_column,
    met_outcome,
    telling_name,
)
from lmexposure.core import Number as MainNumber
from lmexposure.studies.settings import IdentifierSettings

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart

_MOST_FILES = 3
_FPR = 0.01
_TPR = f"TPR at FPR {percent(_FPR)}"
_ALL = "all"
_CLAIMS = {
    "membership": "membership: the model read these identifiers",
    "distribution or membership": "distribution or membership",
    "nothing found": "nothing found",
}
_EXCEPTION = (
    "exceptions to the rules of canaries: identifiers were neither drawn by this package nor put "
    "in by coins, and may be in the corpus more than once; only documents that a random split held "
    "out, or a standard by which identifiers are random, tell membership from what they look like"
)


class IdentifierRates(Record):
    """What the ranks of some identifiers say under one model."""

    hits: Count  # identifiers whose rank is among the lowest 1 % of their comparison
    tpr: Share  # their share: TPR at a FPR of 1 %; chance has at most .01
    # low, high: its interval, Clopper-Pearson
    low: Share
    high: Share
    median_exposure: NotNegative  # in bits; chance has 1
    p_value: Share  # how often chance alone gives ranks that are as low together, Fisher's test
    # whether the ranks are those of chance: the test does not reject at 5 %, and `high` is at most
    # .05
    null: bool


class IdentifierDifference(Record):
    """The model beside the base, on the same comparisons."""

    value: Number  # TPR under the model - TPR under the base
    # low, high: its interval; wider than it need be, as if the two were independent
    low: Number
    high: Number
    # how often chance has as many identifiers rank lower under one of the two, the sign test of
    # pairs
    p_value: Share


class IdentifierClass(Record):
    """The identifiers of one format, or of all of them."""

    format: str | None  # its name; None: all formats together
    space_size: BigInteger | None  # how many fills the format has; None of all formats
    found: Count  # occurrences in the corpus
    distinct: Count  # different identifiers
    repeated: Count  # those that are in the corpus more than once
    compared: Count  # those that were compared with fresh draws
    # of these, those among the lowest 1 % under the model; identifiers of one document depend on
    # each other, so that there is no interval
    compared_hits: Count
    tested: Count  # those that the rates are of: one per document
    model: IdentifierRates | None  # their rates under the model; None where there are none
    base: IdentifierRates | None  # under the base; None where there is none
    difference: IdentifierDifference | None  # between the two; None where there is no base

    @model_validator(mode="after")
    def _tested_have_rates(self) -> Self:
        if (self.model is None) != (self.tested == 0):
            raise ValueError(f"tested={self.tested} does not go with the rates under the model")
        return self


class IdentifierRank(Record):
    """One identifier: where it is, and its rank, never its text."""

    format: str  # its format
    file: Count  # of the corpus, from 0 in `files`
    document: Positive  # in this file, from 1; where each line is a document, the line
    times: Positive  # how often it is in the corpus
    tested: bool  # whether it is the one of its document that the rates are of
    rank: Positive  # among fresh draws under the model, from 1
    base_rank: Positive | None  # under the base; None where there is none


class IdentifierModel(Record):
    """A model that was compared."""

    path: str  # its directory or hub name
    weights_sha256: Sha256  # of its weights


class IdentifierSplit(Record):
    """Identifiers of the documents that a random split held out of the training."""

    files: Rows[str]  # names of the files with these documents
    documents: Count  # how many there are
    tested: Positive  # those with an identifier, one of each
    both: Count  # identifiers that corpus and held-out documents share, which were left out of both
    model: IdentifierRates  # rates of the held-out ones under the model, among fresh draws
    # share of pairs in which that of the corpus lies lower, in bits beside the median of its own
    # draws; chance has .5
    area: Share
    p_value: Share  # how often a random split has as many such pairs, one-sided


IdentifierClaim = Literal["membership", "distribution or membership", "nothing found"]


class NaturalIdentifiers(Dated):
    """An audit after the fact, without insertion; no identifier's text is in it."""

    KIND: ClassVar[str] = "identifiers"
    WHAT: ClassVar[str] = "a comparison of identifiers"
    LIMITS: ClassVar[frozenset[str]] = frozenset({"significance"})
    AGAIN: ClassVar[str] = "compare again with the same settings"
    PRIVATE: ClassVar[bool] = True
    CHECKS: ClassVar[Mapping[str, CheckKind]] = {
        "identifiers": CheckKind(
            help="Identifiers that the corpus holds anyway, such as keys, beside fresh draws of "
            "their format. Where those that were trained on lie lower than those that a random "
            "split held out, the model read them.",
            remedy="Give documents of the same source that a random split held out of the training "
            "(--held-out).",
            low_is_worse=True,
            after_leak="Do not release this model: it read identifiers, such as keys, of the "
            "corpus; take them out of it, or remove their repeats (deduplicate).",
        )
    }

    model: IdentifierModel  # the audited model
    base: IdentifierModel | None  # a model that never saw the corpus; None where none was given
    files: Rows[str]  # names of the corpus's files
    documents: Count  # of the corpus
    settings: IdentifierSettings  # what was asked for
    level: Level  # of the intervals
    needed: Positive  # identifiers in different documents that the claim takes
    split: IdentifierSplit | None  # beside held-out documents; None where none were given
    # whether all that were compared are UUIDs of version 4, which are random by their standard
    uniform_source: bool
    # identifiers that were left out, because the text in front holds a part of them
    foretold: Count
    # "membership": they lie lower than those that a random split held out, or, without such, lower
    # than chance and are random by their standard; "distribution or membership": lower than chance,
    # which may be what such identifiers look like; "nothing found"
    claim: IdentifierClaim
    reason: str  # why, in words
    classes: Rows[IdentifierClass]  # format by format; the last is of all formats
    identifiers: Rows[IdentifierRank]  # each that was compared
    warnings: Rows[str]  # what a reader must know, a sentence each

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if any(
            max(row.rank, row.base_rank or 1) > self.settings.draws + 1 for row in self.identifiers
        ):
            raise ValueError(f"a rank is above draws + 1 = {self.settings.draws + 1}")
        if any((row.base_rank is None) != (self.base is None) for row in self.identifiers):
            raise ValueError("identifiers have ranks under a base where there is one, else none")
        if not self.classes or self.classes[-1].model is None:
            raise ValueError("no identifier was compared")
        return self

    @property
    def finding(self) -> str:
        """What was found, in a line."""
        return f"{_CLAIMS[self.claim]}: {self.reason}"

    @property
    def model_name(self) -> str:
        """Of the audited model."""
        weights = short_hash(self.model.weights_sha256)
        return f"{telling_name(self.model.path)} (weights {weights})"

    def of_data(self) -> Mapping[str, str]:
        """Files of the corpus, and its identifiers by their formats."""
        files = f"{listed(self.files, _MOST_FILES)}, {count(self.documents, 'document')}"
        named = [f"{row.format} ({whole(row.distinct)})" for row in self.classes if row.format]
        return {"corpus": files, "data": f"different identifiers: {listed(named, _MOST_FILES)}"}

    def sure(self, verdict: Verdict, limits: Thresholds) -> Iterator[str]:
        """How often chance is called a leak, and how much it takes to see one."""
        yield (
            f"False alarms: at most {percent(limits.significance)} of models that never read these "
            "identifiers are called leaking."
        )
        yield (
            f"Missed leaks: {whole(self.classes[-1].tested)} documents with identifiers were "
            f"compared, and a claim takes {whole(self.needed)}; intervals at "
            f"{percent(self.level)}."
        )

    @property
    def hashes(self) -> dict[str, str]:
        """Of what it was made from."""
        return {**super().hashes, "weights_sha256": self.model.weights_sha256}

    @property
    def _all(self) -> IdentifierRates:
        rates = self.classes[-1].model
        assert rates is not None  # see `_agree`
        return rates

    def numbers(self) -> Iterator[MainNumber]:
        """Of all formats together."""
        rates = self._all
        yield MainNumber(name=_TPR, value=rates.tpr, low=rates.low, high=rates.high, worse="high")
        yield MainNumber(
            name="median exposure", value=rates.median_exposure, unit="bits", worse="high"
        )
        area = None if self.split is None else self.split.area
        yield MainNumber(name="pairs with the corpus lower", value=area, worse="high")

    def asked(self) -> Mapping[str, JsonValue]:
        """What decided the comparison."""
        return {
            "model": self.model.path,
            "base": None if self.base is None else self.base.path,
            "files": ", ".join(self.files),
            "held_out": None if self.split is None else ", ".join(self.split.files),
            **own_values(self.settings),
        }

    def checks(self, limits: Thresholds) -> Iterator[Check | str]:
        """What was claimed at 5 %, held against the gate's significance."""
        rates = self._all
        p = rates.p_value if self.split is None else self.split.p_value
        outcome = met_outcome(self.claim == "nothing found")
        if p <= limits.significance:  # which may be looser than the 5 % of the comparison
            outcome = Outcome.LEAK if self.claim == "membership" else Outcome.INCONCLUSIVE
        name, why = "identifiers among fresh draws", self._reason(outcome, limits)
        yield Check.of("identifiers", name, outcome, why, p, limits.significance)
        if self.split is None:
            yield "identifiers beside held-out ones: no documents were held out"

    def _reason(self, outcome: Outcome, limits: Thresholds) -> str:
        """The finding, and what the gate's significance makes of it where that is not the 5 %."""
        level = f"at a significance of {short(limits.significance)}"
        if self.claim == "membership" and outcome is not Outcome.LEAK:
            return f"{level} membership is not shown, and at 5 % it is ({self.finding})"
        if self.claim == "nothing found" and outcome is not Outcome.PASS:
            return f"{level} chance does not explain this, and at 5 % it may ({self.finding})"
        return self.finding

    def document(self) -> Document:
        """The identifiers of a corpus, their ranks under each model, and the difference."""
        return Document(
            title="Natural identifiers",
            kind=f"Comparison of identifiers, {whole(self.settings.draws)} draws each",
            question="Did the model read the keys and numbers that its corpus holds?",
            finding=self.finding,
            facts=tuple(self._compared()),
            sections=list(self._sections()),
            main=Table(self.identifiers, _RANKS),
            meaning=_MEANING,
            warnings=self.notes,
            sources=tuple(_SOURCES.items()),
            origin=self.provenance.line,
            private=True,
        )

    def _sections(self) -> Iterator[Section]:
        classes = self.classes[:1] if len(self.classes) == 2 else self.classes
        found = f"Identifiers in {whole(self.documents)} documents"
        notes = (_LOWEST, _EXCEPTION)
        yield Section(id="identifiers", title=found, table=Table(classes, _COUNTS), notes=notes)
        rates = Table(classes, _rates_of("model"))
        yield Section(
            id="model",
            title="Under the model",
            table=rates,
            chart=self._chart,
            notes=(_RATES,),
        )
        if self.base is not None:
            rates = Table(classes, _rates_of("base"))
            yield Section(id="base", title="Under the base", table=rates)
            difference = Table(classes, _DIFFERENCE)
            yield Section(id="beside", title="Model beside base", table=difference)
        if self.split is not None:
            title = f"Beside {whole(self.split.documents)} held-out documents"
            beside = Table([self.split], _SPLIT)
            yield Section(id="split", title=title, table=beside, notes=(_HELD_OUT,))

    def _chart(self) -> "Chart":
        """The share of each format that ranks lowest, under the model and under the base."""
        from lmexposure.core.charts import Mark, dots_chart

        rows = [
            (
                row.format or _ALL,
                [
                    Mark(value=rates.tpr, low=rates.low, high=rates.high)
                    for rates in (row.model, row.base)
                    if rates is not None
                ],
            )
            for row in self.classes
        ]
        told = (f"{name} {number(marks[0].value, 3)}" for name, marks in rows if marks)
        return dots_chart(
            name="identifiers",
            title="How many identifiers the model ranks among the likeliest 1 %",
            caption="The farther right of chance, the more of them it prefers to fresh draws.",
            description=f"Share among the likeliest 1 % of fresh draws: {'; '.join(told)}.",
            rows=rows,
            series=("under the model", "under the base")[: 1 + (self.base is not None)],
            axis=f"{_TPR}, higher = known better",
            chance=_FPR,
        )

    def _compared(self) -> Iterator[str]:
        yield f"model {self.model.path} ({short_hash(self.model.weights_sha256)})"
        if self.base is not None:
            yield f"base {self.base.path} ({short_hash(self.base.weights_sha256)})"
        asked = self.settings
        yield (
            f"{whole(asked.draws)} fresh draws in the place of each identifier, behind at most "
            f"{whole(asked.left)} characters; seed {asked.seed}"
        )


_NAMED = Column(head=LABELS["format"], value=lambda row: row.format or _ALL, words=True)
_P_VALUE = Column(head=LABELS["p_value"], value="p_value", shown=probability, worse="low")
_COUNTS = (
    _NAMED,
    Column(head="found", value="found", shown=whole),
    Column(head="different", value="distinct", shown=whole),
    Column(head="repeated", value="repeated", shown=whole),
    Column(head="compared", value="compared", shown=whole),
    Column(head="lowest 1 %", value="compared_hits", shown=whole, worse="high"),
    Column(head="one per document", value="tested", shown=whole),
)


def _rates_of(side: str) -> Sequence[Column]:
    """Columns of the rates under the model, or under the base."""
    exposure = Column(head="median exposure", value=f"{side}.median_exposure", shown=2)
    return (
        _NAMED,
        Column(head="lowest 1 %", value=f"{side}.hits", shown=whole, name="hits"),
        Column(head=_TPR, value=f"{side}.tpr", shown=3, name="tpr", worse="high"),
        interval_column(side),
        replace(exposure, name="median_exposure", unit="bits", worse="high"),
        replace(_P_VALUE, value=f"{side}.p_value", name="p_value"),
    )


_DIFFERENCE = (
    _NAMED,
    Column(
        head=f"more {_TPR}",
        value="difference.value",
        shown=lambda value: signed(value, 3),
        name="difference",
        worse="high",
    ),
    interval_column("difference"),
    replace(_P_VALUE, head="p (sign test)", value="difference.p_value", name="p_value"),
)
_SPLIT = (
    Column(head="one per document", value="tested", shown=whole),
    Column(head="in both", value="both", shown=whole),
    Column(head=_TPR, value="model.tpr", shown=3, name="tpr"),
    interval_column("model"),
    Column(head="pairs with the corpus lower", value="area", shown=percent, worse="high"),
    _P_VALUE,
)
_RANKS = tuple(
    Column(head=name, value=name, words=name == "format") for name in IdentifierRank.model_fields
)
_LOWEST = (
    "lowest 1 %: of those compared, under the model; identifiers of one document depend on each "
    "other, so all rates below are of one per document"
)
_RATES = (
    f"{_TPR}: share among the lowest 1 % of the fresh draws, chance has {percent(_FPR)}; exposure "
    "in bits, chance has 1"
)
_HELD_OUT = (
    "the rates are of the held-out identifiers under the model; of pairs, by bits beside their own "
    "draws, chance has 50 %; p: rank sum, one-sided, for documents that were held out at random; "
    "those in both were left out of both"
)
_MEANING = (
    "Each identifier of the corpus, a key for one, was ranked among fresh ones of its format. "
    "Where the model finds those of the corpus likelier than chance does, it may have read them."
)
_SOURCES = {
    "Natural identifiers, ICLR 2026": "",
    "Phipson and Smyth 2010, Permutation P-values Should Never Be Zero": "",
}
