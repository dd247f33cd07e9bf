"""Which thresholds a run can be held against."""

from lmexposure._settings import settings_of
from lmexposure.core import Thresholds
from lmexposure.errors import SettingsError

_OF_OTHERS = {
    "max_verbatim_run": "a look at memorised text",
    "max_extractable": "a look at memorised text",
    "max_worst_tpr": "a sweep",
}
_REMEDIES = {
    "a sweep": "give one of a run",
    "a look at memorised text": "look for memorised text first: lmexposure verbatim MODEL CORPUS "
    "--out RUN/verbatim",
}


def refuse_other_thresholds(thresholds: Thresholds) -> None:
    """A threshold that a run cannot be held against would be without effect."""
    declared = settings_of(Thresholds)
    for name, of in _OF_OTHERS.items():
        value = getattr(thresholds, name)
        if value != declared[name].default:
            raise SettingsError(
                f"{name}={value!r} is a threshold of {of}, and this is a run; leave it out, or "
                f"{_REMEDIES[of]}"
            )
