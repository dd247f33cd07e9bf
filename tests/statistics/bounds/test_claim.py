import json
import math

import pytest

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    Claim,
    EpsilonBound,
)


def _bound(value: float, ceiling: float | None, delta: float = 1e-5) -> EpsilonBound:
    return EpsilonBound(
        method="some_epsilon",
        value=value,
        significance=0.05,
        delta=delta,
        validity="any-dp",
        counts={},
        threshold=None,
        threshold_choice="none",
        max_attainable=ceiling,
    )


@pytest.mark.parametrize(
    ("value", "ceiling", "verdict", "words"),
    [
        (3.0, 6.0, "contradicted", "epsilon is at least 3 (any-dp, significance 0.05), and 2 is"),
        (1.0, 6.0, "consistent", "a perfect attack would have shown 6, above the 2 claimed"),
        (2.0, 6.0, "consistent", "the bound is 2;"),
        (1.0, 2.0, "cannot tell", "even a perfect attack on these canaries would have shown 2"),
        (1.0, None, "cannot tell", "some_epsilon has no ceiling"),
        (3.0, None, "contradicted", "at least 3"),
    ],
)
def test_verdicts(value: float, ceiling: float | None, verdict: str, words: str) -> None:
    check = Claim(epsilon=2, delta=1e-5).against(_bound(value, ceiling))
    assert check.verdict == verdict
    assert words in check.reason
    assert "compute it there" not in check.reason


def test_a_larger_delta_may_contradict_and_says_what_it_leaves_open() -> None:
    claim = Claim(epsilon=2.0, delta=1e-5)
    assert claim.against(_bound(3.0, 6.0, delta=1e-3)).verdict == "contradicted"
    open_still = claim.against(_bound(1.0, 6.0, delta=1e-3))
    assert open_still.verdict == "consistent"
    assert "delta=0.001, and at the claim's 1e-05 it may be higher" in open_still.reason


def test_a_smaller_delta_is_refused() -> None:
    # (2, 1e-5)-private mechanisms may have any epsilon at delta 0: a bound there proves nothing.
    with pytest.raises(InputError, match=r"delta=0, below the claim's 1e-05.*at delta=1e-05"):
        Claim(epsilon=2.0, delta=1e-5).against(_bound(9.0, 9.0, delta=0.0))


def test_pure_claim_and_plain_dictionary() -> None:
    check = Claim(epsilon=0, delta=0).against(_bound(0.5, 3.0, delta=0.0))
    assert check.verdict == "contradicted"
    plain = json.loads(json.dumps(check.to_dict()))
    assert (plain["claimed_epsilon"], plain["claimed_delta"], plain["bound"]) == (0.0, 0.0, 0.5)


def test_refusals() -> None:
    with pytest.raises(SettingsError, match="epsilon=2 says nothing without its delta"):
        Claim(epsilon=2)
    with pytest.raises(SettingsError, match="epsilon=inf must be a finite number, at least 0"):
        Claim(epsilon=math.inf, delta=0)
    with pytest.raises(SettingsError, match=r"delta=1 must lie in \[0, 1\)"):
        Claim(epsilon=1, delta=1)
    with pytest.raises(InputError, match=r"delta=-1 must lie"):
        Claim(epsilon=1, delta=-1)
