"""What a training with differential privacy promised, and what the promise does not speak of."""

from lmexposure._style import LABELS, nats, short, whole
from lmexposure.reporting.data import Section
from lmexposure.studies import PRIVATE_NOTES, DpClaim, ExPost

_MEANING = (
    "epsilon: whatever is read off the model is at most e^epsilon times as likely, up to delta, as "
    "without {whose}; lower = more private. The audit bounds the same number from below: it can "
    "refute the promise, and never prove it"
)
_GIVEN = (
    "the noise follows from a seed that was given: the promise does not hold against those who "
    "know it"
)


def promise_section(claim: DpClaim | None) -> Section | None:
    """All that a training promised; None where it promised nothing."""
    if claim is None:
        return None
    of_documents = claim.unit == "document"
    whose = "one document" if of_documents else f"all documents of one value of {claim.unit!r}"
    return Section(
        title="Promise of the training",
        columns=("what", "value"),
        words=2,
        rows=(
            ("method", f"{claim.method}, {claim.sampler} sampling"),
            (
                "promised epsilon",
                f"{nats(claim.epsilon)} nats at {LABELS['delta']} "
                f"{short(claim.delta)} ({claim.accountant.upper()} accountant)",
            ),
            ("by Renyi divergences", f"{nats(claim.epsilon_rdp)} nats"),
            ("unit", f"{whose}; {claim.adjacency}"),
            ("units", whole(claim.units)),
            ("documents of the largest unit", whole(claim.largest_group)),
            ("noise multiplier", short(claim.noise_multiplier)),
            ("clip", short(claim.clip)),
            ("sample rate", short(claim.sample_rate)),
            ("steps", whole(claim.steps)),
            *_of_units(claim.ex_post),
        ),
        notes=(
            _MEANING.format(whose=whose),
            *(f"not covered: {line}" for line in claim.not_covered),
            *([_GIVEN] if claim.noise_is_given else []),
            *([] if claim.ex_post is None else [f"ex post: {line}" for line in PRIVATE_NOTES]),
        ),
    )


def _of_units(found: ExPost | None) -> tuple[tuple[str, str], ...]:
    if found is None:
        return ()
    return (
        ("of single units, ex post: median", f"{nats(found.median)} nats"),
        ("nine of ten lie in", f"{nats(found.q05)} .. {nats(found.q95)} nats"),
        ("largest", f"{nats(found.largest)} nats"),
    )
