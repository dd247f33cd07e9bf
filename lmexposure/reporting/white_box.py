"""What a private training gives away to someone who sees its noisy gradients, beside its claim."""

from lmexposure.reporting.data import Section
from lmexposure.studies import DpClaim, Privacy, inside_notes, inside_table


def white_box_section(claim: DpClaim | None, privacy: Privacy | None = None) -> Section | None:
    """Bounds from inside, from the loosest to the claim; None where there were no canaries."""
    if claim is None or claim.white_box is None:
        return None
    found = claim.white_box
    primary = None if privacy is None else privacy.primary
    outside = None
    if primary is not None and primary.delta == found.delta:
        outside = primary.validity, ", ".join(primary.formats), primary.value
    table = inside_table(found, claim.promise, outside)
    return Section(
        title="Seen from inside",
        columns=tuple(table.heads),
        words=table.words,
        rows=tuple(map(tuple, table.cells)),
        notes=inside_notes(found),
    )
