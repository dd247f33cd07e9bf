"""Drawing a plan: every candidate and control, where each goes, and last the coins."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from lmexposure.canaries.format import Format
from lmexposure.canaries.plan import Canary, Plan, secrets
from lmexposure.canaries.randomness import derive_seed, permutation
from lmexposure.canaries.search import find_fills
from lmexposure.errors import PlanError


def draw(
    plan: Plan, *, documents: int, set_aside: Mapping[str, Collection[int]]
) -> tuple[Canary, ...]:
    """Draw every candidate and control of the plan, where each stands, and last the coins.

    Args:
        plan: what to draw.
        documents: how many the corpus has.
        set_aside: indices per format name that must not be drawn.

    Raises:
        PlanError: too few documents or secrets; a fill of one format within a canary of another.
    """
    if max(plan.repetitions) > documents:
        raise PlanError(
            f"repetitions={max(plan.repetitions)} need as many documents, since each repetition "
            f"stands in another place; the corpus has {documents}: repeat at most {documents} times"
        )
    plan.check_space(set_aside=set_aside)
    drawn = tuple(
        canary
        for one in plan.formats
        for canary in _draw_format(plan, one, documents, set_aside.get(one.name, ()))
    )
    _check_apart(plan.formats, drawn)
    return drawn


def _draw_format(
    plan: Plan, one: Format, documents: int, set_aside: Collection[int]
) -> Iterator[Canary]:
    stream = secrets(plan, one, frozenset(set_aside))
    ids = iter(plan.ids(one))
    for repetition in plan.repetitions:
        for name, index in zip(islice(ids, plan.canaries), stream, strict=False):
            if name not in plan.left_out:
                yield _canary(plan, one, name, index, _places(plan, name, documents, repetition))
    for name, index in zip(plan.control_ids(one), stream, strict=False):
        yield _canary(plan, one, name, index, ())


def _places(plan: Plan, name: str, documents: int, repetitions: int) -> tuple[int, ...]:
    # One stream per canary, so that leaving one out moves no other.
    order = permutation(documents, derive_seed(plan.seed, "positions", name))
    return tuple(sorted(islice(order, repetitions)))


def _canary(plan: Plan, one: Format, name: str, index: int, positions: tuple[int, ...]) -> Canary:
    return Canary(
        id=name,
        format=one.name,
        index=index,
        text=one.text(index),
        role=plan.role(name) if positions else "control",
        repetitions=len(positions),
        positions=positions,
    )


def _check_apart(formats: Sequence[Format], drawn: Sequence[Canary]) -> None:
    """A canary must not smuggle in a fill of another format, whichever way its coin fell."""
    for one in formats:
        for canary in drawn:
            if canary.format == one.name or not canary.positions:
                continue
            if next(find_fills(one, canary.text), None) is not None:
                raise PlanError(
                    f"canary {canary.id} contains a fill of format {one.name!r}; give "
                    f"{one.name!r} a text of its own around its holes, or plan them apart"
                )
