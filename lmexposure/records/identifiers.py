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
    """How identifiers of a corpus are looked for and compared."""

    draws: int = _DRAWS  # fresh draws that each is compared with, at least 99
    most: int = _MOST  # identifiers that are compared, chosen among all that are found
    left: int = _LEFT  # characters of the text in front of each that the model reads, at most
    seed: int = 0  # of choice and draws
    layout: str | None = None  # what a document is; None: by the file's suffix
    text_field: str = "text"  # where documents have fields, the one that holds the text

    def __post_init__(self) -> None:
        integer("draws", self.draws, low=_FEWEST_DRAWS)
        integer("most", self.most, low=1)
        integer("left", self.left, low=0)
        integer("seed", self.seed, low=0)


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


class IdentifiersRecord(FileRecord):
    """identifiers.json: an audit after the fact, without insertion."""

    NAME: ClassVar[str] = "identifiers.json"
    FAMILY: ClassVar[str] = "lmexposure.identifiers"
    VERSION: ClassVar[int] = 1
    AGAIN: ClassVar[str] = "run `lmexposure identifiers` again"

    model: IdentifierModel  # the audited model
    base: IdentifierModel | None  # a model that never saw the corpus; None where none was given
    files: Rows[str]  # names of the corpus's files
    documents: Count  # of the corpus
    draws: Positive  # fresh draws that each identifier was compared with
    left: Count  # characters of the text in front of each that were read, at most
    seed: Count  # of choice and draws
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
        if any(max(row.rank, row.base_rank or 1) > self.draws + 1 for row in self.identifiers):
            raise ValueError(f"a rank is above draws + 1 = {self.draws + 1}")
        if any((row.base_rank is None) != (self.base is None) for row in self.identifiers):
            raise ValueError("identifiers have ranks under a base where there is one, else none")
        return self

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read an identifiers.json."""
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ResultError(
                f"cannot read {path}: {failure.strerror}; give an identifiers.json of `lmexposure "
                "identifiers`"
            ) from failure
        return cls.parse(content, Path(path))

    def save(self, path: str | Path) -> None:
        """Write the file, readable by its owner alone."""
        self.write(Path(path), mode=PRIVATE)
