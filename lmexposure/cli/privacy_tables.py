"""Bounds on epsilon and membership metrics on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from lmexposure.cli.console import print_table, say

__all__ = [
    "LEGEND",
    "assumptions",
    "print_bounds",
    "print_claim",
    "print_membership",
    "print_privacy",
]

_COLUMNS = ("bound", "holds for", "delta", "epsilon >=", "at most", "significance", "")
LEGEND = (
    "primary      named beforehand by how the canaries were drawn; it takes half the significance",
    "holds for    any-dp: every private training; iid-scores: scores independent and alike; "
    "gaussian: a Gaussian trade-off",
    "at most      what a perfect attack on so many canaries would have shown",
)


def print_privacy(section: Mapping[str, Any]) -> None:
    """The section "privacy" of a result."""
    coins = section["coins"]
    how = "a fixed number inserted" if coins == "fixed" else f"coins of {coins}"
    say(
        f"\nEpsilon of one document in nats, {how}: lower bounds that hold together at "
        f"significance {section['significance']:g}; higher = less private"
    )
    for one in section["classes"]:
        _print_class(one)
    for line in LEGEND:
        say(line)
    for line in section["notes"]:
        say(f"note: {line}")
    print_claim(section["claim"])


def _print_class(one: Mapping[str, Any]) -> None:
    """The bounds and the membership metrics of one class of repetitions."""
    out = f"{one['excluded']:,} left out, " if one["excluded"] else ""
    copies = one["repetitions"]
    say(
        f"\n{', '.join(one['formats'])}, repetitions {copies}: {one['canaries']:,} "
        f"canaries in, {out}{one['references']:,} references"
    )
    if one["bounds"] is None:
        say(one["note"])
        return
    print_bounds(one["bounds"])
    print_membership(one["membership"])


def print_bounds(bounds: Mapping[str, Any]) -> None:
    """All bounds of one class, the primary one first, then what is not supported."""
    rows = [
        [
            one["method"] + (", primary" if first else ""),
            one["validity"],
            f"{one['delta']:.3g}",
            f"{one['value']:.3f}",
            "" if one["ceiling"] is None else f"{one['ceiling']:.3f}",
            f"{one['significance']:.3g}",
            "; ".join(one["notes"]),
        ]
        for first, one in zip(
            [True, *[False] * len(bounds["others"])],
            [bounds["primary"], *bounds["others"]],
            strict=True,
        )
    ]
    shown = _COLUMNS if any(row[-1] for row in rows) else _COLUMNS[:-1]
    print_table(shown, [row[: len(shown)] for row in rows], right=range(2, 6))
    for one in bounds["refused"]:
        say(f"not given: {one['method']}: {one['reason']}")


def print_membership(metrics: Mapping[str, Any]) -> None:
    """Area under the curve and true positives at few false ones, each with its interval."""
    area = metrics["area_under_curve"]
    say(f"membership: AUC {area['value']:.3f} ({area['low']:.3f} .. {area['high']:.3f})")
    say("            " + "; ".join(_rate(one) for one in metrics["tpr_at_fpr"]))


def _rate(one: Mapping[str, Any]) -> str:
    if one["value"] is None:
        return f"at FPR {one['fpr']:g}: {one['note']}"
    return f"TPR {one['value']:.3f} ({one['low']:.3f} .. {one['high']:.3f}) at FPR {one['fpr']:g}"


def print_claim(claim: Mapping[str, Any] | None) -> None:
    """What the primary bound says of a claim."""
    if claim is None:
        return
    said = f"epsilon {claim['claimed_epsilon']:g} at delta {claim['claimed_delta']:g}"
    say(f"\nclaim of {said}: {claim['verdict'].upper()}: {claim['reason']}")


def assumptions(bounds: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the bounds rest on, each said once."""
    return list(dict.fromkeys(line for one in bounds for line in one["assumptions"]))
