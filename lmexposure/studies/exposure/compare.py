"""Several runs side by side: base against fine-tune, undefended against defended.

Only the same format with as many secrets can be compared. Where two runs measured the same
manifest, each canary is compared with itself; else the canaries of a class are compared with those
of the other run, which chance drew anew.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lmexposure._quantiles import ExposureEstimate, quantile_range
from lmexposure._style import (
    LABELS,
    class_name,
    count,
    number,
    percent,
    probability,
    signed,
    times,
    visible,
    whole,
)
from lmexposure.core import Column, Place, Section, Table
from lmexposure.errors import SettingsError
from lmexposure.statistics import holm, median_test, quantile_interval, rank_sum_test, sign_test
from lmexposure.studies.exposure.facts import command_of, where_of
from lmexposure.studies.exposure.files import RunFiles
from lmexposure.studies.exposure.parts import ClassKey, Role
from lmexposure.studies.exposure.record import ResultNumbers
from lmexposure.studies.exposure.rows import ClassRow, Floats, class_rows
from lmexposure.studies.exposure.tables import (
    REPETITIONS,
    claim_lines,
    compared_columns,
    ends_column,
    how_to_read,
)

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart

_READ: frozenset[Place] = frozenset({"md", "html"})
_SHOWN = ("median", "interval", "p_value", "exact", "guesses")
# Of `MeasureSettings`: what decides how near an estimate comes to the exposure.
_MEASURED = (
    *("estimate", "draws", "extraction", "guesses"),
    *("budget_steps", "budget_seconds", "live_states", "effort"),
)
# Of `ContextRecord`: what decides a log-perplexity, whoever knew it.
_ROWS = {
    "form": "form",
    "turn": "turn",
    "loss": "loss",
    "left": "in front",
    "left_tokens": "tokens in front",
    "right_tokens": "tokens behind",
    "unscored_tokens": "unscored tokens",
    "template_sha256": "chat template",
}
_LONGEST = 60  # characters of what is in front
_SAME = (
    "where neither model read them, canaries are as the references, and so are their differences; "
    "where both memorise alike, each canary is as likely higher as lower; p holds for either, and "
    "is none without references that both measured; the interval is over such canaries, for these "
    "models"
)
_OTHERS = (
    "canaries of a class are drawn alike in both runs, independent of each other; the interval is "
    "over such canaries, for these models"
)
# The chance that a rank among references or draws is beyond its ends: paid for in each p-value.
_MISSED = 0.001


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How much more of a class one model gives away than another, in bits."""

    # base, other: names of the runs
    base: str
    other: str
    # format, role, repetitions: the class
    format: str
    role: Role
    repetitions: int
    # both measured the same canaries, and each is compared with itself; else a pair is any canary
    # of `base` with any of `other`
    paired: bool
    # n, n_base: canaries with an exposure in `other` and in `base`; where `paired`, in both
    n: int
    n_base: int
    # where `paired`, of exposure under `other` less exposure under `base`, else the difference of
    # both medians; above 0 = `other` memorised more. With lower bounds taken for exposures: where
    # there are many, look at the interval.
    median: float
    # least, most: the same with each lower bound as far up as the whole secret
    least: float
    most: float
    # low, high: interval of that median by order statistics, wide enough for whatever lower bounds,
    # references and draws leave open; None where too few canaries give no bound on that side
    low: float | None
    high: float | None
    level: float  # two-sided coverage wanted
    # higher, lower: pairs whose exposure is surely higher, or lower, under `other`
    higher: int
    lower: int
    open: int  # pairs of which lower bounds, references or draws leave open which is higher
    # two-sided, of a rank-sum test; where `paired`, the larger of a sign test's and that of a
    # median test of the canaries' differences beside the references', and None without references
    # that both runs measured. Open pairs are counted against a difference.
    p_value: float | None
    # the same, so that those of all classes of canaries hold together (Holm); None for controls,
    # and without `p_value`
    p_adjusted: float | None
    p_least: float  # the smallest that this many canaries can have, adjusted likewise
    capped: int  # canaries, or pairs of one canary, of which an exposure is only a lower bound
    assumes: str  # what interval and test rest on


def differences(
    results: Sequence[ResultNumbers], names: Sequence[str], *, level: float = 0.95
) -> list[Difference]:
    """Every later run compared with the first, class by class, where one method measured both.

    A p-value holds whatever references were drawn: their ranks are known within ends which miss
    with .001 in all, and that is added to the p-value over these ends.

    Of the same canaries, a sign test alone holds where the models memorise alike, so that each is
    as likely higher as lower. It does not follow from each rank's being uniform that this is so of
    two models that read none of them: one may put most fills a little higher, and a few far lower.
    But then canaries and references are exchangeable under both at once, and so are their
    differences, which the median test compares. The larger of both p-values holds in either case.

    Source: the interval, David and Nagaraja 2003, section 7.1; the price of the ends, Berger and
    Boos 1994, P values maximized over a confidence set for the nuisance parameter.
    """
    found = [
        _difference(_Side(results[0], key), _Side(result, key), names[0], name, level)
        for result, name in zip(results[1:], names[1:], strict=True)
        # A curve errs alike for a whole class, which no test of its canaries tells from memory.
        if result.settings.estimate == results[0].settings.estimate != "skew_normal"
        for key in _shared_classes(results[0], result)
    ]
    # Each class of canaries is a test of its own, over all formats and later runs.
    tests = [row.p_value for row in found if row.role == "canary" and row.p_value is not None]
    p_values: Iterator[float] = iter(holm(tests))
    return [
        replace(row, p_adjusted=next(p_values), p_least=min(1.0, row.p_least * len(tests)))
        if row.role == "canary" and row.p_value is not None
        else row
        for row in found
    ]


class _Side:
    """The exposures of one class that one run measured, by the canary's id."""

    def __init__(self, result: ResultNumbers, key: ClassKey) -> None:
        self.result, self.key = result, key
        form = result.format_named[key[0]]
        found = {
            canary.id: canary.exposure.with_error(
                canary.log_perplexity_bits, references=form.references, space_bits=form.bits
            )
            for canary in result.classes.get(key, ())
        }
        self.exposures = {name: known for name, known in found.items() if known is not None}

    def beside(self, other: "_Side", ids: Sequence[str]) -> tuple[Floats, Floats] | None:
        """By how much less surprising `other` finds these canaries, then the same references."""
        columns = [side._bits(ids) for side in (self, other)]
        if not columns[0] or not columns[1]:
            return None
        own = set(ids)
        names = [*ids, *(name for name in columns[0] if name in columns[1] and name not in own)]
        if len(names) == len(ids):
            return None
        before, after = (np.array([known[name] for name in names]) for known in columns)
        gains = _log_ranks(before) - _log_ranks(after)
        return gains[: len(ids)], gains[len(ids) :]

    def _bits(self, ids: Sequence[str]) -> dict[str, float]:
        """Log-perplexities of these canaries and of the references, by id; none without scores."""
        scores = self.result.scores
        if scores is None:
            return {}
        here = scores.formats == self.key[0]
        here &= (scores.roles == "reference") | np.isin(scores.ids, ids)
        bits = scores.log_perplexity_bits[here].tolist()
        found = dict(zip(scores.ids[here].tolist(), bits, strict=True))
        return found if all(name in found for name in ids) else {}

    def of(self, ids: Sequence[str]) -> "_Known":
        return _Known([self.exposures[name] for name in ids])


def _log_ranks(bits: Floats) -> Floats:
    return np.log2(np.searchsorted(np.sort(bits), bits, "right"))


class _Known:
    """What is known of some exposures; each array has shape (n,), in bits."""

    def __init__(self, estimates: Sequence[ExposureEstimate]) -> None:
        self.estimates = estimates
        self.shown = np.array([estimate.value for estimate in estimates])
        self.capped = np.array([estimate.capped for estimate in estimates], dtype=bool)
        # A lower bound may be as much as the whole secret.
        space_bits = np.array([estimate.space_bits for estimate in estimates])
        self.most = np.where(self.capped, np.maximum(self.shown, space_bits), self.shown)

    @property
    def drawn(self) -> bool:
        return any(estimate.drawn for estimate in self.estimates)

    def ends(self, tail: float) -> tuple[Floats, Floats]:
        """Least and most of each, which all hold but for `tail` on either side."""
        low, high = zip(*(estimate.ends(tail) for estimate in self.estimates), strict=True)
        return np.array(low), np.array(high)


def _shared_classes(base: ResultNumbers, other: ResultNumbers) -> list[ClassKey]:
    """Classes with a canary that can be compared, formats in order of their names."""
    held = [
        {key for key in result.classes if _Side(result, key).exposures} for result in (base, other)
    ]
    keys = sorted(held[0] & held[1], key=lambda key: (key[0], key[1] != "control", key[2]))
    if base.manifest_sha256 != other.manifest_sha256:
        return keys
    return [key for key in keys if _Side(base, key).exposures.keys() & _Side(other, key).exposures]


def _difference(first: _Side, second: _Side, base: str, other: str, level: float) -> Difference:
    paired = first.result.manifest_sha256 == second.result.manifest_sha256
    ids = [name for name in first.exposures if name in second.exposures] if paired else None
    before, after = (side.of(ids or list(side.exposures)) for side in (first, second))
    higher, lower, left_open = _counts(before, after, paired, _MISSED)
    by_chance, p_least = _p_values(before, after, paired, (higher, lower, left_open))
    p_value: float | None = by_chance
    beside = first.beside(second, ids) if ids else None
    if paired:
        p_value = None if beside is None else max(by_chance, median_test(*beside)[higher < lower])
    low, high = (_paired_interval if paired else _interval)(before, after, level)
    capped = before.capped | after.capped if paired else np.r_[before.capped, after.capped]
    return Difference(
        base=base,
        other=other,
        format=first.key[0],
        role=first.key[1],
        repetitions=first.key[2],
        paired=paired,
        n=len(after.estimates),
        n_base=len(before.estimates),
        median=_median(before.shown, after.shown, paired),
        least=_median(before.most, after.shown, paired),
        most=_median(before.shown, after.most, paired),
        low=low,
        high=high,
        level=level,
        higher=higher,
        lower=lower,
        open=left_open,
        p_value=p_value,
        p_adjusted=None,
        p_least=p_least,
        capped=int(capped.sum()),
        assumes=_SAME if paired else _OTHERS,
    )


def _p_values(
    before: _Known, after: _Known, paired: bool, counts: tuple[int, int, int]
) -> tuple[float, float]:
    """The p-value of these (higher, lower, open) pairs, and the least of as many canaries."""
    n, m, (higher, lower, left_open) = len(before.estimates), len(after.estimates), counts
    missed = _MISSED if before.drawn or after.drawn else 0.0
    if paired:
        p_value, least = sign_test(higher, lower, left_open), sign_test(n, 0)
    else:
        p_value, least = rank_sum_test(higher, lower, n, m), rank_sum_test(n * m, 0, n, m)
    return min(1.0, p_value + missed), missed + least


def _median(base: Floats, other: Floats, paired: bool) -> float:
    return float(np.median(other - base) if paired else np.median(other) - np.median(base))


def _counts(before: _Known, after: _Known, paired: bool, missed: float) -> tuple[int, int, int]:
    """(surely higher, surely lower, open) pairs, where all ends hold but for `missed`."""
    tail = missed / 2 / (len(before.estimates) + len(after.estimates))
    (base_low, base_high), (other_low, other_high) = before.ends(tail), after.ends(tail)
    if not paired:
        base_low, base_high = base_low[:, None], base_high[:, None]
    least, most = other_low - base_high, other_high - base_low
    left_open = (least < most) & (least <= 0) & (most >= 0)
    return int((least > 0).sum()), int((most < 0).sum()), int(left_open.sum())


def _paired_interval(
    before: _Known, after: _Known, level: float
) -> tuple[float | None, float | None]:
    """From the least to the most that the median of the differences can be.

    No single canary bounds a median of differences, as one does a median (`quantile_range`): the
    ends of all exposures in both runs must hold at once, and share half of what the interval may
    miss. Where all are counted, order statistics have the whole of it.
    """
    if before.drawn or after.drawn:
        level = (1 + level) / 2
    tail = (1 - level) / 2 / (2 * len(before.estimates))
    (base_low, base_high), (other_low, other_high) = before.ends(tail), after.ends(tail)
    least = quantile_interval(other_low - base_high, 0.5, level=level).low
    return least, quantile_interval(other_high - base_low, 0.5, level=level).high


def _interval(before: _Known, after: _Known, level: float) -> tuple[float | None, float | None]:
    """The ends of both medians, which share what the interval may miss."""
    tail = (1 - level) / 4
    base, other = (quantile_range(side.estimates, 0.5, tail) for side in (before, after))
    low = None if other[0] is None or base[1] is None else other[0] - base[1]
    return low, None if other[1] is None or base[0] is None else other[1] - base[0]


Runs = Sequence[tuple[str, RunFiles]]


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """A class of a format in one run."""

    run: str
    role: Role
    repetitions: int
    references: int | None  # None where the run has no such format
    cell: ClassRow | None  # None where it has no such class

    @property
    def n(self) -> int:
        return 0 if self.cell is None else self.cell.n


def compared_sections(runs: Runs, *, level: float = 0.95) -> Iterator[Section]:
    """What a reader must know first, each class in each run, differences, how to do it again."""
    _refuse_other_formats(runs)
    if notes := list(_notes(runs)):
        yield Section(id="before", title="What to know before you compare", notes=notes)
    parts = [_classes(name, runs, place) for place, name in enumerate(_common(runs), 1)]
    tables = [part.table for part in parts if part.table is not None]
    yield Section(
        id="exposure",
        title="Exposure",
        text="Median exposure of each class in bits; higher = more memorised. Secrets that a model "
        "never saw have a median of 1 bit, by chance alone.",
        parts=parts,
        notes=how_to_read(tables, level),
        on=_READ,
    )
    results, names = [run.result for _, run in runs], [name for name, _ in runs]
    rows = differences(results, names, level=level)
    yield Section(
        id="differences",
        title=f"Each class compared with {names[0]}",
        said=[] if rows else ["No two runs have a class in common, so none is compared."],
        table=Table(rows, _DIFFERENCES),
        notes=(*_meanings(level), *dict.fromkeys(f"assumes: {row.assumes}" for row in rows)),
        on=_READ,
    )
    yield Section(
        id="again",
        title="How to do it again",
        parts=[
            Section(id=f"again-{place}", title=name, said=(where_of(run),), code=command_of(run))
            for place, (name, run) in enumerate(runs, 1)
            if run.result.home is not None
        ],
        folded=True,
        on=_READ,
    )


def compared_finding(runs: Runs) -> str:
    """Per later run, which leaks more, it or the first, and whether chance explains it."""
    results, names = [run.result for _, run in runs], [name for name, _ in runs]
    return " ".join(findings(names, differences(results, names)))


def _refuse_other_formats(runs: Runs) -> None:
    seen: dict[str, tuple[str, RunFiles]] = {}
    for name, run in runs:
        for form in run.result.formats:
            other, before = seen.setdefault(form.name, (name, run))
            what = _differs(before, run, form.name)
            if what:
                raise SettingsError(
                    f"{visible(other)} and {visible(name)} cannot be compared: "
                    f"format {form.name!r} {what}; compare runs of the same formats"
                )
    if not _common(runs):
        held = "; ".join(
            f"{name} has {', '.join(form.name for form in run.result.formats) or 'none'}"
            for name, run in runs
        )
        raise SettingsError(
            f"no two runs have a format in common ({visible(held)}); "
            "compare runs of the same formats"
        )


def _differs(base: RunFiles, other: RunFiles, name: str) -> str | None:
    """What is not the same about a format of two runs."""
    first, second = (run.result.format_named[name].space_size for run in (base, other))
    if first != second:
        return f"has {first} possible secrets in the first and {second} in the second"
    if base.manifest is None or other.manifest is None:
        return None
    texts = [run.manifest.formats[name] for run in (base, other) if run.manifest is not None]
    if texts[0].template != texts[1].template:
        return f"is {texts[0].template!r} in the first and {texts[1].template!r} in the second"
    return "has other lists of words" if texts[0].lists != texts[1].lists else None


def _common(runs: Runs) -> list[str]:
    """Names of formats that two runs or more have, in order of appearance."""
    held = Counter(form.name for _, run in runs for form in run.result.formats)
    return [name for name, times in held.items() if times > 1]


def _classes(name: str, runs: Runs, place: int) -> Section:
    """Each class of a format in each run, a row each."""
    forms = [run.result.format_named.get(name) for _, run in runs]
    columns = [
        {} if form is None else {(r.role, r.repetitions): r for r in class_rows(run.result, form)}
        for (_, run), form in zip(runs, forms, strict=True)
    ]
    keys = sorted({key for own in columns for key in own}, key=lambda k: (k[0] != "control", k[1]))
    rows = [
        _Compared(
            run=run,
            role=role,
            repetitions=repetitions,
            references=None if form is None else form.references,
            cell=own.get((role, repetitions)),
        )
        for role, repetitions in keys
        for (run, _), form, own in zip(runs, forms, columns, strict=True)
    ]
    known = next(form for form in forms if form is not None)
    chosen = [(run, list(own.values())) for (run, _), own in zip(runs, columns, strict=True)]

    def chart() -> "Chart | None":
        from lmexposure.studies.exposure.charts_exposure import comparison_chart

        return comparison_chart(name, known.bits, chosen)

    return Section(
        id=f"exposure-{place}",
        title=f"Each class of {name} in each run, exposure in bits",
        chart=chart,
        table=Table(rows, [*_FIRST, *compared_columns(_SHOWN)]),
        notes=tuple(_most_guesses(chosen)),
    )


def _most_guesses(runs: Sequence[tuple[str, Sequence[ClassRow]]]) -> Iterator[str]:
    """How far each search went, for the numbers that it found."""
    for name, rows in runs:
        most = max((found.given for row in rows for found in row.tries), default=0)
        if most:
            yield f"{LABELS['guesses']}, {name}: within {most:,} of the likeliest secrets"


def _notes(runs: Runs) -> Iterator[str]:
    """What a reader must not take for a comparison."""
    (base, first), *others = runs
    for name, run in others:
        if run.result.manifest_sha256 != first.result.manifest_sha256:
            yield (
                f"{name} measured another manifest than {base}: other canaries, so no canary "
                "is compared with itself, and each class is compared as a whole"
            )
        if differ := setting_differences(first.result, run.result):
            yield (
                f"{base} and {name} were not measured alike ({differ}): medians are not "
                "directly comparable, and an exposure counts as higher only where its interval "
                "shows it"
            )
        if differ := context_differences(first.result, run.result):
            yield (
                f"{base} and {name} were scored in other rows ({differ}): a difference may be "
                "one of these rows, and not of what the models memorised; measure both in the rows "
                "of their training"
            )
    common = set(_common(runs))
    for name, run in runs:
        if not any(canary.role == "canary" for canary in run.result.canaries):
            yield f"{name} has no canaries: nothing says what its model memorised"
        own = [form.name for form in run.result.formats if form.name not in common]
        if own:
            yield f"only {name} has {', '.join(own)}: not shown"
        privacy = run.result.privacy
        yield from (
            f"{name}: {line}" for line in claim_lines(None if privacy is None else privacy.claim)
        )


def setting_differences(base: ResultNumbers, other: ResultNumbers) -> str:
    """Which settings of the measurement differ, and in what; "" where none does."""
    pairs = [
        (name.replace("_", " "), getattr(base.settings, name), getattr(other.settings, name))
        for name in _MEASURED
    ]
    pairs.append(("dtype", base.model.dtype, other.model.dtype))
    pairs += [
        (f"references of {name}", form.references, other.format_named[name].references)
        for name, form in base.format_named.items()
        if name in other.format_named
    ]
    return _differing(pairs, _value)


def context_differences(base: ResultNumbers, other: ResultNumbers) -> str:
    """In what the rows differ that canaries were scored in; "" where they do not, or do not say."""
    if base.context is None or other.context is None:
        return ""
    pairs = [
        (words, getattr(base.context, name), getattr(other.context, name))
        for name, words in _ROWS.items()
    ]
    return _differing(pairs, _shown)


def _differing(pairs: Sequence[tuple[str, object, object]], shown: Callable[[object], str]) -> str:
    return "; ".join(
        f"{name} {shown(first)} and {shown(second)}"
        for name, first, second in pairs
        if first != second
    )


def _shown(value: object) -> str:
    if isinstance(value, str):
        text = repr(value)
        return text if len(text) <= _LONGEST else f"...{text[-_LONGEST:]}"
    return "none" if value is None else str(value)


def _value(value: object) -> str:
    if value is None:
        return "by default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _meanings(level: float) -> Iterator[str]:
    """What the columns of differences mean."""
    yield (
        "exposure in the run less exposure in the first, in bits; above 0 = memorised more than in "
        "the first"
    )
    yield (
        "the same canaries: the median of their differences, p the larger of a sign test's and of "
        "a median test beside the references' differences; others: the difference of both medians, "
        "p of a rank-sum test; either says how often chance alone puts two runs this far apart"
    )
    yield (
        "higher, lower: pairs of canaries whose exposure surely is; open: pairs that lower bounds, "
        "references or draws leave undecided, which interval and p count against a difference"
    )
    yield f"interval: of the median, at {percent(level)}"
    yield (
        "adjusted: p corrected for all classes together (Holm); controls only check the "
        "measurement, and have none"
    )


_FIRST = (
    REPETITIONS,
    Column(head=LABELS["run"], value="run", words=True),
    Column(head=LABELS["n"], value="n", shown=whole),
    Column(head=LABELS["references"], value="references", shown=whole),
)
_DIFFERENCES = (
    Column(
        head="class",
        value=lambda row: f"{row.format}, {class_name(row.role, row.repetitions)}",
        words=True,
    ),
    Column(head=LABELS["run"], value="other", words=True),
    Column(head=LABELS["median"], value="median", shown=signed, unit="bits", worse="high"),
    ends_column(),
    Column(head=LABELS["p_value"], value="p_value", shown=probability),
    Column(head="adjusted", value="p_adjusted", written=lambda row: probability(row.p_adjusted)),
    Column(
        head=LABELS["n"],
        value="n",
        written=lambda row: f"{row.n:,} same" if row.paired else f"{row.n:,} and {row.n_base:,}",
    ),
    Column(head="higher", value="higher", shown=whole),
    Column(head="lower", value="lower", shown=whole),
    Column(head="open", value="open", shown=whole),
)


_SIGNIFICANCE = 0.05  # of all classes of canaries together
_SEEN = 0.05  # bits: less is 0.0 in a sentence
_CONTROLS = 0.01  # of the controls of row run, which are no finding but an alarm


def findings(names: Sequence[str], rows: Sequence[Difference]) -> Iterator[str]:
    """For each later run whether it leaks more than the first, or less, beyond chance."""
    tests = sum(row.role == "canary" and row.p_value is not None for row in rows)
    for other in names[1:]:
        of_run = [row for row in rows if row.other == other]
        classes = [row for row in of_run if row.role == "canary"]
        beyond = [r for r in classes if r.p_adjusted is not None and r.p_adjusted <= _SIGNIFICANCE]
        alarm = _alarm([row for row in of_run if row.role == "control"])
        if alarm and beyond:
            yield _not_memory(names[0], other, classes, tests) + alarm
        else:
            yield _found(names[0], other, classes, beyond, tests) + alarm


def _not_memory(base: str, other: str, rows: Sequence[Difference], tests: int) -> str:
    row = min(rows, key=lambda row: 1.0 if row.p_adjusted is None else row.p_adjusted)
    sign = 1 if row.higher > row.lower else -1
    return (
        f"Nothing says whether {base} or {other} leaks more: {_much(row, sign, rows)} under "
        f"{other if sign > 0 else base} ({_why(row, tests)}), but memory need not explain it."
    )


def _found(
    base: str, other: str, rows: Sequence[Difference], beyond: Sequence[Difference], tests: int
) -> str:
    up = [row for row in beyond if row.higher > row.lower]
    down = [row for row in beyond if row.higher < row.lower]
    if not rows:
        return (
            f"{base} and {other} have no class of canaries that can be compared: that takes "
            "the same format, repetitions and method in both, and no extrapolation."
        )
    if all(row.p_value is None for row in rows):
        return (
            f"Nothing says whether chance explains how {base} and {other} differ: that takes "
            "references that both measured, in the scores.parquet next to each result.json; "
            "measure both again."
        )
    if not beyond:
        return _neither(base, other, rows, tests)
    if up and down:
        more, less = _most(up, 1), _most(down, -1)
        text = f"{_much(more, 1, rows)} under {other} than under {base} ({_why(more, tests)})"
        rest = f"{_much(less, -1, rows)} under {base} ({_why(less, tests)})"
        return f"Neither leaks more throughout: {text}, but {rest}; chance explains neither."
    sign = 1 if up else -1
    winner, loser = (other, base) if up else (base, other)
    row = _most(beyond, sign)
    alike = f" {len(beyond)} of {len(rows)} classes differ beyond chance." if len(rows) > 1 else ""
    return (
        f"{winner} leaks more than {loser}: {_much(row, sign, rows)} "
        f"({_why(row, tests)}; chance does not explain it).{alike}"
    )


def _neither(base: str, other: str, rows: Sequence[Difference], tests: int) -> str:
    """The class that differs most, and what keeps it from being shown."""
    tested = [row for row in rows if row.p_value is not None]
    row = min(tested, key=lambda row: (row.p_value, -abs(row.median)))
    bits, under = abs(row.median), other if row.median > 0 else base
    much = f"{number(bits, 1)} bits more exposed in the median under {under}"
    text = (
        f"No difference beyond chance between {base} and {other}; nearest to one are "
        f"{_secrets(row, rows)}, {much if bits >= _SEEN else 'alike in the median'} "
        f"({_why(row, tests)})."
    )
    if min(row.p_least for row in rows) > _SIGNIFICANCE:
        return f"{text} There are too few canaries to show one."
    if row.open:
        text += (
            f" For {row.open:,} of {_pairs(row)}, lower bounds or references leave open which "
            "exposure is higher: more references or search could tell, where they differ."
        )
    return text


def _pairs(row: Difference) -> str:
    """All that the test compares."""
    if row.paired:
        return count(row.n, "canary", "canaries")
    return f"{count(row.n * row.n_base, 'pair')} of canaries"


def _most(rows: Sequence[Difference], sign: int) -> Difference:
    """The row whose difference is surely the largest; of those, the most repeated."""
    return max(rows, key=lambda row: (_surely(row, sign), row.repetitions))


def _surely(row: Difference, sign: int) -> float:
    """Bits of the median difference in a direction that lower bounds leave in no doubt."""
    return row.least if sign > 0 else -row.most


def _much(row: Difference, sign: int, rows: Sequence[Difference]) -> str:
    """By how much a class is more exposed; in how many pairs, where the median does not show it."""
    shown, surely = sign * row.median, _surely(row, sign)
    if surely < _SEEN:
        more, less = sorted((row.higher, row.lower), reverse=True)
        return (
            f"{_secrets(row, rows)} are more exposed in {more:,} of {_pairs(row)}, and less in "
            f"{less:,}"
        )
    bits = f"{'at least ' if surely < shown else ''}{number(surely, 1)} bits"
    return f"{_secrets(row, rows)} are {bits} more exposed in the median"


def _secrets(row: Difference, rows: Sequence[Difference]) -> str:
    """A class, by its format where there are several."""
    of = f" of {row.format}" if len({row.format for row in rows}) > 1 else ""
    return f"secrets{of} inserted {times(row.repetitions)}"


def _why(row: Difference, tests: int) -> str:
    if row.paired:
        canaries = count(row.n, "canary", "canaries")
        by = f"tests of the same {canaries}, by signs and beside references"
    else:
        by = f"a rank-sum test of {row.n_base:,} and {row.n:,} other canaries"
    corrected = f", corrected for {tests} tests" if tests > 1 else ""
    return f"p = {probability(row.p_adjusted)} by {by}{corrected}"


def _alarm(controls: Sequence[Difference]) -> str:
    """Controls were never inserted, so what moves them is not memorisation."""
    p_values = [row.p_value for row in controls if row.p_value is not None]
    if not p_values or (p := min(p_values) * len(p_values)) > _CONTROLS:
        return ""
    return (
        f" Controls differ too (p = {probability(p)}), though they were never inserted: "
        "check both measurements before you rely on this."
    )
