"""Bounds on epsilon and membership metrics on the terminal."""

from collections.abc import Mapping
from typing import Any

from lmexposure.cli.console import print_table, say

__all__ = ["print_privacy"]

_COLUMNS = ("bound", "holds for", "delta", "epsilon >=", "at most", "significance", "")
_LEGEND = (
    "primary      named beforehand by how the canaries were drawn; half the significance is its",
    "significance of the largest primary bound, quoted below: those of all classes together",
    "holds for    any-dp: every private training; iid-scores: scores independent and alike; "
    "gaussian: only a Gaussian trade-off",
    "at most      what a perfect attack on so many canaries would have shown",
)


def print_privacy(section: Mapping[str, Any]) -> None:
    """What `privacy_of` gives: class by class, then the bound to quote and what it rests on."""
    coins = section["coins"]
    how = "no coins declared" if coins in (None, "fixed") else f"coins of {coins:g}"
    say(
        f"\nLower bounds on epsilon of one document, in nats, {how}; higher = less private. All "
        f"hold together at significance {section['significance']:g}, each for its kind of training"
    )
    for one in section["classes"]:
        _print_class(one)
    if section["primary"] is not None:
        for line in _LEGEND:
            say(line)
        for line in section.get("notes", ()):
            say(f"note         {line}")
        _print_primary(section["primary"])
    _print_claim(section["claim"])


def _print_class(one: Mapping[str, Any]) -> None:
    """The bounds and the membership metrics of one class of repetitions."""
    formats = ", ".join(filter(None, one["formats"]))
    say(
        f"\n{formats + ', ' if formats else ''}repetitions {one['repetitions']}: "
        f"{one['canaries']:,} in, {one['excluded']:,} left out, {one['references']:,} references"
    )
    if one["bounds"] is None:
        say(one["note"])
        return
    _print_bounds(one["bounds"])
    _print_membership(one["membership"])


def _print_bounds(bounds: Mapping[str, Any]) -> None:
    """All bounds of one class, the primary one first, then what is not supported."""
    rows = [
        [
            _name(one) + ("" if number else ", primary"),
            one["validity"],
            f"{one['delta']:.3g}",
            f"{one['value']:.3f}",
            "" if one["ceiling"] is None else f"{one['ceiling']:.3f}",
            f"{one['significance']:.3g}",
            "; ".join(one["notes"]),
        ]
        for number, one in enumerate([bounds["primary"], *bounds["others"]])
    ]
    shown = _COLUMNS if any(row[-1] for row in rows) else _COLUMNS[:-1]
    print_table(shown, [row[: len(shown)] for row in rows], right=range(2, 6))
    for one in bounds["refused"]:
        say(f"not given: {one['method']}: {one['reason']}")


def _name(one: Mapping[str, Any]) -> str:
    """Two kinds of bounds from exposure have one name; coins tell them apart."""
    coined = one["method"] == "epsilon_from_exposure" and one["validity"] == "any-dp"
    return f"{one['method']} with coins" if coined else str(one["method"])


def _print_membership(metrics: Mapping[str, Any]) -> None:
    """Area under the curve and true positives at few false ones, each with its interval."""
    area = metrics["area_under_curve"]
    say(f"membership: AUC {area['value']:.3f} ({area['low']:.3f} .. {area['high']:.3f})")
    say("            " + "; ".join(_rate(one) for one in metrics["tpr_at_fpr"]))


def _rate(one: Mapping[str, Any]) -> str:
    if one["value"] is None:
        return f"at FPR {one['fpr']:g}: {one['note']}"
    return f"TPR {one['value']:.3f} ({one['low']:.3f} .. {one['high']:.3f}) at FPR {one['fpr']:g}"


def _print_primary(one: Mapping[str, Any]) -> None:
    where = ", ".join(filter(None, [*one["formats"], f"repetitions {one['repetitions']}"]))
    say(
        f"\nepsilon >= {one['value']:.3f} at delta {one['delta']:.3g}, significance "
        f"{one['significance']:.3g} ({_name(one)}, {one['validity']}; {where}; {one['adjacency']})"
    )
    for line in one["assumptions"]:
        say(f"assumes: {line}")


def _print_claim(claim: Mapping[str, Any] | None) -> None:
    """What the bounds say of a claim."""
    if claim is None:
        return
    said = f"epsilon {claim['claimed_epsilon']:g} at delta {claim['claimed_delta']:g}"
    say(f"\nclaim of {said}: {claim['verdict'].upper()}: {claim['reason']}")
