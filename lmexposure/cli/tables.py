"""A result as tables on the terminal. Secrets are not shown: a result does not hold them."""

from typing import Any

from lmexposure.cli.console import print_table, say, warn
from lmexposure.results import Result

__all__ = ["print_result"]


def print_result(result: Result) -> None:
    """The summary, then extraction, then the warnings."""
    for one in result.formats:
        _print_summary(result, one)
        _print_extraction(result, one)
    validation = result.model.get("validation")
    if validation:
        say(f"\nvalidation loss: {validation['validation_bits']:.3f} bits per token")
    for line in result.warnings:
        warn(line)


def _print_summary(result: Result, one: dict[str, Any]) -> None:
    kind = "all fills never inserted" if one["exhaustive"] else "references"
    guess = result.summary[0]["guessing"]
    rows = [_summary_row(row, one) for row in result.summary if row["format"] == one["name"]]
    rows.append(
        ["guessing", "", *(f"{guess[k]:.2f}" for k in ("mean", "median", "upper_quartile"))]
        + [""] * 5
    )
    say(
        f"\nExposure in bits, {one['name']}: |R| = {float(one['space_size']):.3g} "
        f"({one['bits']:.1f} bits), {one['references']:,} {kind}; higher = more memorised"
    )
    print_table(_COLUMNS, rows, right=range(1, len(_COLUMNS)))
    for line in _LEGEND:
        say(line)


_COLUMNS = (
    "repetitions",
    "canaries",
    "mean",
    "median",
    "75 %",
    "median, 95 %",
    "p (chance)",
    "certified",
    "skew-normal",
    "epsilon",
)
_LEGEND = (
    ">=           lower than every reference: at least this; more references could show more",
    "p (chance)   how often chance alone gives such a mean (controls: in either direction)",
    "certified    median of the proven lower bound, log2|R| - the bits of the secret",
    "skew-normal  median by extrapolation; (!) its curve does not fit: do not rely on it",
    "epsilon      point estimate, not a bound: ln 2 (median - 1) / repetitions (Jagielski 2023)",
)


def _summary_row(row: dict[str, Any], one: dict[str, Any]) -> list[str]:
    median, others = row["median"], row["other_medians"]
    low, high = (_number(median[end]) for end in ("low", "high"))
    mean_bound, bound = (">= " if row[key] else "" for key in ("capped", "median_capped"))
    fits = one["skew_normal"] is not None and not one["skew_normal"]["goodness"]["warnings"]
    skew = _number(others.get("skew_normal"))
    return [
        str(row["repetitions"]) if row["role"] == "canary" else "controls",
        str(row["n"]),
        f"{mean_bound}{row['mean']:.2f}",
        f"{bound}{median['value']:.2f}",
        f"{row['upper_quartile']['value']:.2f}",
        f"{low} .. {high}",
        f"{row['guessing_test']['p_value']:.4f}",
        _number(others.get("certificate")),
        skew if fits else f"{skew} (!)",
        f"{bound}{row['epsilon']['value']:.2f}" if row["epsilon"] else "",
    ]


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"


def _print_extraction(result: Result, one: dict[str, Any]) -> None:
    rows = [r for r in result.summary if r["format"] == one["name"] and r["extraction"]]
    if not rows:
        return
    table = [
        [str(row["repetitions"]), method, *_found(row, method)]
        for row in rows
        for method in ("greedy", "beam")
    ]
    most = max(found["revealed"] for row in rows for found in row["extraction"])
    say(f"\nSecrets extracted, {one['name']}, with so many of their characters known")
    print_table(
        ["repetitions", "search", *(f"{k} known" for k in range(most + 1))],
        table,
        right=range(2, most + 3),
    )


def _found(row: dict[str, Any], method: str) -> list[str]:
    return [f"{f['found']}/{f['of']}" for f in row["extraction"] if f["method"] == method]
