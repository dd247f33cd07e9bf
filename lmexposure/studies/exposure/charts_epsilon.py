"""Lower bounds on epsilon: what was shown, what could have been, and what is claimed."""

from collections.abc import Sequence

from lmexposure._style import bound_name, count, nats, short, validity
from lmexposure.core.charts import (
    Ceiling,
    Chart,
    Styles,
    ceilings_chart,
    class_styles,
    clipped,
    joined,
)
from lmexposure.statistics import EpsilonBound, Privacy, PrivacyClass, Validity

_SHAPES: dict[Validity, str] = {
    "any-dp": "o",
    "iid-scores": "s",
    "gaussian": "^",
    "bayesian": "D",
    "asymptotic": "v",
}


def epsilon_chart(privacy: Privacy | None, styles: Styles | None = None) -> Chart | None:
    """Each bound of the class of canaries whose bound is quoted."""
    shown = None if privacy is None else _chosen(privacy)
    if privacy is None or shown is None or shown.bounds is None:
        return None
    bounds = [shown.bounds.primary, *shown.bounds.others]
    by_class = styles or class_styles([shown.repetitions])
    common = _common_delta(bounds)
    kinds = {bound.validity for bound in bounds}
    claimed = None if privacy.claim is None else privacy.claim.claimed_epsilon
    return ceilings_chart(
        name="epsilon",
        kind="epsilon",
        title=f"Lower bounds on epsilon, {_class(shown)}",
        caption=(
            "The longer a thick bar, the less private the training was; its thin line ends where a "
            "perfect attack on these canaries would have."
        ),
        description=_description(claimed, shown, bounds),
        rows=[
            Ceiling(
                name=_name(bound, place == 0, common),
                value=bound.value,
                most=bound.max_attainable,
                marker=_SHAPES[bound.validity],
            )
            for place, bound in enumerate(bounds)
        ],
        axis=f"Epsilon (nats){common}, higher = less private",
        color=by_class[shown.repetitions]["color"],
        markers=[(f"{kind}: {validity(kind)}", m) for kind, m in _SHAPES.items() if kind in kinds],
        claimed=claimed,
    )


def _chosen(privacy: Privacy) -> PrivacyClass | None:
    """All bounds are of the class that the quoted one is of, so that they can be compared."""
    quoted = privacy.primary
    if quoted is None:
        return None
    key_of = tuple(quoted.formats), quoted.repetitions
    return next(part for part in privacy.classes if part.bounds is not None and part.key == key_of)


def _class(part: PrivacyClass) -> str:
    formats = ", ".join(clipped(name, 24) for name in part.formats if name)
    return f"{formats + ', ' if formats else ''}{count(part.repetitions, 'repetition')}"


def _name(bound: EpsilonBound, primary: bool, common_delta: str) -> str:
    """What the bound is and says; its delta where not all of them have the same."""
    delta = "" if common_delta else f" at delta {short(bound.delta)}"
    first = "primary: " if primary else ""
    return f"{first}{clipped(bound_name(bound.name))} ≥ {nats(bound.value)}{delta}"


def _common_delta(bounds: Sequence[EpsilonBound]) -> str:
    """The delta of all bounds; "" where they differ."""
    deltas = {bound.delta for bound in bounds}
    return f" at delta {short(deltas.pop())}" if len(deltas) == 1 else ""


def _description(claimed: float | None, part: PrivacyClass, bounds: Sequence[EpsilonBound]) -> str:
    parts = []
    for bound in bounds:
        most = bound.max_attainable
        end = "" if most is None else f" (max attainable {nats(most)})"
        parts.append(_name(bound, False, _common_delta(bounds)) + end)
    claim = "" if claimed is None else f" Claimed is {short(claimed)}."
    return (
        f"Lower bounds on epsilon in nats, higher = less private, from {_class(part)}, the primary "
        f"one first{_common_delta(bounds)}: {joined(parts)}.{claim}"
    )
