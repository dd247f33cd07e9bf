"""What a report shows, as plain data: the step before any page, table or chart."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmexposure.gate import Verdict
from lmexposure.records import (
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
class Fact:
    """A name and a value that people read, and what the name means where that is not plain."""

    name: str
    value: str
    meaning: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a report in words, for whatever shows it: a terminal, Markdown.

    Attributes:
        title: what it is about, in one line.
        columns: heads of the table; none where there is no table.
        rows: its cells, as people read them, one for each column.
        words: how many of the first columns hold words; the others hold numbers.
        notes: what belongs to it and needs no column, one line each.
    """

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    words: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Found:
    """How many secrets of a class were found with a given number of guesses or characters.

    Attributes:
        given: guesses allowed, or characters revealed.
        found, of: found of searched for.
        by_chance: how many guessing alone would find, in expectation.
    """

    given: int
    found: int
    of: int
    by_chance: float


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """One format and number of repetitions; all numbers in bits, higher = more memorised.

    Attributes:
        role: "canary" or "control"; a control has repetitions 0.
        n: how many canaries.
        median, low, high: median exposure with its interval at `level`; `low` or `high` None where
            too few canaries give no interval.
        capped: the median is a lower bound.
        mean_capped: the mean is one, which takes a single exposure that is.
        high_capped: `high` is one.
        certificate: median of the proven lower bounds of each exposure; None where there are none.
        skew_normal: median by extrapolation along the curve through the references.
        skew_normal_doubted: the references do not vouch for it.
        p_value: of the permutation test against guessing.
        epsilon: point value in nats (Jagielski 2023), not a bound; None for controls.
        exact: canaries whose rank was counted over all of R.
        guesses: secrets found by best-first search within each number of guesses.
        revealed: secrets found by greedy search or beam with each number of characters given, the
            better of both.
    """

    role: Role
    repetitions: int
    n: int
    mean: float
    median: float
    low: float | None
    high: float | None
    level: float
    capped: bool
    p_value: float | None
    epsilon: float | None
    exact: int
    guesses: tuple[Found, ...]
    revealed: tuple[Found, ...]
    mean_capped: bool = False
    high_capped: bool = False
    certificate: float | None = None
    skew_normal: float | None = None
    skew_normal_doubted: bool = False


@dataclass(frozen=True, kw_only=True)
class CanaryRow:
    """One canary or control.

    Attributes:
        id, role, repetitions: as in the result; a control has repetitions 0.
        log_perplexity_bits: bits, lower = more memorised; None where it is missing.
        exposure, low, high: bits, higher = more memorised; None where missing.
        capped: the exposure is a lower bound.
        method: how it was estimated.
        rank: 1 + fills never inserted that are as likely, as text; None where not known.
        guesses: place among all fills in a proven order, at which an attacker finds it who knows
            the format alone; None where it was not found.
        guesses_tried: how many guesses were made; None where none were.
        revealed: the fewest revealed characters with which it was found by greedy search or beam;
            None where it was not found, or chance would have.
        secret: only where it was asked for.
    """

    id: str
    role: Role
    repetitions: int
    log_perplexity_bits: float | None
    exposure: float | None
    low: float | None
    high: float | None
    capped: bool
    method: str
    rank: str | None
    guesses: int | None
    guesses_tried: int | None
    revealed: int | None
    secret: str | None = None


@dataclass(frozen=True, kw_only=True)
class BaseDot:
    """One canary or control beside the base; exposures in bits, by ranks among the references.

    Attributes:
        role, repetitions: as in the result; a control has repetitions 0.
        base: under the base; higher = likelier before the training.
        calibrated: by log-perplexity minus the base's; higher = more memorised.
        capped: `calibrated` is a lower bound.
    """

    role: Role
    repetitions: int
    base: float
    calibrated: float
    capped: bool


@dataclass(frozen=True, kw_only=True)
class BaseData:
    """A format beside the base.

    Attributes:
        classes: controls first, then ascending repetitions.
        canaries: controls included; those with both exposures.
    """

    classes: tuple[BaseClass, ...]
    canaries: tuple[BaseDot, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class FormatData:
    """One format: its canaries, and the references that they were compared with.

    Attributes:
        name: of the format.
        pattern: its text with holes; None without a manifest.
        bits: log2 of the size of the randomness space.
        space_size: that size, exactly, as text.
        references: how many were scored; `exhaustive` where they are all others there are.
        classes: controls first, then ascending repetitions.
        canaries: controls included.
        reference_bits: log-perplexities of the references, shape (n,), bits; empty without scores.
        fit: the skew-normal curve through the references; None without.
        quantiles: of the reference log-perplexities, as the result holds them: least, 1, 5, 25, 50,
            75, 95, 99 %, largest.
        base: the same beside the base model; None where none was measured.
    """

    name: str
    pattern: str | None
    bits: float
    space_size: str
    references: int
    exhaustive: bool
    classes: tuple[ClassRow, ...]
    canaries: tuple[CanaryRow, ...]
    reference_bits: Floats
    fit: SkewNormalFit | None
    quantiles: tuple[float, ...]
    base: BaseData | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class RocData:
    """The ROC of one class of canaries against all that was never inserted.

    Attributes:
        name: the class, as people read it.
        repetitions: of the class.
        fpr, tpr: corners of the ordinary curve, ascending, shape (k,).
        hull_fpr, hull_tpr: of its concave hull.
        positives, negatives: how many texts are on either side; a rate below one over
            `negatives` is not resolvable.
        area: under the ordinary curve, with `area_low` and `area_high`.
    """

    name: str
    repetitions: int
    fpr: Floats
    tpr: Floats
    hull_fpr: Floats
    hull_tpr: Floats
    positives: int
    negatives: int
    area: float
    area_low: float
    area_high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportData:
    """Everything that a report shows.

    Attributes:
        title: name of the run.
        verdict: of the gate with the thresholds that were asked for, else its defaults.
        provenance: which version measured which model, and when.
        model: what was measured.
        formats: in the result's order.
        privacy: bounds, membership and claim, as the result holds them; None where it has none.
        roc: classes whose scores are at hand.
        training: its curve, in order; empty where it is not on record.
        settings: all that were chosen, and seeds and versions.
        command: what gives this result again; None where it is not known.
        where: the directory that it is given in, and what must be there.
        warnings: of the result.
        significance: how often, at most, the gate calls a model leaking that memorised nothing.
        redacted: whether secrets are left out.
        trajectory: the classes under each checkpoint, in order; empty where one was measured.
        scored: in which rows canaries and references were scored, a sentence; "" where the result
            does not say.
        rows_unknown: whether that is not known of the training.
        kinds: classes of chosen texts; empty where there are none.
        promise: of the training; None: there was none.
        white_box: scores of canaries in the gradients; None: there were none.
        memorised: a look at memorised text of the same weights; None: there was none.
    """

    title: str
    verdict: Verdict
    provenance: Provenance
    model: tuple[Fact, ...]
    formats: tuple[FormatData, ...]
    privacy: Privacy | None
    roc: tuple[RocData, ...]
    training: tuple[Evaluation, ...]
    settings: tuple[Fact, ...]
    command: str | None
    warnings: tuple[str, ...]
    where: str = ""
    significance: float = 0.01
    redacted: bool = True
    trajectory: tuple[CheckpointClass, ...] = ()
    scored: str = ""
    rows_unknown: bool = False
    kinds: tuple[KindMembership, ...] = ()
    promise: DpClaim | None = None
    white_box: WhiteBoxAudit | None = None
    memorised: VerbatimRecord | None = None
