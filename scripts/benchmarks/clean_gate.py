"""How often the gate calls a clean model leaking, and passes a leak at the limit that it prints.

Simulated runs of each design, judged by the gate itself: at most 1 in 100 may be called leaking.
With a look at documents and a claim beside the canaries, canaries and look have the significance
together, and the claim its own 2.5 % on top.
"""

from exposure.clean_runs import OF_CLAIM, Design, false_alarms, leaks_passed
from harness import Claims, Namespace
from scipy.stats import binomtest

from lmexposure.core import Thresholds
from lmexposure.statistics import binomial_interval

ARGUMENTS = {"runs": 20_000, "seed": 0}
_PROMISE, _UNSEEN, _SURE = 0.01, 0.05, 0.01
_DESIGNS = {
    "3 classes of 10, 10,000 references": Design(),
    "3 classes of 10, 1,000 references": Design(references=1000),
    "3 classes of 10, 100 references": Design(references=100),
    "3 classes of 10, exact ranks": Design(exact=True),
    "4 classes of 10, 10,000 references": Design(classes=4),
    "3 formats of 3 classes of 10, 10,000 references": Design(formats=3),
    "20 classes of 20, 10,000 references": Design(classes=20, canaries=20),
}
# Each run is judged: a tenth of the runs.
_MEDIAN = Thresholds(median_exposure=1.0)
_BY_MEDIAN = Design(classes=1, canaries=200, references=100, thresholds=_MEDIAN)
_BESIDE = {0.05: 2_000, 0.01: 20_000}
_LEAKING = (
    Design(),
    Design(canaries=30, exact=True),
    Design(canaries=100, exact=True),
    Design(beside=True),
)


def clean(given: Namespace) -> Claims:
    """Designs without a leak, by canaries alone."""
    designs = [(name, design, given.runs) for name, design in _DESIGNS.items()]
    few = max(1, given.runs // 10)
    for name, design, runs in (*designs, ("median of 200 at 1 bit", _BY_MEDIAN, few)):
        found = false_alarms(design, runs=runs, seed=given.seed)
        count = found.total()
        ends = binomial_interval(count, runs)
        yield (
            count <= _PROMISE * runs,
            f"{name}: {count} of {runs:,} ({ends.low[0]:.4f} .. {ends.high[0]:.4f}) {dict(found)}",
        )


def beside(given: Namespace) -> Claims:
    """A look and a claim beside the canaries."""
    for level, most in _BESIDE.items():
        runs = min(most, given.runs)
        design = Design(beside=True, thresholds=Thresholds(significance=level))
        found = false_alarms(design, runs=runs, seed=given.seed)
        own = found.total() - found["claimed_epsilon"]
        for count, allowed in ((own, level), (found.total(), level + OF_CLAIM)):
            p = binomtest(count, runs, allowed, alternative="greater").pvalue
            yield p >= _SURE, f"a look and a claim beside: {count} of {runs:,} at {allowed:.3g}"


def leaking(given: Namespace) -> Claims:
    """Leaks at the limit that is printed."""
    for design in _LEAKING:
        passed = leaks_passed(design, runs=200, seed=given.seed)
        kept = binomtest(passed, 200, _UNSEEN, alternative="greater").pvalue >= _SURE
        yield kept, f"{design.canaries} canaries: {passed} of 200 pass, {_UNSEEN:.0%} printed"


PARTS = {"clean": clean, "beside": beside, "leaking": leaking}
