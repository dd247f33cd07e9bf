"""Studies beside a run: what its noisy gradients give away, and which text its model gives back."""

from lmexposure.core import Section as StudySection
from lmexposure.core import Table
from lmexposure.reporting.data import Section
from lmexposure.studies import DpClaim, Privacy, VerbatimRecord, inside_notes, inside_table


def white_box_section(claim: DpClaim | None, privacy: Privacy | None = None) -> Section | None:
    """Bounds from inside, from the loosest to the claim; None where there were no canaries."""
    if claim is None or claim.white_box is None:
        return None
    found = claim.white_box
    primary = None if privacy is None else privacy.primary
    outside = None
    if primary is not None and primary.delta == found.delta:
        outside = primary.validity, ", ".join(primary.formats), primary.value
    table, notes = inside_table(found, claim.promise, outside), inside_notes(found)
    return _as_told(StudySection(id="inside", title="Seen from inside", table=table, notes=notes))


def memorised_section(look: VerbatimRecord | None) -> Section | None:
    """What a look at memorised text found; None where there was none."""
    return None if look is None else _as_told(look.beside_canaries())


def _as_told(section: StudySection) -> Section:
    """A study's section as one of a run's report."""
    table = section.table or Table((), ())
    return Section(
        title=section.title,
        columns=tuple(table.heads),
        words=table.words,
        rows=tuple(map(tuple, table.cells)),
        notes=tuple(section.notes),
    )
