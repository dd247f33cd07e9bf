"""Every kind of study in a module of its own; here they are opened, judged, shown and compared."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.studies.canife import Canife, CanifeRound, canife_audit
    from lmexposure.studies.doors import (
        check,
        compare,
        compared,
        open,
        report,
        report_study,
        study_of,
    )
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "Canife",
    "CanifeRound",
    "canife_audit",
    "check",
    "compare",
    "compared",
    "open",
    "report",
    "report_study",
    "study_of",
]
