"""Every kind of study in a module of its own; here they are opened, judged, shown and compared."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.studies.canife import Canife, CanifeRound, canife_audit
    from lmexposure.studies.defences import Defences, compare_defences
    from lmexposure.studies.doors import (
        check,
        compare,
        compared,
        open,
        report,
        report_study,
        study_of,
    )
    from lmexposure.studies.identifiers.comparison import natural_identifiers
    from lmexposure.studies.identifiers.ranking import IdentifierSettings
    from lmexposure.studies.identifiers.study import NaturalIdentifiers
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "Canife",
    "CanifeRound",
    "Defences",
    "IdentifierSettings",
    "NaturalIdentifiers",
    "canife_audit",
    "check",
    "compare",
    "compare_defences",
    "compared",
    "natural_identifiers",
    "open",
    "report",
    "report_study",
    "study_of",
]
