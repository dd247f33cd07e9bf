"""A result as tables on the terminal. Secrets are not shown: a result does not hold them."""

import math
from typing import Any

from lmexposure.cli.console import print_table, say, warn
from lmexposure.cli.privacy_tables import print_privacy
from lmexposure.records import Result

__all__ = ["print_result"]


def print_result(result: Result) -> None:
    """The summary, then extraction, then the warnings."""
    for one in result.formats:
        _print_summary(result, one)
        _print_guesses(result, one)
        _print_extraction(result, one)
    say("")
    for line in _LEGEND:
        say(line)
    if result.privacy is not None:
        print_privacy(result.privacy)
    validation = result.model.get("validation")
    if validation:
        say(f"\nvalidation loss: {validation['validation_bits']:.3f} bits per token")
    for line in result.warnings:
        warn(line)


def _print_summary(result: Result, one: dict[str, Any]) -> None:
    count = f"{one['references']:,}"
    among = f"all {count} others" if one["exhaustive"] else f"{count} references"
    classes = [row for row in result.summary if row["format"] == one["name"]]
    guess = classes[-1]["guessing"]  # of canaries; controls may be ranked among fewer
    blank = [""] * (len(_COLUMNS) - 4)
    rows = [_summary_row(row, one) for row in classes]
    rows.append(["guessing", "", f"{guess['mean']:.2f}", f"{guess['median']:.2f}", *blank])
    say(
        f"\nExposure in bits, {one['name']}: |R| = {_size(one)} "
        f"({one['bits']:.1f} bits), {among}; higher = more memorised"
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


def _summary_row(row: dict[str, Any], one: dict[str, Any]) -> list[str]:
    median, others = row["median"], row["other_medians"]
    low, high = (_number(median[end]) for end in ("low", "high"))
    cap = _number(math.log2(one["references"]))
    mean_bound, bound = (">= " if row[key] else "" for key in ("capped", "median_capped"))
    skew = _number(others.get("skew_normal"))
    return [
        _class(row),
        str(row["n"]),
        f"{mean_bound}{row['mean']:.2f}",
        f"{bound}{median['value']:.2f}",
        f"{low} .. {'>= ' if row['capped'] and high == cap else ''}{high}",
        f"{_exact(row)}/{row['n']}",
        f"{row['guessing_test']['p_value']:.4f}",
        _number(others.get("certificate")),
        skew if _believable(row, one) else f"{skew} (!)",
        f"{bound}{row['epsilon']['value']:.2f}" if row["epsilon"] else "",
    ]


def _believable(row: dict[str, Any], one: dict[str, Any]) -> bool:
    """Whether the references vouch for the median by the curve; older results flag no canaries."""
    fits = one["skew_normal"] is not None and not one["skew_normal"]["goodness"]["warnings"]
    median, flagged = row["other_medians"].get("skew_normal"), row.get("skew_normal_flagged") or 0
    within = median is not None and median <= min(math.log2(one["references"]), one["bits"])
    return fits and within and 2 * flagged < row["n"]


def _exact(row: dict[str, Any]) -> int:
    """Canaries whose rank was counted."""
    return sum(n for method, n in row["methods"].items() if method.startswith("exact"))


def _class(row: dict[str, Any]) -> str:
    return str(row["repetitions"]) if row["role"] == "canary" else "controls"


def _size(one: dict[str, Any]) -> str:
    """The size of the space; a power of two where no float holds it."""
    return f"{float(one['space_size']):.3g}" if one["bits"] < 1000 else f"2^{one['bits']:.0f}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"


def _print_guesses(result: Result, one: dict[str, Any]) -> None:
    """What an attacker finds who knows nothing but the format."""
    rows = [r for r in result.summary if r["format"] == one["name"] and r["guesses"]]
    if not rows:
        return
    columns = [f"{g['guesses']:,}" for g in rows[0]["guesses"]]
    table = [
        [_class(row), *(_cell(g, g["guesses"] / float(one["space_size"])) for g in row["guesses"])]
        for row in rows
    ]
    say(f"\nSecrets found, {one['name']}, within so many guesses")
    print_table(["repetitions", *columns], table, right=range(1, len(columns) + 1))


def _cell(found: dict[str, Any], chance: float) -> str:
    """Found of searched for; in brackets where guessing would do half as well or better."""
    cell = f"{found['found']}/{found['of']}"
    return f"({cell})" if 2 * chance * found["of"] >= max(found["found"], 1) else cell


def _print_extraction(result: Result, one: dict[str, Any]) -> None:
    rows = [r for r in result.summary if r["format"] == one["name"] and r["extraction"]]
    if not rows:
        return
    most = max(found["revealed"] for row in rows for found in row["extraction"])
    table = [
        [_class(row), method, *_found(row, method, most)]
        for row in rows
        for method in ("greedy", "beam")
    ]
    say(f"\nSecrets extracted, {one['name']}, with so many of their characters known")
    print_table(
        ["repetitions", "search", *(f"{k} known" for k in range(most + 1))],
        table,
        right=range(2, most + 3),
    )


def _found(row: dict[str, Any], method: str, most: int) -> list[str]:
    """Found of searched for; in brackets where guessing would do half as well or better."""
    cells = [""] * (most + 1)
    for found in row["extraction"]:
        if found["method"] == method:
            cell = f"{found['found']}/{found['of']}"
            easy = 2 * found["by_chance"] >= max(found["found"], 1)
            cells[found["revealed"]] = f"({cell})" if easy else cell
    return cells
