"""Bounds on epsilon and membership metrics on the terminal."""

from lmexposure.cli.console import print_table, say
from lmexposure.records import ClaimCheck, PrimaryBound, Privacy, PrivacyClass
from lmexposure.records.result import ClassBounds, Membership, TruePositiveRate

_COLUMNS = ("bound", "holds for", "delta", "epsilon >=", "at most", "significance", "")
_LEGEND = (
    "primary      named beforehand by how the canaries were drawn; half the significance is its",
    "significance of the largest primary bound, quoted below: those of all classes together",
    "holds for    any-dp: every private training; iid-scores: scores independent and alike; "
    "gaussian: only a Gaussian trade-off",
    "at most      what a perfect attack on so many canaries would have shown",
)


def print_privacy(privacy: Privacy) -> None:
    """Class by class, then the bound to quote and what it rests on."""
    coins = privacy.inclusion_probability
    how = "no coins declared" if coins is None else f"coins of {coins:g}"
    say(
        f"\nLower bounds on epsilon of one document, in nats, {how}; higher = less private. All "
        f"hold together at significance {privacy.significance:g}, each for its kind of training"
    )
    for part in privacy.classes:
        _print_class(part)
    if privacy.primary is not None:
        for line in _LEGEND:
            say(line)
        for line in privacy.notes:
            say(f"note         {line}")
        _print_primary(privacy.primary)
    _print_claim(privacy.claim)


def _print_class(part: PrivacyClass) -> None:
    """The bounds and the membership metrics of one class of repetitions."""
    formats = ", ".join(filter(None, part.formats))
    say(
        f"\n{formats + ', ' if formats else ''}repetitions {part.repetitions}: "
        f"{part.canaries:,} in, {part.held_out:,} left out, {part.references:,} references"
    )
    if part.bounds is not None:
        _print_bounds(part.bounds)
    if part.membership is not None:
        _print_membership(part.membership)
    if part.note is not None:
        say(part.note)


def _print_bounds(bounds: ClassBounds) -> None:
    """All bounds of one class, the primary one first, then what is not supported."""
    rows = [
        [
            bound.name + ("" if number else ", primary"),
            bound.validity,
            f"{bound.delta:.3g}",
            f"{bound.value:.3f}",
            "" if bound.max_attainable is None else f"{bound.max_attainable:.3f}",
            f"{bound.significance:.3g}",
            "; ".join(bound.notes),
        ]
        for number, bound in enumerate([bounds.primary, *bounds.others])
    ]
    shown = _COLUMNS if any(row[-1] for row in rows) else _COLUMNS[:-1]
    print_table(shown, [row[: len(shown)] for row in rows], right=range(2, 6))
    for refused in bounds.refused:
        say(f"not given: {refused.method}: {refused.reason}")


def _print_membership(metrics: Membership) -> None:
    """Area under the curve and true positives at few false ones, each with its interval."""
    area = metrics.area_under_curve
    say(f"membership: AUC {area.value:.3f} ({area.low:.3f} .. {area.high:.3f})")
    say("            " + "; ".join(map(_rate, metrics.tpr_at_fpr)))


def _rate(rate: TruePositiveRate) -> str:
    if rate.value is None:
        return f"at FPR {rate.fpr:g}: {rate.note}"
    return f"TPR {rate.value:.3f} ({rate.low:.3f} .. {rate.high:.3f}) at FPR {rate.fpr:g}"


def _print_primary(bound: PrimaryBound) -> None:
    where = ", ".join(filter(None, [*bound.formats, f"repetitions {bound.repetitions}"]))
    say(
        f"\nepsilon >= {bound.value:.3f} at delta {bound.delta:.3g}, significance "
        f"{bound.significance:.3g} ({bound.name}, {bound.validity}; {where}; {bound.adjacency})"
    )
    for line in bound.assumptions:
        say(f"assumes: {line}")


def _print_claim(claim: ClaimCheck | None) -> None:
    """What the bounds say of a claim."""
    if claim is None:
        return
    said = f"epsilon {claim.claimed_epsilon:g} at delta {claim.claimed_delta:g}"
    say(f"\nclaim of {said}: {claim.verdict.upper()}: {claim.reason}")
