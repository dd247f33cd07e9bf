"""What the numbers mean: exposure and its intervals, epsilon, tests against guessing.

Numpy and scipy only: nothing here knows a model. All log-perplexities and exposures are in bits.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure._quantiles import ExposureEstimate
    from lmexposure.statistics.bounds.bound import EpsilonBound
    from lmexposure.statistics.bounds.claim import Claim, ClaimCheck
    from lmexposure.statistics.bounds.clopper_pearson import clopper_pearson_epsilon
    from lmexposure.statistics.bounds.from_exposure import (
        EpsilonPoint,
        ExposureEpsilon,
        epsilon_from_exposure,
        epsilon_from_median_exposure,
    )
    from lmexposure.statistics.bounds.from_scores import epsilon_from_scores
    from lmexposure.statistics.bounds.gaussian import delta_of_epsilon, epsilon_of_mu
    from lmexposure.statistics.bounds.gaussian_audit import GaussianEpsilon, gaussian_dp_epsilon
    from lmexposure.statistics.bounds.joint import JointBounds, joint_bounds
    from lmexposure.statistics.bounds.joint_beta import JointBetaEpsilon, joint_beta_epsilon
    from lmexposure.statistics.bounds.lidp import lidp_epsilon
    from lmexposure.statistics.bounds.one_run import one_run_audit
    from lmexposure.statistics.bounds.one_run_fdp import one_run_fdp_epsilon
    from lmexposure.statistics.bounds.one_run_gaussian import one_run_gaussian_audit
    from lmexposure.statistics.bounds.one_run_guesses import one_run_epsilon, one_run_p_value
    from lmexposure.statistics.bounds.thresholds import (
        Bonferroni,
        FixedThreshold,
        OrderStatistics,
        SplitSample,
    )
    from lmexposure.statistics.certificate import CertifiedExposure, certified_exposure
    from lmexposure.statistics.counted import CountedExposure, counted_exposure
    from lmexposure.statistics.difference import holm, rank_sum_test, sign_test
    from lmexposure.statistics.exposures import Exposures, exposure
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
        estimated_quantile,
        quantile_interval,
    )
    from lmexposure.statistics.membership.auc import AreaUnderCurve, area_under_curve
    from lmexposure.statistics.membership.hull import RocHull, concave_hull
    from lmexposure.statistics.membership.lira import LiraScores, lira, lira_matrix, lira_offline
    from lmexposure.statistics.membership.metrics import membership_metrics
    from lmexposure.statistics.membership.population import (
        CanariesAndPopulation,
        canaries_and_population,
    )
    from lmexposure.statistics.membership.rmia import rmia
    from lmexposure.statistics.membership.roc import RocCurve, roc_curve
    from lmexposure.statistics.membership.scores import (
        min_k,
        min_k_plus_plus,
        negative_log_perplexity,
        reference_difference,
        zlib_ratio,
    )
    from lmexposure.statistics.membership.tpr_at_fpr import TprAtFpr, tpr_at_fpr
    from lmexposure.statistics.privacy import privacy_of
    from lmexposure.statistics.sampled import SampledExposure, sampled_exposure
    from lmexposure.statistics.score_class import ScoreClass, score_classes
    from lmexposure.statistics.skew_normal import SkewNormalExposure, skew_normal_exposure
    from lmexposure.statistics.skew_normal_curve import (
        SkewNormal,
        fit_skew_normal,
        skew_normal_log_cdf,
    )
    from lmexposure.statistics.summary import ExposureSummary, exposure_summary
    from lmexposure.statistics.weighted_count import WeightedDraws
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "GUESSING",
    "AreaUnderCurve",
    "BinomialInterval",
    "Bonferroni",
    "CanariesAndPopulation",
    "CertifiedExposure",
    "Claim",
    "ClaimCheck",
    "CountedExposure",
    "EpsilonBound",
    "EpsilonPoint",
    "ExposureEpsilon",
    "ExposureEstimate",
    "ExposureSummary",
    "Exposures",
    "FixedThreshold",
    "GaussianEpsilon",
    "GoodnessOfFit",
    "GuessingBaseline",
    "GuessingTest",
    "ImportanceExposure",
    "JointBetaEpsilon",
    "JointBounds",
    "LiraScores",
    "OrderStatistics",
    "QuantileInterval",
    "RocCurve",
    "RocHull",
    "SampledExposure",
    "ScoreClass",
    "SkewNormal",
    "SkewNormalExposure",
    "SplitSample",
    "TprAtFpr",
    "WeightedDraws",
    "area_under_curve",
    "binomial_interval",
    "canaries_and_population",
    "certified_exposure",
    "clopper_pearson_epsilon",
    "concave_hull",
    "counted_exposure",
    "delta_of_epsilon",
    "epsilon_from_exposure",
    "epsilon_from_median_exposure",
    "epsilon_from_scores",
    "epsilon_of_mu",
    "estimated_quantile",
    "exposure",
    "exposure_summary",
    "fit_skew_normal",
    "gaussian_dp_epsilon",
    "guessing_test",
    "holm",
    "importance_exposure",
    "joint_beta_epsilon",
    "joint_bounds",
    "lidp_epsilon",
    "lira",
    "lira_matrix",
    "lira_offline",
    "membership_metrics",
    "min_k",
    "min_k_plus_plus",
    "negative_log_perplexity",
    "one_run_audit",
    "one_run_epsilon",
    "one_run_fdp_epsilon",
    "one_run_gaussian_audit",
    "one_run_p_value",
    "privacy_of",
    "quantile_interval",
    "rank_sum_test",
    "reference_difference",
    "rmia",
    "roc_curve",
    "sampled_exposure",
    "score_classes",
    "sign_test",
    "skew_normal_exposure",
    "skew_normal_log_cdf",
    "tpr_at_fpr",
    "zlib_ratio",
]
