"""Which of two runs leaks more, by how much, and whether chance explains it: in a sentence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lmexposure import _style
from lmexposure.records import Result
from lmexposure.reporting.pairs import Difference

Which = Literal["more", "less", "both", "neither", "unknown"]

_SIGNIFICANCE = 0.05  # of all classes of canaries together
_SEEN = 0.05  # bits: less is 0.0 in a sentence
_CONTROLS = 0.01  # of the controls of one run, which are no finding but an alarm
# Of `MeasureOptions`: what decides how near an estimate comes to the exposure.
_MEASURED = (
    *("method", "draws", "extraction", "guesses"),
    *("budget_steps", "budget_seconds", "live_states", "quick"),
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a later run comes to next to the first.

    Attributes:
        base, other: names of the runs.
        which: `other` leaks "more" or "less" than `base`: in some class, beyond chance, and in no
            class the other way; "both" where classes disagree; "neither" where chance explains
            all; "unknown" where no class of canaries can be compared.
        sentence: the same with its numbers.
    """

    base: str
    other: str
    which: Which
    sentence: str


def findings(names: Sequence[str], rows: Sequence[Difference]) -> Iterator[Finding]:
    """One finding for each later run.

    Args:
        names: of the runs; the first is what the others are held against.
        rows: what `differences` gave for them.
    """
    tests = sum(row.role == "canary" for row in rows)
    for other in names[1:]:
        of_run = [row for row in rows if row.other == other]
        found = _found(names[0], other, [row for row in of_run if row.role == "canary"], tests)
        alarm = _alarm([row for row in of_run if row.role == "control"])
        yield Finding(base=names[0], other=other, which=found[0], sentence=found[1] + alarm)


def _found(base: str, other: str, rows: Sequence[Difference], tests: int) -> tuple[Which, str]:
    beyond = [row for row in rows if _adjusted(row) <= _SIGNIFICANCE]
    up = [row for row in beyond if row.higher > row.lower]
    down = [row for row in beyond if row.higher < row.lower]
    if not rows:
        return "unknown", (
            f"{base} and {other} have no class of canaries that can be compared: that takes "
            "the same format, repetitions and method in both, and no extrapolation."
        )
    if not beyond:
        return "neither", _neither(base, other, rows, tests)
    if up and down:
        more, less = _most(up, 1), _most(down, -1)
        said = f"{_much(more, 1, rows)} under {other} than under {base} ({_why(more, tests)})"
        rest = f"{_much(less, -1, rows)} under {base} ({_why(less, tests)})"
        return (
            "both",
            f"Neither leaks more throughout: {said}, but {rest}; chance explains neither.",
        )
    sign = 1 if up else -1
    winner, loser = (other, base) if up else (base, other)
    row = _most(beyond, sign)
    alike = f" {len(beyond)} of {len(rows)} classes differ so." if len(rows) > 1 else ""
    said = (
        f"{winner} leaks more than {loser}: {_much(row, sign, rows)} "
        f"({_why(row, tests)}; chance does not explain it).{alike}"
    )
    return ("more" if up else "less"), said


def _adjusted(row: Difference) -> float:
    return 1.0 if row.p_adjusted is None else row.p_adjusted


def _neither(base: str, other: str, rows: Sequence[Difference], tests: int) -> str:
    """The class that differs most, and what keeps it from being shown."""
    row = min(rows, key=lambda row: (row.p_value, -abs(row.median)))
    bits, under = abs(row.median), other if row.median > 0 else base
    much = f"{_style.number(bits, 1)} bits more exposed in the median under {under}"
    said = (
        f"No difference beyond chance between {base} and {other}; nearest to one are "
        f"{_secrets(row, rows)}, {much if bits >= _SEEN else 'alike in the median'} "
        f"({_why(row, tests)})."
    )
    if min(row.p_least for row in rows) > _SIGNIFICANCE:
        return f"{said} With so few canaries none could have been shown."
    if row.open:
        said += (
            f" Of {row.open:,} of {_pairs(row)}, lower bounds or references leave open which "
            "exposure is higher: more references or search could tell."
        )
    return said


def _pairs(row: Difference) -> str:
    """All that the test compares."""
    if row.paired:
        return _style.count(row.n, "canary", "canaries")
    return f"{_style.count(row.n * row.n_base, 'pair')} of canaries"


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
    bits = f"{'at least ' if surely < shown else ''}{_style.number(surely, 1)} bits"
    return f"{_secrets(row, rows)} are {bits} more exposed in the median"


def _secrets(row: Difference, rows: Sequence[Difference]) -> str:
    """A class, by its format where there are several."""
    of = f" of {row.format}" if len({row.format for row in rows}) > 1 else ""
    return f"secrets{of} inserted {_style.times(row.repetitions)}"


def _why(row: Difference, tests: int) -> str:
    if row.paired:
        by = f"a sign test of the same {_style.count(row.n, 'canary', 'canaries')}"
    else:
        by = f"a rank-sum test of {row.n_base:,} and {row.n:,} other canaries"
    corrected = f", corrected for {tests} tests" if tests > 1 else ""
    return f"p = {_style.probability(row.p_adjusted)} by {by}{corrected}"


def _alarm(controls: Sequence[Difference]) -> str:
    """Controls never went in, so what moves them is no memory."""
    if not controls or (p := min(row.p_value for row in controls) * len(controls)) > _CONTROLS:
        return ""
    return (
        f" Controls differ too (p = {_style.probability(p)}), though they were never inserted: "
        "look at both measurements before you rely on this."
    )


def settings_differ(base: Result, other: Result) -> str:
    """Which settings of the measurement differ, and in what; "" where none does.

    Args:
        base, other: results; their numbers are given in this order.
    """
    one, two = base.settings, other.settings
    pairs = [(name.replace("_", " "), getattr(one, name), getattr(two, name)) for name in _MEASURED]
    pairs.append(("dtype", base.model.dtype, other.model.dtype))
    pairs += [
        (f"references of {name}", form.references, other.format_named[name].references)
        for name, form in base.format_named.items()
        if name in other.format_named
    ]
    return "; ".join(
        f"{name} {_value(first)} and {_value(second)}"
        for name, first, second in pairs
        if first != second
    )


def _value(value: object) -> str:
    if value is None:
        return "by default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
