"""Tables of a run: exposure, beside the base, secrets found, checkpoints, canaries, chosen texts.

Each quantity of a class has one way to be written, wherever it is shown.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence

from lmexposure._style import (
    CHANCE,
    LABELS,
    MISSING,
    at_least,
    bits,
    class_name,
    count,
    found_of,
    interval,
    nats,
    number,
    percent,
    probability,
    short,
    whole,
)
from lmexposure.core import Column, Section, Table
from lmexposure.statistics import GuessingBaseline, TprAtFpr
from lmexposure.studies.exposure.parts import BaseClass, KindMembership
from lmexposure.studies.exposure.record import CheckpointClass
from lmexposure.studies.exposure.rows import CanaryRow, ClassRow, FormatData, Found
from lmexposure.studies.sweep_tables import kind_lines

DOUBT = "(!)"
GUESSING = "guessing"
_MEAN_OF_GUESSING = 1 / math.log(2)


def _class(row: ClassRow | BaseClass) -> str:
    return class_name(row.role, row.repetitions)


def _two(value: float) -> str:
    return number(value)


_REPETITIONS = Column(head=LABELS["repetitions"], value="repetitions", written=_class, words=True)
_N = Column(head=LABELS["n"], value="n", shown=whole)
_EXACT = Column(head=LABELS["exact"], value="exact", written=lambda row: f"{row.exact:,}/{row.n:,}")
_CLASS: dict[str, Column] = {
    "format": Column(head=LABELS["format"], value="format", words=True),
    "repetitions": _REPETITIONS,
    "n": _N,
    "mean": Column(
        head=LABELS["mean"],
        value="mean",
        written=lambda row: at_least(row.mean, row.mean_capped),
        unit="bits",
        worse="high",
    ),
    "median": Column(
        head=LABELS["median"],
        value="median",
        written=lambda row: at_least(row.median, row.capped),
        unit="bits",
        worse="high",
    ),
    "interval": Column(
        head=LABELS["interval"],
        value=lambda row: (row.low, row.high),
        written=lambda row: interval(row.low, row.high, capped=row.high_capped),
        unit="bits",
    ),
    "exact": _EXACT,
    "p_value": Column(head=LABELS["p_value"], value="p_value", shown=probability, worse="low"),
    "certificate": Column(
        head=LABELS["certificate"], value="certificate", shown=_two, unit="bits", worse="high"
    ),
    "skew_normal": Column(
        head=LABELS["skew_normal"],
        value="skew_normal",
        written=lambda row: number(row.skew_normal) + f" {DOUBT}" * row.skew_normal_doubted,
        unit="bits",
        worse="high",
    ),
    "epsilon_point": Column(
        head=LABELS["epsilon_point"],
        value="epsilon",
        written=lambda row: at_least(row.epsilon, row.capped),
        unit="nats",
        worse="high",
    ),
    "guesses": Column(
        head=LABELS["guesses"],
        value=lambda row: row.guesses[-1].found if row.guesses else None,
        written=lambda row: found_cell(row.guesses[-1] if row.guesses else None),
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
    _REPETITIONS,
    _N,
    Column(
        head=LABELS["calibrated"],
        value="calibrated.value",
        written=lambda row: at_least(row.calibrated.value, row.calibrated_capped),
        unit="bits",
        worse="high",
    ),
    Column(
        head=LABELS["interval"],
        value=lambda row: (row.calibrated.low, row.calibrated.high),
        written=lambda row: interval(row.calibrated.low, row.calibrated.high),
        unit="bits",
    ),
    Column(
        head=LABELS["mean"],
        value="calibrated_mean",
        written=lambda row: at_least(row.calibrated_mean, row.capped > 0),
        unit="bits",
        worse="high",
    ),
    Column(head=LABELS["p_value"], value="guessing_test.p_value", shown=probability, worse="low"),
    Column(head=LABELS["base"], value="exposure.value", shown=_two, unit="bits"),
    Column(
        head=LABELS["added"],
        value="added",
        written=lambda row: at_least(row.added, row.added_capped),
        unit="bits",
        worse="high",
    ),
    Column(head=LABELS["gained"], value="gained_bits", shown=_two, unit="bits", worse="high"),
    Column(head=LABELS["reference_gained"], value="reference_gained_bits", shown=_two, unit="bits"),
)
_TRAJECTORY = (
    Column(head=LABELS["checkpoint"], value="checkpoint", words=True),
    Column(head=LABELS["format"], value="format", words=True),
    Column(
        head=LABELS["repetitions"],
        value="repetitions",
        written=lambda row: class_name("canary" if row.repetitions else "control", row.repetitions),
        words=True,
    ),
    Column(head=LABELS["step"], value="step", shown=whole),
    _N,
    Column(head=LABELS["median"], value="median", shown=_two, unit="bits", worse="high"),
    Column(
        head=LABELS["interval"],
        value=lambda row: (row.low, row.high),
        written=lambda row: interval(row.low, row.high),
        unit="bits",
    ),
    _EXACT,
)
# What heads of columns mean.
_HEADS = {
    "exact": "ranks counted over all of R; the others come from draws or from references",
    "p_value": "how often chance alone gives such a mean (controls: in either direction)",
    "certificate": "median of the bound proven for each canary: log2|R| - the bits of its secret",
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
        "do not rely on it: a bad fit, not tested (--estimate skew_normal tests it), or beyond the "
        "references, where even a good fit proves nothing",
    ),
    (
        "guesses",
        r"guess(es)?$",
        "tries of the likeliest fills of all of R, in a proven order (best-first search)",
    ),
    ("known", r"known$", "characters of the secret that the search was given (greedy or beam)"),
    ("(n/m)", r"^\(", "guessing alone would find half as many or more"),
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


def class_title(form: FormatData) -> str:
    """What that table is of."""
    references = count(form.references, "reference")
    among = f"all {form.references:,} others" if form.exhaustive else references
    return (
        f"Exposure in bits, {form.name}: |R| = {whole(form.space_size)} ({bits(form.bits, 1)}), "
        f"{among}; higher = more memorised"
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


def base_title(form: FormatData) -> str:
    """What that table is of."""
    return (
        f"Calibrated exposure in bits, {form.name}: beside the base, "
        f"{count(form.references, 'reference')}; higher = more memorised"
    )


def guesses_table(rows: Sequence[ClassRow]) -> Table | None:
    """Secrets of a format found with ever more guesses; None where no search was made."""
    return _found(rows, lambda row: row.guesses, lambda n: count(n, "guess", "guesses"))


def known_table(rows: Sequence[ClassRow]) -> Table | None:
    """Secrets of a format found with ever more characters known; None without a search."""
    return _found(rows, lambda row: row.revealed, lambda n: f"{n:,} known")


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
    columns = [_REPETITIONS, *(_found_column(head(n), counts, n) for n in given)]
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


def trajectory_table(rows: Sequence[CheckpointClass]) -> Table:
    """Exposure of each class under each checkpoint of a training."""
    return Table(rows, _TRAJECTORY)


def trajectory_title(rows: Sequence[CheckpointClass]) -> str:
    """What that table is of."""
    checkpoints = len({row.checkpoint for row in rows})
    return f"Exposure in bits, {count(checkpoints, 'checkpoint')}; higher = more memorised"


def overview(rows: Sequence[ClassRow]) -> tuple[Table, list[str]]:
    """Classes of all formats in one table, with the most that any search was given; its notes."""
    guesses = max((found.given for row in rows for found in row.guesses), default=0)
    known = max((found.given for row in rows for found in row.revealed), default=0)
    revealed = _found_column(LABELS["revealed"], lambda row: row.revealed, known)
    notes = [
        *([f"{LABELS['guesses']}: within {guesses:,} of the likeliest fills"] * bool(guesses)),
        *([f"{LABELS['revealed']}: {count(known, 'character')}"] * bool(known)),
    ]
    return Table(rows, [*(_CLASS[name] for name in _OVERVIEW), revealed]), notes


def most_memorised(formats: Sequence[FormatData]) -> list[ClassRow]:
    """Of each format the class with the highest median; controls only where there is no other."""
    return [
        max(form.classes, key=lambda row: (row.role == "canary", row.median))
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
            shown=_two,
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


def quantile_table(form: FormatData) -> Table:
    """The references of a format, and the curve through them, in numbers."""
    return Table(list(_of_references(form)), _WHAT)


_WHAT = (
    Column(head="what", value=lambda row: row[0], words=True),
    Column(head="value", value=lambda row: row[1]),
)
_PLACES = (
    *("the least of them", "1 % of them lie below", "5 % of them lie below"),
    *("25 % of them lie below", "50 % of them lie below", "75 % of them lie below"),
    *("95 % of them lie below", "99 % of them lie below", "the largest of them"),
)


def _of_references(form: FormatData) -> Iterator[tuple[str, str]]:
    yield "references", whole(form.references)
    for place, value in zip(_PLACES, form.quantiles, strict=False):  # old ones keep none
        yield place, number(value)
    fit = form.fit
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
    "The texts of these canaries were chosen, and a coin of its own put each in or left it out: "
    "what may be claimed is how well the model tells the two apart, its secrets alone scored. They "
    "have neither rank nor exposure"
)


def kinds_section(rows: Sequence[KindMembership]) -> Section:
    """All that is said of the kinds beside the uniform fills."""
    return Section(
        id="kinds",
        title="Other kinds of canaries",
        table=Table(rows, _COLUMNS),
        notes=(_CLAIM, *kind_lines(row.kind for row in rows), *_meanings(rows), *_remarks(rows)),
    )


def _rate(row: KindMembership, fpr: float) -> str:
    """The rate with its interval; missing where the candidates do not resolve it."""
    found = _tpr_at(row, fpr)
    if found is None or found.value is None:
        return number(None)
    return f"{number(found.value, 3)} ({interval(found.low, found.high, 3)})"


def _tpr_at(row: KindMembership, fpr: float) -> TprAtFpr | None:
    return next((rate for rate in row.tpr_at_fpr if rate.fpr == fpr), None)


def _meanings(rows: Sequence[KindMembership]) -> Iterator[str]:
    """What the columns mean."""
    yield (
        f"{LABELS['auc']}: how often a canary that was inserted scores above a candidate that was "
        "held out; 0.5 is guessing"
    )
    yield f"{LABELS['p_value']}: how often shuffled coins give as much"
    deltas = sorted({row.bound.delta for row in rows if row.bound is not None})
    if deltas:
        yield (
            f"{LABELS['epsilon_bound']}: in nats, of one document, at delta "
            f"{', '.join(map(short, deltas))}; each bound at its own share of the significance, "
            "apart from the bounds of the uniform fills; the gate holds each against its threshold"
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


def _ends(row: KindMembership) -> tuple[float | None, float | None] | None:
    area = row.area_under_curve
    return None if area is None else (area.low, area.high)


def _at(fpr: float) -> Column:
    return Column(
        head=f"TPR at FPR {percent(fpr)}",
        value=lambda row: None if (found := _tpr_at(row, fpr)) is None else found.value,
        written=lambda row: _rate(row, fpr),
        worse="high",
    )


_COLUMNS = (
    Column(head="kind", value="group", words=True),
    Column(head=LABELS["inserted"], value="canaries", shown=whole),
    Column(head=LABELS["held_out"], value="held_out", shown=whole),
    Column(
        head=LABELS["auc"],
        value="area_under_curve.value",
        shown=lambda value: number(value, 3),
        worse="high",
    ),
    Column(head=LABELS["interval"], value=_ends, shown=lambda ends: interval(ends[0], ends[1], 3)),
    *(_at(rate) for rate in _RATES),
    Column(head=LABELS["p_value"], value="test.p_value", shown=probability, worse="low"),
    Column(
        head=LABELS["epsilon_bound"], value="bound.value", shown=nats, unit="nats", worse="high"
    ),
    Column(head=LABELS["max_attainable"], value="bound.max_attainable", shown=nats, unit="nats"),
    Column(head=LABELS["significance"], value="significance", shown=short),
)
