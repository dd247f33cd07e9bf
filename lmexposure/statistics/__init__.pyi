"""Made by scripts/stubs of the face, and of what is declared of settings."""

from lmexposure._quantiles import ExposureEstimate as ExposureEstimate
from lmexposure.statistics.attack_scores import label_logits as label_logits
from lmexposure.statistics.attack_scores import min_k as min_k
from lmexposure.statistics.attack_scores import min_k_plus_plus as min_k_plus_plus
from lmexposure.statistics.attack_scores import rmia as rmia
from lmexposure.statistics.attack_scores import rmia_matrix as rmia_matrix
from lmexposure.statistics.attack_scores import zlib_ratio as zlib_ratio
from lmexposure.statistics.bounds.bound import Claim as Claim
from lmexposure.statistics.bounds.clopper_pearson import Bonferroni as Bonferroni
from lmexposure.statistics.bounds.clopper_pearson import FixedThreshold as FixedThreshold
from lmexposure.statistics.bounds.clopper_pearson import JointBetaEpsilon as JointBetaEpsilon
from lmexposure.statistics.bounds.clopper_pearson import OrderStatistics as OrderStatistics
from lmexposure.statistics.bounds.clopper_pearson import SplitSample as SplitSample
from lmexposure.statistics.bounds.clopper_pearson import (
    clopper_pearson_epsilon as clopper_pearson_epsilon,
)
from lmexposure.statistics.bounds.clopper_pearson import joint_beta_epsilon as joint_beta_epsilon
from lmexposure.statistics.bounds.from_exposure import ExposureEpsilon as ExposureEpsilon
from lmexposure.statistics.bounds.from_exposure import (
    epsilon_from_exposure as epsilon_from_exposure,
)
from lmexposure.statistics.bounds.from_exposure import (
    epsilon_from_median_exposure as epsilon_from_median_exposure,
)
from lmexposure.statistics.bounds.from_scores import epsilon_from_scores as epsilon_from_scores
from lmexposure.statistics.bounds.gaussian import GaussianEpsilon as GaussianEpsilon
from lmexposure.statistics.bounds.gaussian import delta_of_epsilon as delta_of_epsilon
from lmexposure.statistics.bounds.gaussian import epsilon_of_mu as epsilon_of_mu
from lmexposure.statistics.bounds.gaussian import gaussian_dp_epsilon as gaussian_dp_epsilon
from lmexposure.statistics.bounds.gaussian import one_run_fdp_epsilon as one_run_fdp_epsilon
from lmexposure.statistics.bounds.gaussian import one_run_gaussian_audit as one_run_gaussian_audit
from lmexposure.statistics.bounds.gaussian import sampled_epsilon as sampled_epsilon
from lmexposure.statistics.bounds.joint import joint_bounds as joint_bounds
from lmexposure.statistics.bounds.many_runs import LargestBound as LargestBound
from lmexposure.statistics.bounds.many_runs import lidp_epsilon as lidp_epsilon
from lmexposure.statistics.bounds.many_runs import per_model_epsilon as per_model_epsilon
from lmexposure.statistics.bounds.many_runs import per_text_epsilon as per_text_epsilon
from lmexposure.statistics.bounds.many_runs import together_epsilon as together_epsilon
from lmexposure.statistics.bounds.one_run import one_run_audit as one_run_audit
from lmexposure.statistics.bounds.one_run_guesses import one_run_epsilon as one_run_epsilon
from lmexposure.statistics.bounds.single_steps import canife_point as canife_point
from lmexposure.statistics.bounds.single_steps import guesses_needed as guesses_needed
from lmexposure.statistics.bounds.single_steps import step_guesses_epsilon as step_guesses_epsilon
from lmexposure.statistics.bounds.single_steps import step_noise_epsilon as step_noise_epsilon
from lmexposure.statistics.bounds.single_steps import step_rates_epsilon as step_rates_epsilon
from lmexposure.statistics.chance import guessing_test as guessing_test
from lmexposure.statistics.chance import holm as holm
from lmexposure.statistics.chance import median_test as median_test
from lmexposure.statistics.chance import rank_sum_test as rank_sum_test
from lmexposure.statistics.chance import sign_test as sign_test
from lmexposure.statistics.counterfactual import (
    CounterfactualMemorisation as CounterfactualMemorisation,
)
from lmexposure.statistics.counterfactual import Influence as Influence
from lmexposure.statistics.counterfactual import MaxTTest as MaxTTest
from lmexposure.statistics.counterfactual import (
    counterfactual_memorisation as counterfactual_memorisation,
)
from lmexposure.statistics.counterfactual import influence as influence
from lmexposure.statistics.counterfactual import influence_test as influence_test
from lmexposure.statistics.counterfactual import memorisation_by_halves as memorisation_by_halves
from lmexposure.statistics.counterfactual import memorisation_test as memorisation_test
from lmexposure.statistics.discovery import Between as Between
from lmexposure.statistics.discovery import Unseen as Unseen
from lmexposure.statistics.discovery import known_and_sampled as known_and_sampled
from lmexposure.statistics.discovery import tries_for as tries_for
from lmexposure.statistics.discovery import unseen_passages as unseen_passages
from lmexposure.statistics.document_groups import Blind as Blind
from lmexposure.statistics.document_groups import LongerRuns as LongerRuns
from lmexposure.statistics.document_groups import blind_baseline as blind_baseline
from lmexposure.statistics.document_groups import centred as centred
from lmexposure.statistics.document_groups import conformal_p as conformal_p
from lmexposure.statistics.document_groups import false_shares as false_shares
from lmexposure.statistics.document_groups import length_strata as length_strata
from lmexposure.statistics.document_groups import longer_runs as longer_runs
from lmexposure.statistics.document_groups import shuffled_groups_p as shuffled_groups_p
from lmexposure.statistics.exact import CertifiedExposure as CertifiedExposure
from lmexposure.statistics.exact import ExactExposure as ExactExposure
from lmexposure.statistics.exact import certified_exposure as certified_exposure
from lmexposure.statistics.exact import exact_exposure as exact_exposure
from lmexposure.statistics.exposures import CalibratedExposure as CalibratedExposure
from lmexposure.statistics.exposures import Exposures as Exposures
from lmexposure.statistics.exposures import SampledExposure as SampledExposure
from lmexposure.statistics.exposures import calibrated_exposure as calibrated_exposure
from lmexposure.statistics.exposures import exposure as exposure
from lmexposure.statistics.exposures import sampled_exposure as sampled_exposure
from lmexposure.statistics.identifiers import BesideHeldOut as BesideHeldOut
from lmexposure.statistics.identifiers import RanksAmongDraws as RanksAmongDraws
from lmexposure.statistics.identifiers import beside_held_out as beside_held_out
from lmexposure.statistics.identifiers import draws_needed as draws_needed
from lmexposure.statistics.identifiers import identifiers_needed as identifiers_needed
from lmexposure.statistics.identifiers import rank_among_draws as rank_among_draws
from lmexposure.statistics.identifiers import ranks_among_draws as ranks_among_draws
from lmexposure.statistics.identifiers import witness_certificate as witness_certificate
from lmexposure.statistics.identifiers import witness_looks as witness_looks
from lmexposure.statistics.identifiers import witness_p_value as witness_p_value
from lmexposure.statistics.identifiers import witness_settled as witness_settled
from lmexposure.statistics.importance import ImportanceExposure as ImportanceExposure
from lmexposure.statistics.importance import UniformDraws as UniformDraws
from lmexposure.statistics.importance import WeightedDraws as WeightedDraws
from lmexposure.statistics.importance import importance_exposure as importance_exposure
from lmexposure.statistics.intervals import BinomialInterval as BinomialInterval
from lmexposure.statistics.intervals import Difference as Difference
from lmexposure.statistics.intervals import binomial_interval as binomial_interval
from lmexposure.statistics.intervals import estimated_quantile as estimated_quantile
from lmexposure.statistics.intervals import mean_difference as mean_difference
from lmexposure.statistics.intervals import quantile_interval as quantile_interval
from lmexposure.statistics.intervals import rate_difference as rate_difference
from lmexposure.statistics.likelihood_ratios import LiraScores as LiraScores
from lmexposure.statistics.likelihood_ratios import lira as lira
from lmexposure.statistics.likelihood_ratios import lira_matrix as lira_matrix
from lmexposure.statistics.likelihood_ratios import lira_offline as lira_offline
from lmexposure.statistics.many_models import CanaryRates as CanaryRates
from lmexposure.statistics.many_models import CellRates as CellRates
from lmexposure.statistics.many_models import RateParts as RateParts
from lmexposure.statistics.many_models import canary_rates as canary_rates
from lmexposure.statistics.many_models import cell_rates as cell_rates
from lmexposure.statistics.many_models import lower_rate_p as lower_rate_p
from lmexposure.statistics.many_models import models_needed as models_needed
from lmexposure.statistics.many_models import rate_parts as rate_parts
from lmexposure.statistics.membership import RocCurve as RocCurve
from lmexposure.statistics.membership import RocHull as RocHull
from lmexposure.statistics.membership import area_under_curve as area_under_curve
from lmexposure.statistics.membership import concave_hull as concave_hull
from lmexposure.statistics.membership import membership_metrics as membership_metrics
from lmexposure.statistics.membership import roc_curve as roc_curve
from lmexposure.statistics.membership import tpr_at_fpr as tpr_at_fpr
from lmexposure.statistics.privacy import ScoreClass as ScoreClass
from lmexposure.statistics.privacy import document_epsilons as document_epsilons
from lmexposure.statistics.privacy import privacy_of as privacy_of
from lmexposure.statistics.privacy import score_classes as score_classes
from lmexposure.statistics.results import GUESSING as GUESSING
from lmexposure.statistics.results import AreaUnderCurve as AreaUnderCurve
from lmexposure.statistics.results import CellRate as CellRate
from lmexposure.statistics.results import ClaimCheck as ClaimCheck
from lmexposure.statistics.results import ControlsComparison as ControlsComparison
from lmexposure.statistics.results import EpsilonBound as EpsilonBound
from lmexposure.statistics.results import EpsilonPoint as EpsilonPoint
from lmexposure.statistics.results import Estimate as Estimate
from lmexposure.statistics.results import ExposureSummary as ExposureSummary
from lmexposure.statistics.results import GoodnessOfFit as GoodnessOfFit
from lmexposure.statistics.results import GuessingBaseline as GuessingBaseline
from lmexposure.statistics.results import GuessingTest as GuessingTest
from lmexposure.statistics.results import JointBounds as JointBounds
from lmexposure.statistics.results import MeanInterval as MeanInterval
from lmexposure.statistics.results import Membership as Membership
from lmexposure.statistics.results import Method as Method
from lmexposure.statistics.results import PrimaryBound as PrimaryBound
from lmexposure.statistics.results import Privacy as Privacy
from lmexposure.statistics.results import PrivacyClass as PrivacyClass
from lmexposure.statistics.results import QuantileInterval as QuantileInterval
from lmexposure.statistics.results import RefusedBound as RefusedBound
from lmexposure.statistics.results import TprAtFpr as TprAtFpr
from lmexposure.statistics.results import Validity as Validity
from lmexposure.statistics.skew_normal import SkewNormal as SkewNormal
from lmexposure.statistics.skew_normal import SkewNormalExposure as SkewNormalExposure
from lmexposure.statistics.skew_normal import fit_skew_normal as fit_skew_normal
from lmexposure.statistics.skew_normal import skew_normal_exposure as skew_normal_exposure
from lmexposure.statistics.skew_normal import skew_normal_log_cdf as skew_normal_log_cdf
from lmexposure.statistics.summary import exposure_summary as exposure_summary

__all__: list[str]
