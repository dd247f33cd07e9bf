"""What the numbers mean: exposure and its intervals, epsilon, tests against guessing.

Numpy and scipy only: nothing here knows a model. All log-perplexities and exposures are in bits.

A new statistic is a file of its own, with its source, and a name here; what a record holds of it is
in `results`. Exposures: `exposures`, `exact`, `importance`, `skew_normal`, `calibrated`; bounds on
epsilon: one file each in `bounds`; whether chance explains a difference: `chance`; telling members
from others: `membership`, `roc`, `attack_scores`; over many models: `many_models`,
`relative_likelihood`, `label_regression`, `counterfactual`, `max_t`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure._quantiles import ExposureEstimate
    from lmexposure.statistics.attack_scores import (
        min_k,
        min_k_plus_plus,
        negative_log_perplexity,
        reference_difference,
        zlib_ratio,
    )
    from lmexposure.statistics.bounds.bound import Claim
    from lmexposure.statistics.bounds.canife import canife_point
    from lmexposure.statistics.bounds.clopper_pearson import (
        Bonferroni,
        FixedThreshold,
        OrderStatistics,
        SplitSample,
        clopper_pearson_epsilon,
    )
    from lmexposure.statistics.bounds.from_exposure import (
        ExposureEpsilon,
        epsilon_from_exposure,
        epsilon_from_median_exposure,
    )
    from lmexposure.statistics.bounds.from_scores import epsilon_from_scores
    from lmexposure.statistics.bounds.gaussian import (
        GaussianEpsilon,
        delta_of_epsilon,
        epsilon_of_mu,
        gaussian_dp_epsilon,
        one_run_fdp_epsilon,
        one_run_gaussian_audit,
        sampled_epsilon,
    )
    from lmexposure.statistics.bounds.joint import joint_bounds
    from lmexposure.statistics.bounds.joint_beta import JointBetaEpsilon, joint_beta_epsilon
    from lmexposure.statistics.bounds.lidp import lidp_epsilon
    from lmexposure.statistics.bounds.many_runs import (
        LargestBound,
        per_model_epsilon,
        per_text_epsilon,
        together_epsilon,
    )
    from lmexposure.statistics.bounds.one_run import one_run_audit
    from lmexposure.statistics.bounds.one_run_guesses import one_run_epsilon, one_run_p_value
    from lmexposure.statistics.bounds.single_steps import (
        guesses_needed,
        step_guesses_epsilon,
        step_noise_epsilon,
        step_rates_epsilon,
    )
    from lmexposure.statistics.calibrated import CalibratedExposure, calibrated_exposure
    from lmexposure.statistics.chance import (
        guessing_test,
        holm,
        median_test,
        rank_sum_test,
        sign_test,
    )
    from lmexposure.statistics.counterfactual import (
        CounterfactualMemorisation,
        Influence,
        counterfactual_memorisation,
        influence,
        memorisation_by_halves,
    )
    from lmexposure.statistics.differences import Difference, mean_difference, rate_difference
    from lmexposure.statistics.discovery import (
        Between,
        Unseen,
        chance_within,
        known_and_sampled,
        tries_for,
        unseen_passages,
    )
    from lmexposure.statistics.document_groups import (
        Blind,
        blind_baseline,
        shuffled_groups_p,
    )
    from lmexposure.statistics.document_privacy import document_epsilons
    from lmexposure.statistics.document_runs import (
        LongerRuns,
        centred,
        conformal_p,
        false_shares,
        length_strata,
        longer_runs,
    )
    from lmexposure.statistics.exact import (
        CertifiedExposure,
        ExactExposure,
        certified_exposure,
        exact_exposure,
    )
    from lmexposure.statistics.exposures import (
        Exposures,
        SampledExposure,
        exposure,
        sampled_exposure,
    )
    from lmexposure.statistics.identifiers import (
        BesideHeldOut,
        RanksAmongDraws,
        beside_held_out,
        identifiers_needed,
        rank_among_draws,
        ranks_among_draws,
    )
    from lmexposure.statistics.importance import (
        ImportanceExposure,
        WeightedDraws,
        importance_exposure,
    )
    from lmexposure.statistics.intervals import (
        BinomialInterval,
        binomial_interval,
        estimated_quantile,
        quantile_interval,
    )
    from lmexposure.statistics.label_regression import label_logits
    from lmexposure.statistics.likelihood_ratios import LiraScores, lira, lira_matrix, lira_offline
    from lmexposure.statistics.many_models import CanariesAndPopulation, canaries_and_population
    from lmexposure.statistics.max_t import MaxTTest, influence_test, memorisation_test
    from lmexposure.statistics.membership import area_under_curve, membership_metrics, tpr_at_fpr
    from lmexposure.statistics.model_units import (
        CellRates,
        RateParts,
        cell_rates,
        lower_rate_p,
        models_needed,
        rate_parts,
    )
    from lmexposure.statistics.privacy import ScoreClass, privacy_of, score_classes
    from lmexposure.statistics.relative_likelihood import rmia, rmia_matrix
    from lmexposure.statistics.results import (
        GUESSING,
        AreaUnderCurve,
        CellRate,
        ClaimCheck,
        ControlsComparison,
        EpsilonBound,
        EpsilonPoint,
        Estimate,
        ExposureSummary,
        GoodnessOfFit,
        GuessingBaseline,
        GuessingTest,
        JointBounds,
        MeanInterval,
        Membership,
        Method,
        PrimaryBound,
        Privacy,
        PrivacyClass,
        QuantileInterval,
        RefusedBound,
        TprAtFpr,
        Validity,
    )
    from lmexposure.statistics.roc import RocCurve, RocHull, concave_hull, roc_curve
    from lmexposure.statistics.skew_normal import SkewNormalExposure, skew_normal_exposure
    from lmexposure.statistics.skew_normal_curve import (
        SkewNormal,
        fit_skew_normal,
        skew_normal_log_cdf,
    )
    from lmexposure.statistics.summary import exposure_summary
    from lmexposure.statistics.witness import (
        draws_needed,
        witness_certificate,
        witness_p_value,
    )
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)
