"""A result as tables on the terminal. Secrets are not shown: a result does not hold them."""

import math
from collections.abc import Sequence

from lmexposure.cli.console import print_table, say, warn
from lmexposure.cli.privacy_tables import print_privacy
from lmexposure.records import ClassSummary, Format, Result


def print_result(result: Result) -> None:
    """The summary, then extraction, then the warnings."""
    for form in result.formats:
        rows = [row for row in result.summary if row.format == form.name]
        if not rows:
            continue
        _print_summary(rows, form)
        _print_guesses(rows, form)
        _print_extraction(rows, form)
    say("")
    for line in _LEGEND:
        say(line)
    if result.privacy is not None:
        print_privacy(result.privacy)
    validation = result.model.validation
    if validation is not None:
        loss = validation.validation_bits
        say(f"\nvalidation loss: {'?' if loss is None else f'{loss:.3f}'} bits per token")
    for line in result.warnings:
        warn(line)


def _print_summary(classes: Sequence[ClassSummary], form: Format) -> None:
    count = f"{form.references:,}"
    among = f"all {count} others" if form.exhaustive else f"{count} references"
    guess = classes[-1].guessing  # of canaries; controls may be ranked among fewer
    blank = [""] * (len(_COLUMNS) - 4)
    rows = [_summary_row(row, form) for row in classes]
    rows.append(["guessing", "", f"{guess.mean:.2f}", f"{guess.median:.2f}", *blank])
    say(
        f"\nExposure in bits, {form.name}: |R| = {_size(form)} "
        f"({form.bits:.1f} bits), {among}; higher = more memorised"
    )
    print_table(_COLUMNS, rows, right=range(1, len(_COLUMNS)))


_COLUMNS = (
    "repetitions",
    "canaries",
    "mean",
    "median",
    "median, 95 %",
    "exact",
    "p (chance)",
    "certified",
    "skew-normal",
    "epsilon",
)
_LEGEND = (
    "exact        ranks counted over all of R; the others come from draws or from references",
    ">=           at least this: more draws, references or search could show more",
    "p (chance)   how often chance alone gives such a mean (controls: in either direction)",
    "certified    median of the proven lower bound, log2|R| - the bits of the secret",
    "skew-normal  median by extrapolation; (!) do not rely on it: a bad fit, or beyond what the "
    "references show, for which no good fit vouches",
    "guesses      tries of the likeliest fills of all of R, in a proven order (best-first search)",
    "(n/m)        so few fills are left that guessing would find half as many or more",
    "epsilon      point estimate, not a bound: ln 2 (median - 1) / repetitions (Jagielski 2023)",
)


def _summary_row(row: ClassSummary, form: Format) -> list[str]:
    low, high = _number(row.median.low), _number(row.median.high)
    cap = _number(math.log2(form.references))
    mean_bound, bound = (">= " if capped else "" for capped in (row.capped, row.median_capped))
    skew, test = _number(row.other_medians.get("skew_normal")), row.guessing_test
    return [
        _class(row),
        str(row.n),
        f"{mean_bound}{row.mean:.2f}",
        f"{bound}{row.median.value:.2f}",
        f"{low} .. {'>= ' if row.capped and high == cap else ''}{high}",
        f"{row.counted}/{row.n}",
        "?" if test is None else f"{test.p_value:.4f}",
        _number(row.other_medians.get("certificate")),
        skew if _believable(row, form) else f"{skew} (!)",
        f"{bound}{row.epsilon.value:.2f}" if row.epsilon else "",
    ]


def _believable(row: ClassSummary, form: Format) -> bool:
    """Whether the references vouch for the median by the curve; older results flag no canaries."""
    fits = form.skew_normal is not None and not form.skew_normal.goodness.warnings
    median, flagged = row.other_medians.get("skew_normal"), row.skew_normal_flagged or 0
    within = median is not None and median <= min(math.log2(form.references), form.bits)
    return fits and within and 2 * flagged < row.n


def _class(row: ClassSummary) -> str:
    return str(row.repetitions) if row.role == "canary" else "controls"


def _size(form: Format) -> str:
    """The size of the space; a power of two where no float holds it."""
    return f"{float(form.space_size):.3g}" if form.bits < 1000 else f"2^{form.bits:.0f}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"


def _print_guesses(classes: Sequence[ClassSummary], form: Format) -> None:
    """What an attacker finds who knows nothing but the format."""
    rows = [row for row in classes if row.guesses]
    if not rows:
        return
    columns = [f"{count.guesses:,}" for count in rows[0].guesses]
    table = [
        [
            _class(row),
            *(_cell(g.found, g.of, g.of * (g.guesses / form.space_size)) for g in row.guesses),
        ]
        for row in rows
    ]
    say(f"\nSecrets found, {form.name}, within so many guesses")
    print_table(["repetitions", *columns], table, right=range(1, len(columns) + 1))


def _cell(found: int, of: int, by_chance: float) -> str:
    """Found of searched for; in brackets where guessing would do half as well or better.

    Args:
        found, of: secrets.
        by_chance: how many of them guessing finds, in expectation.
    """
    cell = f"{found}/{of}"
    return f"({cell})" if 2 * by_chance >= max(found, 1) else cell


def _print_extraction(classes: Sequence[ClassSummary], form: Format) -> None:
    rows = [row for row in classes if row.extraction]
    if not rows:
        return
    most = max(count.revealed for row in rows for count in row.extraction)
    table = [
        [_class(row), method, *_found(row, method, most)]
        for row in rows
        for method in ("greedy", "beam")
    ]
    say(f"\nSecrets extracted, {form.name}, with so many of their characters known")
    print_table(
        ["repetitions", "search", *(f"{k} known" for k in range(most + 1))],
        table,
        right=range(2, most + 3),
    )


def _found(row: ClassSummary, method: str, most: int) -> list[str]:
    """Found of searched for, by characters given."""
    cells = [""] * (most + 1)
    for count in row.extraction:
        if count.method == method:
            cells[count.revealed] = _cell(count.found, count.of, count.by_chance)
    return cells
