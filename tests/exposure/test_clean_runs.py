"""The gate's promise in small; `scripts/benchmark clean_gate` has 20,000 runs of each design."""

from dataclasses import replace

import numpy as np
import pytest
from exposure.clean_runs import OF_CLAIM, Design, false_alarms, leaks_passed
from scipy.stats import binomtest

from lmexposure.core import Thresholds

OFTEN = Thresholds(significance=0.2)


@pytest.mark.parametrize(
    "design",
    [
        Design(references=100, permutations=199, thresholds=OFTEN),
        Design(references=1000, permutations=199, thresholds=OFTEN, classes=2, formats=2),
        Design(references=1000, permutations=199, thresholds=OFTEN, exact=True),
        Design(
            references=100,
            canaries=40,
            permutations=199,
            thresholds=Thresholds(significance=0.2, median_exposure=1.0, p_value=False),
        ),
    ],
    ids=["100", "formats", "exact", "median"],
)
def test_a_clean_model_is_called_leaking_no_oftener_than_promised(design: Design) -> None:
    runs = 60
    alarms = false_alarms(design, runs=runs, seed=7).total()
    assert alarms <= 0.2 * runs + 3 * np.sqrt(0.2 * 0.8 * runs)


def test_a_look_and_a_claim_beside_canaries_keep_their_levels() -> None:
    """Canaries and the look share the significance; the claim has a level of its own."""
    runs, design = 60, Design(references=100, permutations=199, thresholds=OFTEN, beside=True)
    found = false_alarms(design, runs=runs, seed=7)
    own = found.total() - found["claimed_epsilon"]
    assert binomtest(own, runs, 0.2, alternative="greater").pvalue >= 0.001
    assert binomtest(found.total(), runs, 0.2 + OF_CLAIM, alternative="greater").pvalue >= 0.001


@pytest.mark.parametrize("design", [Design(), Design(canaries=30, exact=True)], ids=["10", "30"])
def test_leaks_at_the_printed_limit_pass_as_rarely_as_printed(design: Design) -> None:
    passed = leaks_passed(replace(design, permutations=1_999), runs=100, seed=3)
    assert binomtest(passed, 100, 0.05, alternative="greater").pvalue >= 0.01
