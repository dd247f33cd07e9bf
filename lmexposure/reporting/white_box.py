"""What a private training gives away to someone who sees its noisy gradients, beside its claim."""

from collections.abc import Iterator

from lmexposure._style import LABELS, MISSING, count, nats, percent, short, whole
from lmexposure.records import DpClaim, Privacy, WhiteBoxBounds
from lmexposure.reporting.data import Section

_NOTES = (
    "lower bounds on epsilon, in nats: a claim below one of them is refuted, and so is a noise "
    "multiplier that is above what a step leaves room for. From outside, the "
    "finished model alone is asked; from inside, every noisy gradient is seen, and all other "
    "documents are known",
    "by canaries of the whole training: each would be a document whose gradient is as long as the "
    "clip, and is in or not for all steps",
    "step by step: a canary is in a single step or not, so that each step is an experiment; then "
    "its noise is composed over all steps, granted that documents are sampled as claimed",
)


def white_box_section(claim: DpClaim | None, privacy: Privacy | None = None) -> Section | None:
    """Bounds from inside, from the loosest to the claim; None where there were no canaries."""
    if claim is None or claim.white_box is None:
        return None
    found = claim.white_box
    attainable = (
        f"max attainable in {count(found.steps, 'step')}: {nats(found.attainable)}, and room for a "
        f"noise multiplier of at most {_noise(found.noise_attainable)}; a promise that these could "
        "not have contradicted is not tested"
    )
    return Section(
        title="Seen from inside",
        columns=("what", "holds for", "of", "epsilon"),
        words=3,
        rows=tuple(_rows(claim, found, privacy)),
        notes=(
            *_NOTES,
            f"{LABELS['delta']} {short(found.delta)}; the bounds from inside hold together at "
            f"{percent(1 - found.significance)}",
            attainable,
            *found.assumptions,
        ),
    )


def _rows(
    claim: DpClaim, found: WhiteBoxBounds, privacy: Privacy | None
) -> Iterator[tuple[str, str, str, str]]:
    outside = None if privacy is None else privacy.primary
    if outside is not None and outside.delta == found.delta:
        yield ("from outside", outside.validity, ", ".join(outside.formats), nats(outside.value))
    canaries = f"{whole(found.included)} of {whole(found.canaries)} canaries in"
    for name, bound in (
        ("whole training", found.one_run),
        ("whole training, Gaussian", found.one_run_gaussian),
    ):
        if bound is not None:
            yield (name, bound.validity, canaries, nats(bound.value))
    if (step := found.step) is not None:
        right = f"{whole(step.counts['correct'])} of {whole(found.tosses)} coins guessed"
        composed = MISSING if found.composed is None else nats(found.composed)
        yield ("step by step, composed", step.validity, right, composed)
        least, promised = _noise(found.noise_at_most), short(claim.noise_multiplier)
        claimed = f"noise multiplier at most {least}, {promised} claimed"
        yield ("a single step", step.validity, claimed, nats(step.value))
    yield ("promised", "", f"{whole(claim.steps)} steps", nats(claim.epsilon))


def _noise(value: float | None) -> str:
    return "any" if value is None else short(value)
