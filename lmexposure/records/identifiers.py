"""identifiers.json: how identifiers that a corpus holds anyway rank among fresh draws."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from lmexposure._files import PRIVATE, read_bytes
from lmexposure._record import (
    BigInteger,
    Count,
    FileRecord,
    Level,
    NotNegative,
    Number,
    Positive,
    Record,
    Rows,
    Sha256,
    Share,
)
from lmexposure._validate import integer
from lmexposure.errors import ResultError

_DRAWS, _MOST, _LEFT = 999, 1000, 200
_FEWEST_DRAWS = 99  # of fewer, not even the lowest rank is among the lowest 1 %


@dataclass(frozen=True, kw_only=True)
class IdentifierSettings:
    """How identifiers of a corpus are looked for and compared.

    Args:
        draws: fresh draws that each is compared with, at least 99.
        most: identifiers that are compared, chosen among all that are found.
        left: characters of the text in front of each that the model reads, at most.
        seed: of choice and draws.
        layout: what a document is; None: by the file's suffix.
        text_field: where documents have fields, the one that holds the text.

    Raises:
        SettingsError: a number out of range.
    """

    draws: int = _DRAWS
    most: int = _MOST
    left: int = _LEFT
    seed: int = 0
    layout: str | None = None
    text_field: str = "text"

    def __post_init__(self) -> None:
        integer("draws", self.draws, low=_FEWEST_DRAWS)
        integer("most", self.most, low=1)
        integer("left", self.left, low=0)
        integer("seed", self.seed, low=0)


class IdentifierRates(Record):
    """What the ranks of some identifiers say under one model.

    Attributes:
        hits: identifiers whose rank is among the lowest 1 % of their comparison.
        tpr: their share: TPR at a FPR of 1 %; chance has at most .01.
        low, high: its interval, Clopper-Pearson.
        median_exposure: in bits; chance has 1.
        p_value: how often chance alone gives ranks that are as low together, Fisher's test.
        null: whether the ranks are those of chance: the test does not reject at 5 %, and `high` is
            at most .05.
    """

    hits: Count
    tpr: Share
    low: Share
    high: Share
    median_exposure: NotNegative
    p_value: Share
    null: bool


class IdentifierDifference(Record):
    """The model beside the base, on the same comparisons.

    Attributes:
        value: TPR under the model - TPR under the base.
        low, high: its interval; wider than it need be, as if the two were independent.
        p_value: how often chance has as many identifiers rank lower under one of the two, the sign
            test of pairs.
    """

    value: Number
    low: Number
    high: Number
    p_value: Share


class IdentifierClass(Record):
    """The identifiers of one format, or of all of them.

    Attributes:
        format: its name; None: all formats together.
        space_size: how many fills the format has; None of all formats.
        found: occurrences in the corpus.
        distinct: different identifiers.
        repeated: those that are in the corpus more than once.
        compared: those that were compared with fresh draws.
        compared_hits: of these, those among the lowest 1 % under the model; identifiers of one
            document depend on each other, so that there is no interval.
        tested: those that the rates are of: one per document.
        model: their rates under the model; None where there are none.
        base: under the base; None where there is none.
        difference: between the two; None where there is no base.
    """

    format: str | None
    space_size: BigInteger | None
    found: Count
    distinct: Count
    repeated: Count
    compared: Count
    compared_hits: Count
    tested: Count
    model: IdentifierRates | None
    base: IdentifierRates | None
    difference: IdentifierDifference | None

    @model_validator(mode="after")
    def _tested_have_rates(self) -> Self:
        if (self.model is None) != (self.tested == 0):
            raise ValueError(f"tested={self.tested} does not go with the rates under the model")
        return self


class IdentifierRank(Record):
    """One identifier: where it is, and its rank, never its text.

    Attributes:
        format: its format.
        file: of the corpus, from 0 in `files`.
        document: in this file, from 1; where each line is a document, the line.
        times: how often it is in the corpus.
        tested: whether it is the one of its document that the rates are of.
        rank: among fresh draws under the model, from 1.
        base_rank: under the base; None where there is none.
    """

    format: str
    file: Count
    document: Positive
    times: Positive
    tested: bool
    rank: Positive
    base_rank: Positive | None


class IdentifierModel(Record):
    """A model that was compared.

    Attributes:
        path: its directory or hub name.
        weights_sha256: of its weights.
    """

    path: str
    weights_sha256: Sha256


class IdentifierSplit(Record):
    """Identifiers of the documents that a random split held out of the training.

    Attributes:
        files: names of the files with these documents.
        documents: how many there are.
        tested: those with an identifier, one of each.
        both: identifiers that corpus and held-out documents share, which were left out of both.
        model: rates of the held-out ones under the model, among fresh draws.
        area: share of pairs in which that of the corpus lies lower, in bits beside the median of
            its own draws; chance has .5.
        p_value: how often a random split has as many such pairs, one-sided.
    """

    files: Rows[str]
    documents: Count
    tested: Positive
    both: Count
    model: IdentifierRates
    area: Share
    p_value: Share


IdentifierClaim = Literal["membership", "distribution or membership", "nothing found"]


class IdentifiersRecord(FileRecord):
    """identifiers.json: an audit after the fact, without insertion.

    Attributes:
        model: the audited model.
        base: a model that never saw the corpus; None where none was given.
        files: names of the corpus's files.
        documents: of the corpus.
        draws: fresh draws that each identifier was compared with.
        left: characters of the text in front of each that were read, at most.
        seed: of choice and draws.
        level: of the intervals.
        needed: identifiers in different documents that the claim takes.
        split: beside held-out documents; None where none were given.
        uniform_source: whether all that were compared are UUIDs of version 4, which are random by
            their standard.
        foretold: identifiers that were left out, because the text in front holds a part of them.
        claim: "membership": they lie lower than those that a random split held out, or, without
            such, lower than chance and are random by their standard; "distribution or membership":
            lower than chance, which may be what such identifiers look like; "nothing found".
        reason: why, in words.
        classes: format by format; the last is of all formats.
        identifiers: each that was compared.
        warnings: what a reader must know, a sentence each.
    """

    NAME: ClassVar[str] = "identifiers.json"
    FAMILY: ClassVar[str] = "lmexposure.identifiers"
    VERSION: ClassVar[int] = 1
    AGAIN: ClassVar[str] = "run `lmexposure identifiers` again"

    model: IdentifierModel
    base: IdentifierModel | None
    files: Rows[str]
    documents: Count
    draws: Positive
    left: Count
    seed: Count
    level: Level
    needed: Positive
    split: IdentifierSplit | None
    uniform_source: bool
    foretold: Count
    claim: IdentifierClaim
    reason: str
    classes: Rows[IdentifierClass]
    identifiers: Rows[IdentifierRank]
    warnings: Rows[str]

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if any(max(row.rank, row.base_rank or 1) > self.draws + 1 for row in self.identifiers):
            raise ValueError(f"a rank is above draws + 1 = {self.draws + 1}")
        if any((row.base_rank is None) != (self.base is None) for row in self.identifiers):
            raise ValueError("identifiers have ranks under a base where there is one, else none")
        return self

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read an identifiers.json.

        Raises:
            ResultError: no such file, or none that `lmexposure identifiers` wrote; it says why.
        """
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ResultError(
                f"cannot read {path}: {failure.strerror}; give an identifiers.json of `lmexposure "
                "identifiers`"
            ) from failure
        return cls.parse(content, Path(path))

    def save(self, path: str | Path) -> None:
        """Write the file, readable by its owner alone.

        Raises:
            FileError: the disk refused.
        """
        self.write(Path(path), mode=PRIVATE)
