"""Lower bounds on epsilon, each with the conditions under which it holds."""

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
from lmexposure.statistics.bounds.ratio_bounds import RatioBounds, ratio_bounds
from lmexposure.statistics.bounds.thresholds import (
    Bonferroni,
    FixedThreshold,
    OrderStatistics,
    SplitSample,
)

__all__ = [
    "Bonferroni",
    "Claim",
    "ClaimCheck",
    "EpsilonBound",
    "EpsilonPoint",
    "ExposureEpsilon",
    "FixedThreshold",
    "GaussianEpsilon",
    "JointBetaEpsilon",
    "JointBounds",
    "OrderStatistics",
    "RatioBounds",
    "SplitSample",
    "clopper_pearson_epsilon",
    "delta_of_epsilon",
    "epsilon_from_exposure",
    "epsilon_from_median_exposure",
    "epsilon_from_scores",
    "epsilon_of_mu",
    "gaussian_dp_epsilon",
    "joint_beta_epsilon",
    "joint_bounds",
    "lidp_epsilon",
    "one_run_audit",
    "one_run_epsilon",
    "one_run_fdp_epsilon",
    "one_run_gaussian_audit",
    "one_run_p_value",
    "ratio_bounds",
]
