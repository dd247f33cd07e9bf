import json
import math

import pytest

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.bounds.ratio_bounds import ratio_bounds

# tensorflow/privacy, epsilon_lower_bound_test.py, from the R package asbio:
# (tp, fn, fp, tn, significance), [katz_log, walters, bailey, inverse_sinh].
PUBLISHED = [
    ((473, 511, 755, 950), 0.05, [1.01166194, 1.01189079, 1.01148934, 1.01167669]),
    ((1000, 10, 10, 10000), 0.05, [589.27335593, 568.32659563, 613.58766147, 592.63264572]),
    ((2, 697, 0, 313), 0.05, [0.13325535, 0.17571862, 0.18481008, 0.08081083]),
    ((500, 0, 0, 500), 0.01, [37.3169614, 37.35421695, 108.47420518, 35.46128691]),
]


@pytest.mark.parametrize(("counts", "significance", "ratios"), PUBLISHED)
def test_published(
    counts: tuple[int, int, int, int], significance: float, ratios: list[float]
) -> None:
    found = ratio_bounds(*counts, significance=significance)
    bounds = [found.katz_log, found.walters, found.bailey, found.inverse_sinh]
    assert [bound.ratio for bound in bounds] == pytest.approx(ratios, rel=1e-6)
    expected = [math.log(max(1.0, ratio)) for ratio in ratios]
    assert [bound.value for bound in bounds] == pytest.approx(expected, rel=1e-5)
    assert {bound.validity for bound in bounds} == {"asymptotic"}


@pytest.mark.parametrize(
    "counts", [(0, 5, 0, 5), (5, 0, 5, 0), (0, 5, 5, 0), (1, 0, 0, 1), (3, 3, 3, 3), (0, 1, 1, 0)]
)
@pytest.mark.parametrize("significance", [0.001, 0.05, 0.5, 0.9])
def test_edges_are_finite(counts: tuple[int, int, int, int], significance: float) -> None:
    plain = json.loads(json.dumps(ratio_bounds(*counts, significance=significance).to_dict()))
    for bound in plain.values():
        assert math.isfinite(bound["ratio"])
        assert bound["value"] >= 0
        assert bound["max_attainable"] >= 0


def test_no_signal_gives_0_and_says_so() -> None:
    bound = ratio_bounds(50, 50, 50, 50, significance=0.05).katz_log
    assert bound.value == 0
    assert "no signal" in bound.notes[1]


def test_refusals() -> None:
    with pytest.raises(InputError, match="tp=-1 must be a whole number at least 0"):
        ratio_bounds(-1, 1, 1, 1, significance=0.05)
    with pytest.raises(InputError, match=r"tp \+ fn = 0 and fp \+ tn = 2 must both be at least 1"):
        ratio_bounds(0, 0, 1, 1, significance=0.05)
    with pytest.raises(SettingsError, match="significance=0 must lie strictly between"):
        ratio_bounds(1, 1, 1, 1, significance=0)
