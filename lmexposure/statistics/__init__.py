"""What the numbers mean: exposure and its intervals, epsilon, tests against guessing.

Numpy and scipy only: nothing here knows a model. All log-perplexities and exposures are in bits.

A new statistic goes next to its like, with its source, and has a name here; what a record holds of
it is in `results`. Exposures: `exposures`, `exact`, `importance`, `skew_normal`; bounds on epsilon:
`bounds`; whether chance explains a difference: `chance`; telling members from others: `membership`,
`attack_scores`, `likelihood_ratios`; over many models: `many_models`, `counterfactual`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure._quantiles import ExposureEstimate
    from lmexposure.statistics.attack_scores import (
        label_logits,
        min_k,
        min_k_plus_plus,
        rmia,
        rmia_matrix,
        zlib_ratio,
    )
    from lmexposure.statistics.bounds.bound import Claim
    from lmexposure.statistics.bounds.clopper_pearson import (
        Bonferroni,
        FixedThreshold,
        JointBetaEpsilon,
        OrderStatistics,
        SplitSample,
        clopper_pearson_epsilon,
        joint_beta_epsilon,
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
    from lmexposure.statistics.bounds.many_runs import (
        LargestBound,
        lidp_epsilon,
        per_model_epsilon,
        per_text_epsilon,
        together_epsilon,
    )
    from lmexposure.statistics.bounds.one_run import one_run_audit
    from lmexposure.statistics.bounds.one_run_guesses import one_run_epsilon
    from lmexposure.statistics.bounds.single_steps import (
        canife_point,
        guesses_needed,
        step_guesses_epsilon,
        step_noise_epsilon,
        step_rates_epsilon,
    )
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
        MaxTTest,
        counterfactual_memorisation,
        influence,
        influence_test,
        memorisation_by_halves,
        memorisation_test,
    )
    from lmexposure.statistics.discovery import (
        Between,
        Unseen,
        known_and_sampled,
        tries_for,
        unseen_passages,
    )
    from lmexposure.statistics.document_groups import (
        Blind,
        LongerRuns,
        blind_baseline,
        centred,
        conformal_p,
        false_shares,
        length_strata,
        longer_runs,
        shuffled_groups_p,
    )
    from lmexposure.statistics.exact import (
        CertifiedExposure,
        ExactExposure,
        certified_exposure,
        exact_exposure,
    )
    from lmexposure.statistics.exposures import (
        CalibratedExposure,
        Exposures,
        SampledExposure,
        calibrated_exposure,
        exposure,
        sampled_exposure,
    )
    from lmexposure.statistics.identifiers import (
        BesideHeldOut,
        RanksAmongDraws,
        beside_held_out,
        draws_needed,
        identifiers_needed,
        rank_among_draws,
        ranks_among_draws,
        witness_certificate,
        witness_looks,
        witness_p_value,
        witness_settled,
    )
    from lmexposure.statistics.importance import (
        ImportanceExposure,
        UniformDraws,
        WeightedDraws,
        importance_exposure,
    )
    from lmexposure.statistics.intervals import (
        BinomialInterval,
        Difference,
        binomial_interval,
        estimated_quantile,
        mean_difference,
        quantile_interval,
        rate_difference,
    )
    from lmexposure.statistics.likelihood_ratios import LiraScores, lira, lira_matrix, lira_offline
    from lmexposure.statistics.many_models import (
        CanaryRates,
        CellRates,
        RateParts,
        canary_rates,
        cell_rates,
        lower_rate_p,
        models_needed,
        rate_parts,
    )
    from lmexposure.statistics.membership import (
        RocCurve,
        RocHull,
        area_under_curve,
        concave_hull,
        membership_metrics,
        roc_curve,
        tpr_at_fpr,
    )
    from lmexposure.statistics.privacy import (
        ScoreClass,
        document_epsilons,
        privacy_of,
        score_classes,
    )
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
    from lmexposure.statistics.skew_normal import (
        SkewNormal,
        SkewNormalExposure,
        fit_skew_normal,
        skew_normal_exposure,
        skew_normal_log_cdf,
    )
    from lmexposure.statistics.summary import exposure_summary
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)
