"""Which thresholds each kind of measurement can be held against."""

from typing import Literal

from lmexposure._settings import settings_of
from lmexposure.core import Thresholds
from lmexposure.errors import SettingsError

OF_LOOKS = ("max_verbatim_run", "max_extractable")
_OF_SWEEPS = ("max_worst_tpr", "max_epsilon", "significance", "min_canaries")
_OF_SWEEPS_ALONE = ("max_worst_tpr",)
_NAMES = {"run": "a run", "sweep": "a sweep"}


def refuse_other_thresholds(thresholds: Thresholds, *, kind: Literal["run", "sweep"]) -> None:
    """A threshold that what is judged cannot be held against would be without effect."""
    others = {*_OF_SWEEPS_ALONE, *OF_LOOKS}
    own = {
        "run": settings_of(Thresholds).keys() - others,
        "sweep": {*_OF_SWEEPS},
    }
    for name, declared in settings_of(Thresholds).items():
        value = getattr(thresholds, name)
        if name not in own[kind] and value != declared.default:
            other = "run" if kind == "sweep" else "sweep"
            its = "a look at memorised text" if name in OF_LOOKS else _NAMES[other]
            fitting = "one of a run" if kind == "run" else ", ".join(_OF_SWEEPS)
            remedy = f"leave it out, or give {fitting}"
            if kind == "run" and name in OF_LOOKS:
                remedy = (
                    "leave it out, or look for memorised text first: lmexposure verbatim MODEL "
                    "CORPUS --out RUN/verbatim"
                )
            raise SettingsError(
                f"{name}={value!r} is a threshold of {its}, and this is {_NAMES[kind]}; {remedy}"
            )
