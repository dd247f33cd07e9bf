"""Whether a manifest's entries are what its plan says: roles that coins deny prove nothing."""

from collections.abc import Sequence
from itertools import pairwise

from lmexposure.canaries.plan import Canary, Plan
from lmexposure.errors import ManifestError

__all__ = ["check_canaries"]

_NEXT = "take the manifest that insertion wrote, or insert again"


def check_canaries(plan: Plan, canaries: Sequence[Canary], *, documents: int) -> None:
    """Compare the entries with the plan: who is there, in which role, how often, and where.

    Args:
        plan: what was asked for.
        canaries: candidates and controls.
        documents: how many the corpus had.

    Raises:
        ManifestError: a planned entry is missing, or one is there twice or was never planned; a
            role that is not what the plan and its coins make it; repetitions or positions that do
            not go with it; two entries of one secret. It names the entry.
    """
    planned = _planned(plan)
    _check_ids(set(planned), [one.id for one in canaries])
    holders: dict[tuple[str, int], str] = {}
    for one in canaries:
        name, repetitions = planned[one.id]
        _check_one(plan, one, name, repetitions, documents)
        other = holders.setdefault((one.format, one.index), one.id)
        if other != one.id:
            raise ManifestError(f"{other} and {one.id} hold the same secret; {_NEXT}")


def _planned(plan: Plan) -> dict[str, tuple[str, int]]:
    """(format, class of repetitions) by id; controls are of class 0."""
    left_out, planned = set(plan.left_out), {}
    for one in plan.formats:
        classes = [count for count in plan.repetitions for _ in range(plan.canaries)]
        for name, count in zip(plan.ids(one), classes, strict=True):
            if name not in left_out:
                planned[name] = (one.name, count)
        planned |= dict.fromkeys(plan.control_ids(one), (one.name, 0))
    return planned


def _check_ids(planned: set[str], given: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in given:
        if name not in planned:
            raise ManifestError(f"{name!r} is no entry of the manifest's own plan; {_NEXT}")
        if name in seen:
            raise ManifestError(f"{name} stands in the manifest twice; {_NEXT}")
        seen.add(name)
    if missing := planned - seen:
        raise ManifestError(
            f"the plan's {min(missing)} is missing from the manifest ({len(missing)} in all); "
            f"to drop some afterwards biases every number; {_NEXT}"
        )


def _check_one(plan: Plan, one: Canary, name: str, repetitions: int, documents: int) -> None:
    role = plan.role(one.id) if repetitions else "control"
    if one.role != role:
        raise ManifestError(
            f"{one.id} has role {one.role!r}, but by the plan and its coins it is {role!r}; {_NEXT}"
        )
    if one.format != name or one.repetitions != repetitions:
        raise ManifestError(
            f"{one.id} has format {one.format!r} and repetitions={one.repetitions!r}, but the plan "
            f"says {name!r} and {repetitions}; {_NEXT}"
        )
    places = one.positions
    ascending = all(a < b for a, b in pairwise(places))
    inside = not places or (places[0] >= 0 and places[-1] < documents)
    if len(places) != repetitions or not ascending or not inside:
        raise ManifestError(
            f"{one.id} must have {repetitions} different positions, ascending, from 0 to "
            f"{documents - 1}, and has others; {_NEXT}"
        )
