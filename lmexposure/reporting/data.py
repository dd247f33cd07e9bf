"""What a report shows, as plain data: the step before any page, table or chart."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmexposure.core import Fact, Verdict
from lmexposure.studies import (
    BaseClass,
    CheckpointClass,
    DpClaim,
    Evaluation,
    KindMembership,
    Privacy,
    Provenance,
    Role,
    SkewNormalFit,
    VerbatimRecord,
    WhiteBoxAudit,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a report in words, for whatever shows it: a terminal, Markdown."""

    title: str  # what it is about, in one line
    columns: tuple[str, ...] = ()  # heads of the table; none where there is no table
    rows: tuple[tuple[str, ...], ...] = ()  # its cells, as people read them, one for each column
    words: int = 1  # how many of the first columns hold words; the others hold numbers
    notes: tuple[str, ...] = ()  # what belongs to it and needs no column, one line each


@dataclass(frozen=True, kw_only=True)
class Found:
    """How many secrets of a class were found with a given number of guesses or characters."""

    given: int  # guesses allowed, or characters revealed
    # found, of: found of searched for
    found: int
    of: int
    by_chance: float  # how many guessing alone would find, in expectation


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """One format and number of repetitions; all numbers in bits, higher = more memorised."""

    role: Role  # "canary" or "control"; a control has repetitions 0
    repetitions: int
    n: int  # how many canaries
    mean: float
    # median, low, high: median exposure with its interval at `level`; `low` or `high` None where
    # too few canaries give no interval
    median: float
    low: float | None
    high: float | None
    level: float
    capped: bool  # the median is a lower bound
    p_value: float | None  # of the permutation test against guessing
    epsilon: float | None  # point value in nats (Jagielski 2023), not a bound; None for controls
    exact: int  # canaries whose rank was counted over all of R
    guesses: tuple[Found, ...]  # secrets found by best-first search within each number of guesses
    # secrets found by greedy search or beam with each number of characters given, the better of
    # both
    revealed: tuple[Found, ...]
    mean_capped: bool = False  # the mean is one, which takes a single exposure that is
    high_capped: bool = False  # `high` is one
    # median of the proven lower bounds of each exposure; None where there are none
    certificate: float | None = None
    # median by extrapolation along the curve through the references
    skew_normal: float | None = None
    skew_normal_doubted: bool = False  # the references do not vouch for it


@dataclass(frozen=True, kw_only=True)
class CanaryRow:
    """One canary or control."""

    # id, role, repetitions: as in the result; a control has repetitions 0
    id: str
    role: Role
    repetitions: int
    log_perplexity_bits: float | None  # bits, lower = more memorised; None where it is missing
    # exposure, low, high: bits, higher = more memorised; None where missing
    exposure: float | None
    low: float | None
    high: float | None
    capped: bool  # the exposure is a lower bound
    method: str  # how it was estimated
    rank: str | None  # 1 + fills never inserted that are as likely, as text; None where not known
    # place among all fills in a proven order, at which an attacker finds it who knows the format
    # alone; None where it was not found
    guesses: int | None
    guesses_tried: int | None  # how many guesses were made; None where none were
    # the fewest revealed characters with which it was found by greedy search or beam; None where it
    # was not found, or chance would have
    revealed: int | None
    secret: str | None = None  # only where it was asked for


@dataclass(frozen=True, kw_only=True)
class BaseDot:
    """One canary or control beside the base; exposures in bits, by ranks among the references."""

    # role, repetitions: as in the result; a control has repetitions 0
    role: Role
    repetitions: int
    base: float  # under the base; higher = likelier before the training
    calibrated: float  # by log-perplexity minus the base's; higher = more memorised
    capped: bool  # `calibrated` is a lower bound


@dataclass(frozen=True, kw_only=True)
class BaseData:
    """A format beside the base."""

    classes: tuple[BaseClass, ...]  # controls first, then ascending repetitions
    canaries: tuple[BaseDot, ...]  # controls included; those with both exposures


@dataclass(frozen=True, kw_only=True, eq=False)
class FormatData:
    """One format: its canaries, and the references that they were compared with."""

    name: str  # of the format
    pattern: str | None  # its text with holes; None without a manifest
    bits: float  # log2 of the size of the randomness space
    space_size: str  # that size, exactly, as text
    references: int  # how many were scored; `exhaustive` where they are all others there are
    exhaustive: bool
    classes: tuple[ClassRow, ...]  # controls first, then ascending repetitions
    canaries: tuple[CanaryRow, ...]  # controls included
    # log-perplexities of the references, shape (n,), bits; empty without scores
    reference_bits: Floats
    fit: SkewNormalFit | None  # the skew-normal curve through the references; None without
    # of the reference log-perplexities, as the result holds them: least, 1, 5, 25, 50, 75, 95, 99
    # %, largest
    quantiles: tuple[float, ...]
    base: BaseData | None = None  # the same beside the base model; None where none was measured


@dataclass(frozen=True, kw_only=True, eq=False)
class RocData:
    """The ROC of one class of canaries against all that was never inserted."""

    name: str  # the class, as people read it
    repetitions: int  # of the class
    # fpr, tpr: corners of the ordinary curve, ascending, shape (k,)
    fpr: Floats
    tpr: Floats
    # hull_fpr, hull_tpr: of its concave hull
    hull_fpr: Floats
    hull_tpr: Floats
    # positives, negatives: how many texts are on either side; a rate below one over `negatives` is
    # not resolvable
    positives: int
    negatives: int
    area: float  # under the ordinary curve, with `area_low` and `area_high`
    area_low: float
    area_high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportData:
    """Everything that a report shows."""

    title: str  # name of the run
    verdict: Verdict  # of the gate with the thresholds that were asked for, else its defaults
    provenance: Provenance  # which version measured which model, and when
    model: tuple[Fact, ...]  # what was measured
    formats: tuple[FormatData, ...]  # in the result's order
    # bounds, membership and claim, as the result holds them; None where it has none
    privacy: Privacy | None
    roc: tuple[RocData, ...]  # classes whose scores are at hand
    training: tuple[Evaluation, ...]  # its curve, in order; empty where it is not on record
    settings: tuple[Fact, ...]  # all that were chosen, and seeds and versions
    command: str | None  # what gives this result again; None where it is not known
    warnings: tuple[str, ...]  # of the result
    where: str = ""  # the directory that it is given in, and what must be there
    # how often, at most, the gate calls a model leaking that memorised nothing
    significance: float = 0.01
    redacted: bool = True  # whether secrets are left out
    # the classes under each checkpoint, in order; empty where one was measured
    trajectory: tuple[CheckpointClass, ...] = ()
    # in which rows canaries and references were scored, a sentence; "" where the result does not
    # say
    scored: str = ""
    rows_unknown: bool = False  # whether that is not known of the training
    kinds: tuple[KindMembership, ...] = ()  # classes of chosen texts; empty where there are none
    promise: DpClaim | None = None  # of the training; None: there was none
    # scores of canaries in the gradients; None: there were none
    white_box: WhiteBoxAudit | None = None
    # a look at memorised text of the same weights; None: there was none
    memorised: VerbatimRecord | None = None
