"""What the numbers mean: exposure and its intervals, epsilon, tests against guessing.

Numpy and scipy only: nothing here knows a model. All log-perplexities and exposures are in bits.
"""

from lmexposure.statistics.certificate import CertifiedExposure, certified_exposure
from lmexposure.statistics.counted import CountedExposure, counted_exposure
from lmexposure.statistics.epsilon import EpsilonPoint, epsilon_from_median_exposure
from lmexposure.statistics.goodness import GoodnessOfFit
from lmexposure.statistics.guessing import (
    GUESSING,
    GuessingBaseline,
    GuessingTest,
    guessing_test,
)
from lmexposure.statistics.importance import ImportanceExposure, importance_exposure
from lmexposure.statistics.intervals import (
    BinomialInterval,
    QuantileInterval,
    binomial_interval,
    quantile_interval,
)
from lmexposure.statistics.sampled import SampledExposure, sampled_exposure
from lmexposure.statistics.skew_normal import SkewNormalExposure, skew_normal_exposure
from lmexposure.statistics.skew_normal_curve import (
    SkewNormal,
    fit_skew_normal,
    skew_normal_log_cdf,
)
from lmexposure.statistics.summary import ExposureSummary, exposure_summary
from lmexposure.statistics.weighted_count import WeightedDraws

__all__ = [
    "GUESSING",
    "BinomialInterval",
    "CertifiedExposure",
    "CountedExposure",
    "EpsilonPoint",
    "ExposureSummary",
    "GoodnessOfFit",
    "GuessingBaseline",
    "GuessingTest",
    "ImportanceExposure",
    "QuantileInterval",
    "SampledExposure",
    "SkewNormal",
    "SkewNormalExposure",
    "WeightedDraws",
    "binomial_interval",
    "certified_exposure",
    "counted_exposure",
    "epsilon_from_median_exposure",
    "exposure_summary",
    "fit_skew_normal",
    "guessing_test",
    "importance_exposure",
    "quantile_interval",
    "sampled_exposure",
    "skew_normal_exposure",
    "skew_normal_log_cdf",
]
