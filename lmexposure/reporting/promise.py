"""What a training with differential privacy promised, and what the promise does not speak of."""

from lmexposure._style import LABELS, nats, short, whole
from lmexposure.records import DpClaim
from lmexposure.reporting.data import Section

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
    """All that a training promised; None where it promised nothing.

    Args:
        claim: of a result's training.
    """
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
        ),
        notes=(
            _MEANING.format(whose=whose),
            *(f"not covered: {line}" for line in claim.not_covered),
            *([_GIVEN] if claim.noise_is_given else []),
        ),
    )
