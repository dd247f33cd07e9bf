from typing import Any

import pytest
from made_looks import look
from made_results import clean
from made_sweeps import made_sweep

from lmexposure.core import Thresholds
from lmexposure.doors import check
from lmexposure.errors import LmexposureError, ResultError, SettingsError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"significance": 0}, "significance=0 must lie strictly between 0 and 1"),
        ({"p_value": 0.05}, "p_value=0.05 must be true or false"),
        ({"max_exposure": 0}, "max_exposure=0 must be a finite number above 0"),
        ({"max_exposure": float("nan")}, "max_exposure=nan must be"),
        ({"median_exposure": 0.9}, "median_exposure=0.9 bits must be at least 1, which guessing"),
        ({"quantile_exposure": (0.9, 3)}, "quantile_exposure=3 bits must be at least 3.32"),
        ({"quantile_exposure": (1e-17, 3)}, "its quantile must lie between 1e-09 and 1 - 1e-09"),
        ({"significance": 5e-324}, "significance=5e-324 must be at least 1e-09"),
        ({"quantile_exposure": (1.0, 3)}, "quantile_exposure=1.0 must lie strictly"),
        ({"quantile_exposure": 8}, r"quantile_exposure=8 must be a quantile and bits, such as"),
        ({"max_guesses": 0}, "max_guesses=0 must be a whole number from 1 to"),
        ({"max_guesses": 10**400}, "must be a whole number from 1 to"),
        ({"max_epsilon": -1}, "max_epsilon=-1 must be a finite number, at least 0"),
        ({"max_epsilon": float("inf")}, "max_epsilon=inf must be"),
        ({"max_epsilon": "8"}, "max_epsilon='8' must be"),
        ({"min_canaries": 0}, "min_canaries=0 must be"),
        ({"repetitions": 0}, "repetitions=0 must be"),
        ({"max_verbatim_run": -1}, "max_verbatim_run=-1"),
        ({"max_extractable": 1}, "max_extractable=1"),
        ({"max_worst_tpr": -0.1}, "must be a rate, at least 0 and below 1"),
        ({"max_worst_tpr": 1.0}, "must be a rate, at least 0 and below 1"),
        ({"max_worst_tpr": True}, "must be a rate, at least 0 and below 1"),
        ({"max_worst_tpr": "high"}, "must be a rate, at least 0 and below 1"),
    ],
)
def test_refuses_what_cannot_be_meant(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Thresholds(**values)


@pytest.mark.parametrize(
    ("judged", "thresholds", "message"),
    [
        (made_sweep(), {"max_exposure": 5.0}, "max_exposure=5.0 does not apply to a sweep"),
        (made_sweep(), {"p_value": False}, "p_value=False does not apply to a sweep"),
        (made_sweep(), {"repetitions": 4}, "repetitions=4 does not apply to a sweep"),
        (clean(), {"max_worst_tpr": 0.5}, r"max_worst_tpr=0\.5 does not apply to a run"),
        (look(), {"max_guesses": 5}, "max_guesses=5 does not apply to a look at memorised text"),
    ],
)
def test_thresholds_of_another_kind_are_refused(
    judged: Any, thresholds: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        check(judged, Thresholds(**thresholds))


@pytest.mark.parametrize(
    ("judged", "thresholds", "error", "message"),
    [
        (
            3,
            Thresholds(),
            ResultError,
            "measured is of type int; give a study, such as a Result, or the path",
        ),
        (made_sweep(), 3, SettingsError, "thresholds is of type int"),
    ],
)
def test_what_is_no_sweep_is_refused(
    judged: Any, thresholds: Any, error: type[LmexposureError], message: str
) -> None:
    with pytest.raises(error, match=message):
        check(judged, thresholds)


def test_what_was_asked_for_is_told_from_defaults() -> None:
    assert not any(Thresholds().asked(key) for key in ("max_guesses", "p_value", "max_exposure"))
    assert Thresholds(max_guesses=1000).asked("max_guesses")
    assert Thresholds(p_value=True).asked("p_value")
    assert not Thresholds(p_value=False).asked("p_value")
    assert Thresholds(max_epsilon=0).asked("max_epsilon")
    assert Thresholds(max_guesses=5).guesses == 5
