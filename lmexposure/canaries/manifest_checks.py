"""Whether a manifest's entries are what its plan says: roles that coins deny prove nothing."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from lmexposure.canaries.format import Format
from lmexposure.canaries.plan import Canary, Plan
from lmexposure.errors import ManifestError

_NEXT = "take the manifest that insertion wrote, or insert again"


def check_entries(plan: Plan, entries: Sequence[Canary], *, documents: int) -> None:
    """Compare the entries with the plan: who is there, in which role, how often, and where.

    Args:
        plan: what was asked for.
        entries: candidates and controls.
        documents: how many the corpus had.

    Raises:
        ManifestError: a planned entry is missing, or one is there twice or was never planned; a
            role that is not what the plan and its coins make it; repetitions or positions that do
            not go with it; two entries of one secret. It names the entry.
    """
    planned = _planned(plan)
    _check_ids(set(planned), [one.id for one in entries])
    holders: dict[tuple[str, int], str] = {}
    for one in entries:
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
    for number, name in enumerate(given):
        if name not in planned:  # not shown: where columns were swapped, it is a secret
            raise ManifestError(
                f"entries[{number}].id is of no entry of the manifest's own plan; {_NEXT}"
            )
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
        # A format that the plan has not may be a secret, where columns were swapped.
        known = one.format in {form.name for form in plan.formats}
        shown = repr(one.format) if known else "<not the plan's>"
        raise ManifestError(
            f"{one.id} has format {shown} and repetitions={one.repetitions!r}, but the plan "
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


def check_set_aside(
    plan: Plan, entries: Sequence[Canary], set_aside: Mapping[str, Sequence[int]]
) -> None:
    """Compare the secrets that were set aside with the plan's formats and entries.

    Raises:
        ManifestError: a format that the plan has not, indices that are not ascending or not of the
            format, or a secret that an entry holds as well.
    """
    sizes = {one.name: one.size for one in plan.formats}
    for name, indices in set_aside.items():
        if name not in sizes:
            raise ManifestError(f"set_aside has a format that is not among the plan's; {_NEXT}")
        ascending = all(a < b for a, b in pairwise(indices))
        if not ascending or (indices and not 0 <= indices[0] <= indices[-1] < sizes[name]):
            raise ManifestError(
                f"set_aside of format {name!r} must hold secrets of it, ascending; {_NEXT}"
            )
    aside = {name: frozenset(indices) for name, indices in set_aside.items()}
    for one in entries:
        if one.index in aside.get(one.format, ()):
            raise ManifestError(f"the secret of {one.id} is set aside as well; {_NEXT}")


def check_texts(formats: Mapping[str, Format], entries: Sequence[Canary]) -> None:
    """Compare the texts that a file holds with the fills of their indices.

    Raises:
        ManifestError: a text that is not the fill of its index.
    """
    for one in entries:
        known = formats[one.format]
        if one.index >= known.size or known.text(one.index) != one.text:
            raise ManifestError(f"the text of {one.id} is not the fill of its index; insert again")
