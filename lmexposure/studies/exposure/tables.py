"""Tables of a run: exposure, beside the base, secrets found, checkpoints, canaries, chosen texts.

And bounds on epsilon, membership, claim and promise. Each quantity of a class has one way to be
written, wherever it is shown.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from lmexposure._style import (
    CHANCE,
    LABELS,
    MISSING,
    at_least,
    bits,
    bound_name,
    claim_word,
    class_name,
    conditions_of,
    count,
    found_of,
    interval,
    nats,
    number,
    percent,
    probability,
    setting_value,
    short,
    validity,
    whole,
)
from lmexposure.core import Column, Outcome, Section, Table, Verdict, facts, interval_column
from lmexposure.statistics import (
    AreaUnderCurve,
    ClaimCheck,
    EpsilonBound,
    GuessingBaseline,
    JointBounds,
    PrimaryBound,
    Privacy,
    PrivacyClass,
    TprAtFpr,
)
from lmexposure.studies.dp import PRIVATE_NOTES, DpClaim
from lmexposure.studies.exposure.parts import BaseClass, FormatResult, KindMembership
from lmexposure.studies.exposure.record import CheckpointClass
from lmexposure.studies.exposure.rows import CanaryRow, ClassRow, FormatData, Found
from lmexposure.studies.sweep_tables import kind_lines
from lmexposure.studies.white_box import inside_notes, inside_table

DOUBT = "(!)"
GUESSING = "guessing"
_MEAN_OF_GUESSING = 1 / math.log(2)


def ends_column(of: str = "", *, capped: str = "") -> Column:
    """The interval of a row, or of a part of it; `capped`: what says that it may end later."""
    low, high, flag = (Column(value=name) for name in (f"{of}low", f"{of}high", capped))
    return Column(
        head=LABELS["interval"],
        value=lambda row: (low.of(row), high.of(row)),
        written=lambda row: interval(
            low.of(row), high.of(row), capped=bool(capped and flag.of(row))
        ),
        unit="bits",
    )


def _more(head: str, value: str, *, capped: str = "", name: str = "", unit: str = "bits") -> Column:
    """A number of which more is worse; `capped`: what says that it is a lower bound."""
    own, flag = Column(value=value), Column(value=capped)
    return Column(
        head=LABELS[head],
        value=value,
        written=lambda row: at_least(own.of(row), bool(capped and flag.of(row))),
        name=name,
        unit=unit,
        worse="high",
    )


def _p_value(value: str) -> Column:
    return Column(head=LABELS["p_value"], value=value, shown=probability, worse="low")


def _counts(**values: str) -> list[Column]:
    return [Column(head=LABELS[name], value=value, shown=whole) for name, value in values.items()]


def _bound(of: str) -> list[Column]:
    """What a bound is, and what it could have been."""
    value, most = LABELS["epsilon_bound"], LABELS["max_attainable"]
    return [
        Column(head=value, value=f"{of}.value", shown=nats, unit="nats", worse="high"),
        Column(head=most, value=f"{of}.max_attainable", shown=nats, unit="nats"),
    ]


def _rate_column(head: str, value: str, fpr: float | None = None) -> Column:
    """A rate with its interval; of true positives that at this rate of false ones."""
    found = Column(value=value)

    def rate(row: object) -> AreaUnderCurve | TprAtFpr | None:
        of_row: Sequence[TprAtFpr] | AreaUnderCurve | None = found.of(row)
        if isinstance(of_row, Sequence):
            return next((at for at in of_row if at.fpr == fpr), None)
        return of_row

    return Column(
        head=head,
        value=lambda row: None if (own := rate(row)) is None else own.value,
        written=lambda row: _with_ends(rate(row)),
        worse="high",
    )


def _with_ends(rate: AreaUnderCurve | TprAtFpr | None) -> str:
    """A rate with its interval."""
    if rate is None or rate.value is None:
        return MISSING
    return f"{number(rate.value, 3)} ({interval(rate.low, rate.high, 3)})"


def _exact(value: str) -> Column:
    own = Column(value=value)
    return Column(
        head=LABELS["exact"],
        value=value,
        name="exact",
        written=lambda row: f"{own.of(row):,}/{row.n:,}",
    )


_FORMAT = Column(head=LABELS["format"], value="format", words=True)
REPETITIONS = Column(
    head=LABELS["repetitions"],
    value="repetitions",
    written=lambda row: class_name("canary" if row.repetitions else "control", row.repetitions),
    words=True,
)
_N = Column(head=LABELS["n"], value="n", shown=whole)
_CLASS: dict[str, Column] = {
    "format": _FORMAT,
    "repetitions": REPETITIONS,
    "n": _N,
    "mean": _more("mean", "mean", capped="capped"),
    "median": _more("median", "median.value", capped="median_capped", name="median"),
    "interval": ends_column("median.", capped="high_capped"),
    "exact": _exact("counted"),
    "p_value": _p_value("p_value"),
    "certificate": _more("certificate", "certificate"),
    "skew_normal": Column(
        head=LABELS["skew_normal"],
        value="skew_normal",
        written=lambda row: number(row.skew_normal) + f" {DOUBT}" * row.skew_normal_doubted,
        unit="bits",
        worse="high",
    ),
    "epsilon_point": _more(
        "epsilon_point", "epsilon.value", capped="median_capped", name="epsilon", unit="nats"
    ),
    "guesses": Column(
        head=LABELS["guesses"],
        value=lambda row: row.guesses[-1].found if row.guesses else None,
        written=lambda row: found_cell(row.tries[-1] if row.tries else None),
        worse="high",
    ),
}
_EXPOSURE = (
    *("repetitions", "n", "median", "interval", "mean", "p_value", "exact", "certificate"),
    *("skew_normal", "epsilon_point"),
)
_OVERVIEW = ("format", "repetitions", "n", "median", "interval", "p_value", "guesses")
_CONTROLS = ("format", "n", "median", "interval", "mean", "p_value")
_BESIDE_BASE = (
    REPETITIONS,
    _N,
    _more("calibrated", "calibrated.value", capped="calibrated_capped"),
    ends_column("calibrated."),
    _more("mean", "calibrated_mean", capped="capped"),
    _p_value("guessing_test.p_value"),
    Column(head=LABELS["base"], value="exposure.value", shown=number, unit="bits"),
    _more("added", "added", capped="added_capped"),
    _more("gained", "gained_bits"),
    Column(
        head=LABELS["reference_gained"], value="reference_gained_bits", shown=number, unit="bits"
    ),
)
_TRAJECTORY = (
    Column(head=LABELS["checkpoint"], value="checkpoint", words=True),
    _FORMAT,
    REPETITIONS,
    Column(head=LABELS["step"], value="step", shown=whole),
    _N,
    _more("median", "median"),
    ends_column(),
    _exact("exact"),
)
_LEAKS = "yes"
# What the checks of a class come to, the worst first.
_LEAK = {Outcome.LEAK: _LEAKS, Outcome.INCONCLUSIVE: "undecided", Outcome.PASS: "no"}
# What heads of columns mean.
_HEADS = {
    "exact": "ranks counted over all possible secrets; the others come from draws or references",
    "p_value": "how often chance alone gives such a mean (controls: in either direction)",
    "certificate": "median of the bound proven for each canary: the bits of its format less those "
    "of its secret under the model",
    "skew_normal": "median by extrapolation along a curve through the references",
    "calibrated": "median by ranks of log-perplexity minus the base's: what was likely anyway does "
    "not count (Jagielski 2023)",
    "base": "median exposure before the training, by ranks among the references",
    "added": "median of exposure by such ranks minus that under the base",
    "gained": "bits, median; by so much did the training make a canary likelier",
    "epsilon_point": "an estimate, not a bound: ln 2 (median - 1) / repetitions (Jagielski 2023)",
}
# Signs in heads and cells: how the legend names them, where they are, what they mean.
_SIGNS = (
    ("≥", "≥", "at least this: more draws, references or search could show more"),
    (
        DOUBT,
        re.escape(DOUBT),
        "do not rely on it: the curve fits badly, was not tested (--estimate skew_normal does), or "
        "goes beyond the references, where even a good fit proves nothing",
    ),
    (
        "guesses",
        r"guess(es)?$",
        "tries of the likeliest of all possible secrets, in a proven order (best-first search)",
    ),
    ("known", r"known$", "characters of the secret that the search was given (greedy or beam)"),
    ("in brackets", r"^\(", "guessing alone would find half as many or more"),
    (CHANCE, f"^{CHANCE}$", "probability that guessing without a model finds one secret"),
)


def class_table(rows: Sequence[ClassRow], guessing: GuessingBaseline) -> Table:
    """All that is said of the exposure of one format's classes; what guessing gives below."""
    known = {
        "repetitions": GUESSING,
        "mean": number(guessing.mean),
        "median": number(guessing.median),
    }
    foot = tuple(known.get(name, "") for name in _EXPOSURE)
    return Table(rows, [_CLASS[name] for name in _EXPOSURE], [foot])


def class_title(form: FormatResult) -> str:
    """What that table is of."""
    references = count(form.references, "reference")
    among = f"all {form.references:,} others" if form.exhaustive else references
    return (
        f"Exposure in bits, {form.name}: {whole(form.space_size)} possible secrets "
        f"({bits(form.bits, 1)}), {among}; higher = more memorised"
    )


def base_table(rows: Sequence[BaseClass]) -> Table:
    """The same classes beside the base; below, where the training left nothing."""
    known = {
        LABELS["repetitions"]: GUESSING,
        LABELS["calibrated"]: number(1.0),
        LABELS["mean"]: number(_MEAN_OF_GUESSING),
        LABELS["base"]: number(1.0),
    }
    return Table(rows, _BESIDE_BASE, [[known.get(column.head, "") for column in _BESIDE_BASE]])


def base_title(form: FormatResult) -> str:
    """What that table is of."""
    return (
        f"Calibrated exposure in bits, {form.name}: beside the base, "
        f"{count(form.references, 'reference')}; higher = more memorised"
    )


def found_tables(rows: Sequence[ClassRow]) -> dict[str, Table]:
    """Secrets of a format found with ever more given, by what is; those that were searched for."""
    made = {
        "by guesses tried": _found(
            rows, lambda row: row.tries, lambda n: count(n, "guess", "guesses")
        ),
        "by characters known": _found(rows, lambda row: row.revealed, lambda n: f"{n:,} known"),
    }
    return {how: table for how, table in made.items() if table is not None}


_Counts = Callable[[ClassRow], Sequence[Found]]


def _found(rows: Sequence[ClassRow], counts: _Counts, head: Callable[[int], str]) -> Table | None:
    tried = [row for row in rows if counts(row)]
    given = sorted({found.given for row in tried for found in counts(row)})
    if not given:
        return None
    # The best chance that any class had.
    chances = (
        max(
            (f.by_chance / f.of for row in tried for f in counts(row) if f.given == n and f.of),
            default=None,
        )
        for n in given
    )
    columns = [REPETITIONS, *(_found_column(head(n), counts, n) for n in given)]
    return Table(tried, columns, [(CHANCE, *map(probability, chances))])


def _found_column(head: str, counts: _Counts, given: int) -> Column:
    def of(row: ClassRow) -> Found | None:
        return next((found for found in counts(row) if found.given == given), None)

    return Column(
        head=head,
        value=lambda row: None if (found := of(row)) is None else found.found,
        written=lambda row: found_cell(of(row)),
        worse="high",
    )


def trajectory_table(rows: Sequence[CheckpointClass]) -> tuple[str, Table]:
    """Exposure of each class under each checkpoint of a training, and what it is of."""
    checkpoints = count(len({row.checkpoint for row in rows}), "checkpoint")
    title = f"Exposure in bits, {checkpoints}; higher = more memorised"
    return title, Table(rows, _TRAJECTORY)


def overview(rows: Sequence[ClassRow]) -> tuple[Table, list[str]]:
    """Classes of all formats in one table, with the most that any search was given; its notes."""
    guesses = max((found.given for row in rows for found in row.tries), default=0)
    known = max((found.given for row in rows for found in row.revealed), default=0)
    revealed = _found_column(LABELS["revealed"], lambda row: row.revealed, known)
    notes = [
        *([f"{LABELS['guesses']}: within {guesses:,} of the likeliest secrets"] * bool(guesses)),
        *([f"{LABELS['revealed']}: {count(known, 'character')}"] * bool(known)),
    ]
    return Table(rows, [*(_CLASS[name] for name in _OVERVIEW), *[revealed] * bool(known)]), notes


def tested_table(rows: Sequence[ClassRow], verdict: Verdict) -> Table:
    """Classes as a terminal has room for them: leaks first, what was never inserted last."""
    came = {row.scope: _came_to(row, verdict) for row in rows}
    ordered = sorted(
        rows, key=lambda row: (row.role != "canary", came[row.scope] != _LEAKS, -row.median.value)
    )
    median, ends, found = (_CLASS[name] for name in ("median", "interval", "guesses"))
    columns = [
        _FORMAT,
        Column(
            head="inserted",
            value=lambda row: class_name(row.role, row.repetitions) if row.repetitions else "never",
            words=True,
        ),
        _N,
        Column(head="exposure, bits", value=lambda row: f"{median.cell(row)} ({ends.cell(row)})"),
        Column(head="of", value="form.bits", shown=1),
        found,
        Column(head="leak?", value=lambda row: came[row.scope]),
    ]
    guessing = {"format": GUESSING, "exposure, bits": number(1.0)}
    return Table(ordered, columns, [[guessing.get(column.head, "") for column in columns]])


def _came_to(row: ClassRow, verdict: Verdict) -> str:
    """What the checks of a class came to, in a word."""
    if row.role != "canary":
        return ""
    found = {check.outcome for check in verdict.checks if check.scope == row.scope}
    return next((word for outcome, word in _LEAK.items() if outcome in found), "not tested")


def most_memorised(formats: Sequence[FormatData]) -> list[ClassRow]:
    """Of each format the class with the highest median; controls only where there is no other."""
    return [
        max(form.classes, key=lambda row: (row.role == "canary", row.median.value))
        for form in formats
        if form.classes
    ]


def controls_table(formats: Sequence[FormatData]) -> Table:
    """The controls of each format, above what is to be expected of them."""
    rows = [row for form in formats for row in form.classes if row.role == "control"]
    foot = (GUESSING, "", number(1.0), "", number(_MEAN_OF_GUESSING), "")
    return Table(rows, [_CLASS[name] for name in _CONTROLS], [foot])


def compared_columns(names: Sequence[str]) -> list[Column]:
    """Columns of classes by name, of rows that have the class under `cell`."""
    return [_compared(_CLASS[name]) for name in names]


def _compared(own: Column) -> Column:
    return Column(
        head=own.head,
        value=lambda row: None if row.cell is None else own.of(row.cell),
        written=lambda row: MISSING if row.cell is None else own.cell(row.cell),
        unit=own.unit,
        worse=own.worse,
    )


def canary_table(
    rows: Sequence[CanaryRow], shown: Sequence[CanaryRow], secrets: dict[str, str] | None = None
) -> tuple[Table, Table]:
    """Every canary for files, and those on a page; with secrets where they are given."""
    several = len({row.format for row in rows}) > 1
    chosen = any(row.kind is not None for row in rows)
    beside = any(row.base_exposure is not None for row in rows)
    columns = [
        Column(head="canary", value="id", words=True),
        Column(head="format" if several else "", value="format", words=True),
        Column(head="role", value="role", words=True),
        Column(head=LABELS["repetitions"], value="repetitions", words=True),
        Column(head="method", value="method", words=True),
        *([] if secrets is None else [_secret(secrets)]),
        Column(
            head="exposure, bits",
            value="exposure",
            written=lambda row: at_least(row.exposure, row.capped),
            unit="bits",
            worse="high",
        ),
        Column(head="interval", value="low", written=lambda row: interval(row.low, row.high)),
        Column(value="high", unit="bits"),
        Column(value="capped"),
        Column(head="guesses", value="guesses", written=_guesses, worse="low"),
        Column(value="found_at"),
        Column(value="guesses_tried"),
        Column(
            head="revealed",
            value="revealed",
            written=lambda row: "not found" if row.revealed is None else str(row.revealed),
        ),
        Column(
            head="log-perplexity, bits",
            value="log_perplexity_bits",
            shown=number,
            unit="bits",
            worse="low",
        ),
        Column(head="rank", value="rank", shown=whole, worse="low"),
        Column(value="place"),
        *(Column(value=name, unit="bits") for name in _OF_BASE if beside),
        *(Column(value=name) for name in ("kind", "secret_bits") if chosen),
    ]
    return Table(rows, columns), Table(shown, columns)


_OF_BASE = ("base_log_perplexity_bits", "base_exposure", "calibrated_exposure")


def _secret(secrets: dict[str, str]) -> Column:
    return Column(head="secret", value=lambda row: secrets.get(row.id), name="secret", words=True)


def _guesses(row: CanaryRow) -> str:
    if row.guesses is not None:
        return whole(row.guesses)
    return f"over {whole(row.guesses_proven)}" if row.guesses_proven else MISSING


def quantile_table(form: FormatResult) -> Table:
    """The references of a format, and the curve through them, in numbers."""
    what = Column(head="what", value=lambda row: row[0], words=True)
    return Table(list(_of_references(form)), [what, Column(head="value", value=lambda row: row[1])])


_PLACES = (
    *("the least of them", "1 % of them lie below", "5 % of them lie below"),
    *("25 % of them lie below", "50 % of them lie below", "75 % of them lie below"),
    *("95 % of them lie below", "99 % of them lie below", "the largest of them"),
)


def _of_references(form: FormatResult) -> Iterator[tuple[str, str]]:
    yield "references", whole(form.references)
    for place, value in zip(
        _PLACES, form.reference_bits_quantiles, strict=False
    ):  # old ones keep none
        yield place, number(value)
    fit = form.skew_normal
    if fit is None:
        yield "skew-normal curve", MISSING
        return
    yield "skew-normal location", number(fit.location, 3)
    yield "skew-normal scale", number(fit.scale, 3)
    yield "skew-normal shape", number(fit.shape, 3)
    if fit.goodness is None:
        yield "p-value of the fit (measure --estimate skew_normal tests it)", MISSING
        return
    distance = "largest distance between curve and references (Kolmogorov-Smirnov)"
    yield distance, number(fit.goodness.ks_statistic, 4)
    yield "p-value of the fit (bootstrap)", probability(fit.goodness.ks_p_value)


def found_cell(found: Found | None) -> str:
    """Found of searched for; missing where it was not tried."""
    return MISSING if found is None else found_of(found.found, found.of, found.by_chance)


def how_to_read(tables: Sequence[Table], level: float) -> list[str]:
    """What heads and signs mean; only those that these tables have."""
    heads = {head for table in tables for head in table.heads}
    shown = [*heads, *(cell for table in tables for row in table.cells for cell in row)]
    meant = {"interval": f"of the median, at {percent(level)}"} | _HEADS
    lines = [
        f"{LABELS[name]}: {meaning}" for name, meaning in meant.items() if LABELS[name] in heads
    ]
    lines += [
        f"{sign}: {meaning}"
        for sign, pattern, meaning in _SIGNS
        if any(re.search(pattern, text) for text in shown)
    ]
    return lines


_RATES = (0.01, 0.1)
_CLAIM = (
    "These texts were chosen, not drawn at random, so they have no rank and no exposure. A coin "
    "put each in or left it out: the table says how well the model tells those that went in from "
    "the others"
)


def kinds_section(rows: Sequence[KindMembership]) -> Section:
    """All that is said of the kinds beside the uniform one."""
    return Section(
        id="kinds",
        title="Other kinds of canaries",
        table=Table(rows, _COLUMNS),
        notes=(_CLAIM, *kind_lines(row.kind for row in rows), *_meanings(rows), *_remarks(rows)),
    )


def _meanings(rows: Sequence[KindMembership]) -> Iterator[str]:
    """What the columns mean."""
    yield (
        f"{LABELS['auc']}: how often a canary that was inserted scores above one that was held "
        "out; 0.5 is guessing"
    )
    yield f"{LABELS['p_value']}: how often shuffled coins give as much"
    deltas = sorted({row.bound.delta for row in rows if row.bound is not None})
    if deltas:
        yield (
            f"{LABELS['epsilon_bound']}: in nats, of one document, at delta "
            f"{', '.join(map(short, deltas))}; each bound at its own share of the significance, "
            "apart from the bounds of the uniform canaries; the gate judges each by its threshold"
        )


def _remarks(rows: Sequence[KindMembership]) -> Iterator[str]:
    """Why numbers are missing, and what each bound says of itself."""
    for row in rows:
        if row.note is not None:
            yield f"{row.group}: {row.note}"
        for rate in row.tpr_at_fpr:
            if rate.note is not None and rate.fpr in _RATES:
                yield f"{row.group}: {rate.note}"
        for line in () if row.bound is None else row.bound.notes:
            yield f"{row.group}: {line}"


_COLUMNS = (
    Column(head="kind", value="group", words=True),
    *_counts(inserted="canaries", held_out="held_out"),
    Column(
        head=LABELS["auc"],
        value="area_under_curve.value",
        shown=lambda value: number(value, 3),
        worse="high",
    ),
    interval_column("area_under_curve"),
    *(_rate_column(f"TPR at FPR {percent(rate)}", "tpr_at_fpr", rate) for rate in _RATES),
    _p_value("test.p_value"),
    *_bound("bound"),
    Column(head=LABELS["significance"], value="significance", shown=short),
)


class _BoundRow(NamedTuple):
    bound: EpsilonBound
    primary: bool


_BOUNDS = (
    Column(
        head=LABELS["bound"],
        value="bound.name",
        written=lambda row: bound_name(row.bound.name) + ", primary" * row.primary,
        words=True,
    ),
    Column(head=LABELS["validity"], value="bound.validity", shown=validity, words=True),
    Column(head=LABELS["delta"], value="bound.delta", shown=short),
    *_bound("bound"),
    Column(head=LABELS["significance"], value="bound.significance", shown=short),
)
_FPR = 0.01  # where a table has room for a single rate
MAX_ATTAINABLE = "the most that a perfect attack on these canaries could show"
_PROMISE = (
    "epsilon: whatever is read off the model is at most e^epsilon times as likely, up to delta, as "
    "without {whose}; lower = more private. The audit bounds the same number from below: it can "
    "refute the promise, and never prove it"
)
_GIVEN = (
    "the noise follows from a seed that was given: the promise does not hold against those who "
    "know it"
)
_MEMBERSHIP = (
    f"{LABELS['auc']}: how often a canary that was inserted scores above a text that was not; 0.5 "
    "is guessing",
    "TPR at FPR: the share of canaries found where at most this share of the other texts is "
    "taken for canaries",
)


def privacy_sections(privacy: Privacy) -> Iterator[Section]:
    """Class by class, then the bound to quote and what it rests on."""
    coins = privacy.inclusion_probability
    how = "no inclusion probability is declared"
    if coins is not None:
        how = f"canaries inserted each with probability {setting_value(coins)}"
    yield Section(
        id="bounds",
        title=f"Lower bounds on epsilon of one document, in nats; {how}; higher = less "
        f"private. All hold together at significance {short(privacy.significance)}, each "
        "for its kind of training",
    )
    yield from class_sections(privacy)
    notes = bounds_legend(privacy)
    if notes:
        yield Section(id="how-to-read", title="How to read these bounds", notes=notes)
    title, notes = primary_words(privacy)
    yield Section(id="primary", title=title, notes=notes)


def class_sections(privacy: Privacy) -> Iterator[Section]:
    """The bounds and the membership metrics of each class of repetitions."""
    for place, part in enumerate(privacy.classes, 1):
        bounds, metrics = part.bounds, part.membership
        notes = [] if bounds is None else list(_bound_remarks(bounds))
        if metrics is not None:
            notes.append(f"membership: {LABELS['auc']} {_with_ends(metrics.area_under_curve)}")
            known = [rate for rate in metrics.tpr_at_fpr if rate.value is not None]
            if known:
                notes.append(f"membership: {'; '.join(map(_rate, known))}")
        yield Section(
            id=f"bounds-{place}",
            title=f"{where(part)}: {whole(part.canaries)} {LABELS['inserted']}, "
            f"{whole(part.held_out)} {LABELS['held_out']}, {whole(part.references)} "
            f"{LABELS['references']}",
            table=None
            if bounds is None
            else Table(
                [_BoundRow(bound, bound is bounds.primary) for bound in _all(bounds)], _BOUNDS
            ),
            notes=(*notes, *filter(None, [part.note])),
        )


def _all(bounds: JointBounds | None) -> Sequence[EpsilonBound]:
    return () if bounds is None else (bounds.primary, *bounds.others)


def conditions(part: PrivacyClass) -> Iterator[str]:
    """What each bound of a class rests on."""
    for bound in _all(part.bounds):
        said = [
            f"neighbouring data sets: {bound.adjacency}",
            *(f"assumes: {line}" for line in bound.assumptions),
            *([f"threshold: {bound.threshold_choice}"] if bound.threshold_choice else []),
        ]
        name = (
            f"{bound_name(bound.name)} at delta {short(bound.delta)} ({validity(bound.validity)})"
        )
        yield f"{name}: {'; '.join(said)}"


def where(about: PrivacyClass | PrimaryBound) -> str:
    """Which formats and repetitions a bound is about."""
    return ", ".join(filter(None, [*about.formats, f"repetitions {about.repetitions}"]))


def _bound_remarks(bounds: JointBounds) -> Iterator[str]:
    """What belongs to single bounds, each remark once, and which are not supported."""
    of = dict[str, list[str]]()
    for bound in _all(bounds):
        for line in bound.notes:
            name = f"{bound_name(bound.name)} at delta {short(bound.delta)}"
            of.setdefault(line, []).append(name)
    for refused in bounds.refused:
        of.setdefault(f"not given: {refused.reason}", []).append(bound_name(refused.method))
    for line, names in of.items():
        yield f"{', '.join(names)}: {line}"


def _rate(rate: TprAtFpr) -> str:
    return f"TPR {_with_ends(rate)} at FPR {short(rate.fpr)}"


def bounds_overview(privacy: Privacy) -> tuple[Table, list[str]]:
    """Each class with its primary bound and its membership metrics; reasons as notes."""
    notes = [f"{where(part)}: {part.note}" for part in privacy.classes if part.note]
    return Table(privacy.classes, _BOUNDS_OVERVIEW), notes


OVERVIEW_TITLE = (
    "Each class: its primary bound, and how well its canaries are distinguished from texts that "
    "were never inserted"
)


def bounds_legend(privacy: Privacy) -> list[str]:
    """What the tables hold; only of what is there."""
    bounds = [bound for part in privacy.classes for bound in _all(part.bounds)]
    kinds = dict.fromkeys(bound.validity for bound in bounds)
    primary = "primary: chosen beforehand by how the canaries were drawn; it has half the "
    lines = [f"{primary}significance"] * bool(bounds)
    lines += map(conditions_of, kinds)
    if any(bound.max_attainable is not None for bound in bounds):
        lines.append(f"{LABELS['max_attainable']}: {MAX_ATTAINABLE}")
    if any(part.membership is not None for part in privacy.classes):
        lines += _MEMBERSHIP
    return lines


def primary_words(privacy: Privacy | None) -> tuple[str, list[str]]:
    """The bound to quote, and its conditions."""
    if privacy is None:
        return "No bound on epsilon: the result holds none.", []
    bound, notes = privacy.primary, [f"note: {line}" for line in privacy.notes]
    if bound is None:
        return (
            "No bound on epsilon: no class has both inserted and held out canaries.",
            [*notes, *claim_lines(privacy.claim)],
        )
    title = (
        f"{LABELS['epsilon_bound']} {nats(bound.value)} nats at delta {short(bound.delta)}, "
        f"a lower bound ({bound_name(bound.name)}; {where(bound)}; {bound.adjacency}); higher = "
        "less private."
    )
    # Of several classes the one where most is attainable need not be the one quoted.
    everywhere = f" of all {len(privacy.classes)} classes" if len(privacy.classes) > 1 else ""
    return title, [
        f"{conditions_of(bound.validity)}; at significance {short(bound.significance)} (how often, "
        f"at most, it is wrong), all bounds here together at {short(privacy.significance)}",
        f"{LABELS['max_attainable']}{everywhere} {nats(privacy.max_attainable)}: {MAX_ATTAINABLE}",
        *(f"assumes: {line}" for line in bound.assumptions),
        *notes,
        *claim_lines(privacy.claim),
    ]


def claim_lines(claim: ClaimCheck | None) -> Iterator[str]:
    """What the bounds say of a claim; nothing without one."""
    if claim is not None:
        claimed, delta = map(setting_value, (claim.claimed_epsilon, claim.claimed_delta))
        claimed_at = f"epsilon {claimed} at delta {delta}"
        yield f"claim of {claimed_at}: {claim_word(claim.verdict)}: {claim.reason}{_power(claim)}"


def _power(claim: ClaimCheck) -> str:
    """What the audit could have shown; nothing where that is not known."""
    if claim.could_show is None or claim.verdict == "contradicted":
        return ""
    chance = f"with probability {short(claim.power)}"
    if claim.refutable_from is None:
        found = "no leak, however large, would have contradicted the claim as often"
    else:
        found = (
            "an ideal attack would have contradicted the claim as often if the true epsilon were "
            f"{nats(claim.refutable_from)} or more"
        )
    return f"; this audit could have shown up to {nats(claim.could_show)} {chance}, and {found}"


_BOUNDS_OVERVIEW = (
    Column(head="class", value=where, words=True),
    Column(head=LABELS["validity"], value="bounds.primary.validity", shown=validity, words=True),
    *_counts(inserted="canaries", held_out="held_out", references="references"),
    *_bound("bounds.primary"),
    _rate_column(LABELS["auc"], "membership.area_under_curve"),
    _rate_column(f"TPR at FPR {short(_FPR)}", "membership.tpr_at_fpr", _FPR),
)


def promise_section(claim: DpClaim) -> Section:
    """All that a training with differential privacy promised, and what that does not speak of."""
    of_documents = claim.unit == "document"
    whose = "one document" if of_documents else f"all documents of one value of {claim.unit!r}"
    found, units = claim.ex_post, list[tuple[str, str]]()
    if found is not None:
        units = [
            ("of single units, ex post: median", f"{nats(found.median)} nats"),
            ("nine of ten lie in", f"{nats(found.q05)} .. {nats(found.q95)} nats"),
            ("largest", f"{nats(found.largest)} nats"),
        ]
    return Section(
        id="promise",
        title="Promise of the training",
        table=facts(
            ("method", f"{claim.method}, {claim.sampler} sampling"),
            (
                "promised epsilon",
                f"{nats(claim.epsilon)} nats at {LABELS['delta']} "
                f"{short(claim.delta)} ({claim.accountant.upper()} accountant)",
            ),
            ("by Renyi divergences", f"{nats(claim.epsilon_rdp)} nats"),
            ("unit", f"{whose}; {claim.adjacency}"),
            ("units", whole(claim.units)),
            ("documents of the largest unit", whole(claim.largest_group)),
            ("noise multiplier", short(claim.noise_multiplier)),
            ("clip", short(claim.clip)),
            ("sample rate", short(claim.sample_rate)),
            ("steps", whole(claim.steps)),
            *units,
        ),
        notes=(
            _PROMISE.format(whose=whose),
            *(f"not covered: {line}" for line in claim.not_covered),
            *([_GIVEN] if claim.noise_is_given else []),
            *([] if found is None else [f"ex post: {line}" for line in PRIVATE_NOTES]),
        ),
    )


def inside_section(claim: DpClaim, privacy: Privacy | None) -> Section | None:
    """Bounds from inside, from the loosest to the claim; None where there were no canaries."""
    found = claim.white_box
    if found is None:
        return None
    primary = None if privacy is None else privacy.primary
    outside = None
    if primary is not None and primary.delta == found.delta:
        outside = validity(primary.validity), ", ".join(primary.formats), primary.value
    table, notes = inside_table(found, claim.promise, outside), inside_notes(found)
    return Section(id="inside", title="Seen from inside", table=table, notes=notes)
