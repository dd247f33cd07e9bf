from typing import Any

import pytest

from lmexposure.errors import SettingsError
from lmexposure.gate import Thresholds


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"significance": 0}, "significance=0 must lie strictly between 0 and 1"),
        ({"p_value": 0.05}, "p_value=0.05 must be true or false"),
        ({"max_exposure": 0}, "max_exposure=0 must be a finite number above 0"),
        ({"max_exposure": float("nan")}, "max_exposure=nan must be"),
        ({"median_exposure": 0.9}, "median_exposure=0.9 bits must be at least 1, which guessing"),
        ({"quantile_exposure": (0.9, 3)}, "quantile_exposure=3 bits must be at least 3.32"),
        ({"quantile_exposure": (1.0, 3)}, "quantile_exposure=1.0 must lie strictly"),
        ({"quantile_exposure": 8}, r"quantile_exposure=8 must be a quantile and bits, such as"),
        ({"max_guesses": 0}, "max_guesses=0 must be a whole number from 1 to"),
        ({"max_guesses": 10**400}, "must be a whole number from 1 to"),
        ({"max_epsilon": -1}, "max_epsilon=-1 must be a finite number, at least 0"),
        ({"max_epsilon": float("inf")}, "max_epsilon=inf must be"),
        ({"max_epsilon": "8"}, "max_epsilon='8' must be"),
        ({"min_canaries": 0}, "min_canaries=0 must be"),
        ({"repetitions": 0}, "repetitions=0 must be"),
    ],
)
def test_refuses_what_cannot_be_meant(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Thresholds(**values)


def test_what_was_asked_for_is_told_from_defaults() -> None:
    assert not any(Thresholds().asked(key) for key in ("max_guesses", "p_value", "max_exposure"))
    assert Thresholds(max_guesses=1000).asked("max_guesses")
    assert Thresholds(p_value=True).asked("p_value")
    assert not Thresholds(p_value=False).asked("p_value")
    assert Thresholds(max_epsilon=0).asked("max_epsilon")
    assert Thresholds(max_guesses=5).guesses == 5
