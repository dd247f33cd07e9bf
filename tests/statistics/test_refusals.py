"""What the room refuses: calls, the class of their error, the value it names, the way out."""

import inspect
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from limit_spaces import small_draws

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    Bonferroni,
    Claim,
    FixedThreshold,
    GuessingBaseline,
    ScoreClass,
    SplitSample,
    UniformDraws,
    area_under_curve,
    beside_held_out,
    binomial_interval,
    blind_baseline,
    calibrated_exposure,
    canary_rates,
    canife_point,
    cell_rates,
    certified_exposure,
    clopper_pearson_epsilon,
    concave_hull,
    counterfactual_memorisation,
    delta_of_epsilon,
    document_epsilons,
    epsilon_from_exposure,
    epsilon_from_median_exposure,
    epsilon_from_scores,
    epsilon_of_mu,
    estimated_quantile,
    exact_exposure,
    exposure_summary,
    gaussian_dp_epsilon,
    guesses_needed,
    guessing_test,
    importance_exposure,
    influence,
    influence_test,
    joint_beta_epsilon,
    joint_bounds,
    known_and_sampled,
    label_logits,
    length_strata,
    lidp_epsilon,
    lira,
    lira_matrix,
    longer_runs,
    mean_difference,
    median_test,
    membership_metrics,
    memorisation_by_halves,
    memorisation_test,
    min_k,
    min_k_plus_plus,
    models_needed,
    one_run_audit,
    one_run_epsilon,
    one_run_fdp_epsilon,
    one_run_gaussian_audit,
    per_model_epsilon,
    per_text_epsilon,
    privacy_of,
    quantile_interval,
    rate_difference,
    rmia,
    rmia_matrix,
    roc_curve,
    sampled_epsilon,
    sampled_exposure,
    score_classes,
    step_guesses_epsilon,
    step_noise_epsilon,
    step_rates_epsilon,
    together_epsilon,
    tpr_at_fpr,
    tries_for,
    unseen_passages,
    witness_certificate,
    witness_p_value,
    zlib_ratio,
)
from lmexposure.statistics.arrays import coin_matrix, score_matrix
from lmexposure.statistics.bounds.bound import Terms
from lmexposure.statistics.bounds.joint import claim_power
from lmexposure.statistics.intervals import mean_interval
from lmexposure.statistics.summary import compare_with_controls

of: Any = partial  # a call that is not made yet
A = [1.0, 2.0]
FAIR = [True, False]
X = np.random.default_rng(1).normal(size=(40, 3))
COINS = np.random.default_rng(2).random(X.shape) < 0.5
KINDS = ["a"] * 3
HOLED = np.where(np.arange(120).reshape(X.shape) == 0, np.nan, X)
DRAWS = small_draws([8.0] * 4, [3.0] * 4, [0, 1, 2, 3], 8)
ALIKE = UniformDraws(bits=np.ones(3), canary_bits=np.ones(2), population=8)
LOOK = np.ones((3, 2))
TERMS = Terms(significance=0.025, delta=1e-5, repetitions=1)
GROUP = ScoreClass(
    formats=("pin",), repetitions=1, scores=X[:, 0], included=COINS[:, 0], references=X[:, 1]
)
COUNTS = {"canaries": 10, "guesses": 8, "correct": 5}
TWO_BY_TWO = {"false_negatives": 1, "false_positives": 1, "true_negatives": 1, "true_positives": 1}

OUT_OF_RANGE: dict[str, tuple[tuple[float, ...], str]] = {
    "significance": ((0, 1, 2), "must lie strictly between 0 and 1"),
    "level": ((0, 1, 2), "must lie strictly between 0 and 1"),
    "fpr": ((0, 1, math.nan), "must lie strictly between 0 and 1"),
    "quantile": ((0,), "must lie strictly between 0 and 1"),
    "delta": ((-1, 1), "must lie "),
    "repetitions": ((0,), "must be a whole number at least 1"),
    "permutations": ((0,), "must be a whole number at least 1"),
    "seed": ((-1,), "must be a whole number at least 0"),
    "space_size": ((1,), "must be a whole number at least 2"),
}
WITH_SETTINGS: list[Any] = [
    of(area_under_curve, [1], [1]),
    of(binomial_interval, 0, 1),
    of(canary_rates, X, COINS),
    of(canife_point, [1.0], [1.0], delta=0.1),
    of(clopper_pearson_epsilon, 1, 10, 0, 10, significance=0.05),
    of(compare_with_controls, [1.0], [1.0]),
    of(counterfactual_memorisation, X, COINS),
    of(epsilon_from_exposure, [1.0], [1.0]),
    of(epsilon_from_scores, [1.0], [1.0]),
    of(epsilon_of_mu, mu=1, delta=0.1),
    of(exposure_summary, [1.0]),
    of(gaussian_dp_epsilon, [1.0], [1.0], delta=0.1),
    of(guessing_test, 1.0, [2.0], seed=0),
    of(importance_exposure, 1.0, DRAWS, space_size=8),
    of(influence_test, X, COINS, seed=0),
    of(joint_beta_epsilon, **TWO_BY_TWO),
    of(lidp_epsilon, LOOK, LOOK, threshold=0),
    of(mean_difference, A, A),
    of(mean_interval, A),
    of(membership_metrics, [1.0], [1.0]),
    of(memorisation_by_halves, X, COINS, seed=0),
    of(memorisation_test, X, COINS, seed=0),
    of(one_run_audit, A, FAIR, seed=1),
    of(one_run_epsilon, **COUNTS),
    of(one_run_fdp_epsilon, **COUNTS, delta=1e-5),
    of(one_run_gaussian_audit, A, FAIR, delta=1e-5, seed=1),
    of(per_model_epsilon, X, COINS, seed=0),
    of(privacy_of, [GROUP]),
    of(quantile_interval, [1.0]),
    of(sampled_exposure, 1.0, [1.0]),
    of(step_guesses_epsilon, A, FAIR, delta=0.1),
    of(step_noise_epsilon, A, FAIR, delta=0.1),
    of(step_rates_epsilon, A, FAIR, delta=0.1),
    of(tpr_at_fpr, [1], [0], fpr=0.1),
]


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        (call, name, value)
        for call in WITH_SETTINGS
        for name, (values, _) in OUT_OF_RANGE.items()
        if name in inspect.signature(call.func).parameters
        for value in values
    ],
)
def test_a_setting_out_of_range_is_refused(call: Any, name: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"{name}={value} {OUT_OF_RANGE[name][1]}"):
        call(**{name: value})


TWO_SAMPLES: list[Any] = [
    *(area_under_curve, epsilon_from_scores, membership_metrics, roc_curve),
    *(of(canife_point, delta=0.1), of(gaussian_dp_epsilon, delta=0.1), of(tpr_at_fpr, fpr=0.1)),
]


@pytest.mark.parametrize("call", TWO_SAMPLES)
def test_scores_that_are_none_are_refused(call: Any) -> None:
    for scores, message in (
        (([], [1.0]), r"in_scores has shape \(0,\)"),
        (([1.0], []), r"out_scores has shape \(0,\)"),
        (([1.0, math.nan], [1.0]), r"in_scores\[1\]=nan is not finite"),
        (([1.0], [math.inf]), r"out_scores\[0\]=inf is not finite"),
    ):
        with pytest.raises(InputError, match=message):
            call(*scores)


@pytest.mark.parametrize(
    "call", [of(one_run_audit, seed=1), of(one_run_gaussian_audit, delta=0.1, seed=1)]
)
def test_coins_that_do_not_fit_their_scores_are_refused(call: Any) -> None:
    for scores, coins, message in (
        ([], [], r"scores has shape \(0,\)"),
        ([1.0, math.nan], FAIR, r"scores\[1\]=nan is not finite"),
        (A, [True], "included has 1 entries for 2 scores"),
        ([1.0], [[True]], r"included has shape \(1, 1\)"),
        ([1.0], [], r"included has shape \(0,\)"),
        (A, [0, 2], "must hold True and False"),
        (A, [1.0, math.nan], "must hold True and False"),
        (A, ["in", "out"], "must hold True and False"),
        (range(30), [True] * 30, "30 of 30 candidates went in, which an inclusion probability"),
        (range(1000), [True] * 10 + [False] * 990, "10 of 1000 candidates went in"),
    ):
        with pytest.raises(InputError, match=message):
            call(scores, coins)


@pytest.mark.parametrize("call", [step_guesses_epsilon, step_noise_epsilon, step_rates_epsilon])
def test_coins_that_do_not_fit_their_steps_are_refused(call: Any) -> None:
    for scores, coins, message in (
        ([1.0, 2.0, 3.0], [1, 0], "for 3 scores"),
        ([1.0, 2.0, 3.0], [1, 0, 2], "included must hold True and False"),
        (np.zeros(100), np.ones(100), "went in"),
        ([1.0, math.nan], [1, 0], "is not finite"),
    ):
        with pytest.raises(InputError, match=message):
            call(scores, coins, delta=0.1)


@pytest.mark.parametrize("call", [one_run_epsilon, of(one_run_fdp_epsilon, delta=0.1)])
def test_counts_that_do_not_fit_are_refused(call: Any) -> None:
    for changed, message in (
        ({"canaries": 0}, "canaries=0"),
        ({"guesses": 11}, "guesses=11 must be a whole number from 1 to 10"),
        ({"guesses": 0}, "guesses=0"),
        ({"correct": 9}, "correct=9 must be a whole number from 0 to 8"),
        ({"correct": -1}, "correct=-1"),
        ({"correct": 2.5}, "correct=2.5"),
    ):
        with pytest.raises(InputError, match=message):
            call(**(COUNTS | changed))


BEYOND = replace(DRAWS, limits=np.array([9.0, math.inf]), log2_totals=np.array([4.0, 3.0]))
heavy = of(importance_exposure, 1.0, small_draws([8.0, 64.0], [3.0, 3.0], [0, 1], 8))
ranked = of(exact_exposure, space_size=8, place_low=[1], place_high=[1])
scored = of(score_classes, pooled=True)
spent = of(document_epsilons, noise_multiplier=1.5, sample_rate=0.04, steps_each=[1], delta=1e-5)
BAD_SETTINGS: list[tuple[Any, str]] = [
    (of(Bonferroni, grid=(0.5, 2.0)), r"grid=2\.0 must lie strictly between 0 and 1"),
    (of(Bonferroni, by="rank"), "by='rank' must be one of share, value"),
    (of(Claim, epsilon=2), "epsilon=2 says nothing without its delta"),
    (of(Claim, epsilon=math.inf, delta=0), "epsilon=inf must be a finite number, at least 0"),
    (of(Claim, epsilon=1, delta=1), r"delta=1 must lie in \[0, 1\)"),
    (of(FixedThreshold, value=A), r"value=\[1.0, 2.0\] must be one number; see Bonferroni"),
    (of(GuessingBaseline.among, 0), "references=0"),
    (of(SplitSample, fraction=1), "fraction=1 must lie strictly between 0 and 1"),
    (of(area_under_curve, [1], [1], method="delong"), "one of effective, hoeffding, newcombe"),
    (of(binomial_interval, 0, 0), "trials=0 must be a whole number at least 1"),
    (of(calibrated_exposure, A, A, A, A, exhaustive=True), "exhaustive=True needs space_size"),
    (of(cell_rates, lambda kept: X[kept], COINS, groups={"a": [0]}, fprs=(0,)), "fprs=0"),
    (of(certified_exposure, 0, 1.0), "space_bits=0 must be a finite number above 0"),
    (of(claim_power, 1.0, TERMS, candidates=0), "candidates"),
    (of(claim_power, 1.0, TERMS, candidates=10, power=1.0), "power"),
    (of(delta_of_epsilon, sigma=0, epsilon=1), "sigma=0 must be a finite number above 0"),
    (of(delta_of_epsilon, sigma=1, epsilon=math.nan), "epsilon=nan must be a finite number, at"),
    (of(spent, [[0.1]], sample_rate=1.5), "sample_rate=1.5 must be above 0 and at"),
    (of(spent, [[0.1]], noise_multiplier=0), "noise_multiplier=0 must be a finite"),
    (of(spent, [[0.1]], delta=0), "delta=0 must lie strictly between 0 and 1"),
    (of(epsilon_from_exposure, A, A, inclusion_probability=1), "inclusion_probability=1 must lie"),
    (of(epsilon_from_exposure, A, A, inclusion_probability=LOOK), "inclusion_probability=array"),
    (of(epsilon_from_median_exposure, 3.0, repetitions=0), "repetitions=0 must be a whole number"),
    (of(epsilon_from_scores, A, A, threshold=0.5), r"threshold=0.5 must be OrderStatistics\(\)"),
    (of(epsilon_of_mu, mu=-1, delta=0.1), "mu=-1 must be a finite number, at least 0"),
    (of(exact_exposure, [1], [1], space_size=1, place_low=[1], place_high=[1]), "space_size=1"),
    (
        of(exact_exposure, [1], [1], space_size=8, steps=-1, place_low=[1], place_high=[1]),
        "steps=-1 must be a whole number at least 0",
    ),
    (of(gaussian_dp_epsilon, A, A, delta=0), "delta=0 must lie strictly between"),
    (of(guesses_needed, 1.0, shown=1.0), "shown"),
    (of(guessing_test, 1.0, A, seed=0, alternative="less"), "alternative='less' must be one of m"),
    (of(concave_hull(roc_curve([1], [0])).tpr_at, -0.1), r"must lie in \[0, 1\]"),
    (of(concave_hull(roc_curve([1], [0])).tpr_at, math.nan), r"must lie in \[0, 1\]"),
    (of(joint_beta_epsilon, **(TWO_BY_TWO | {"true_positives": -1})), "true_positives=-1 must be"),
    (of(joint_beta_epsilon, **(TWO_BY_TWO | {"false_positives": 1.5})), r"false_positives=1\.5"),
    (of(joint_bounds, A, FAIR, deltas=(0.0, 0.0)), "deltas="),
    (of(joint_bounds, A, FAIR, inclusion_probability=1.5), "inclusion_probability="),
    (of(label_logits, [COINS], COINS[:, :1], kinds=["a"], ridge=0), "ridge=0 must be a finite"),
    (of(lira_matrix, X, COINS, mode="half"), "mode='half' must be one of online, offline"),
    (of(mean_interval, A, resamples=99), "resamples=99 must be a whole number at least 100"),
    (of(memorisation_by_halves, X, COINS, splits=0, seed=0), "splits=0 must be a whole number"),
    (of(memorisation_test, X, COINS, permutations=0, seed=0), "permutations=0 must be a whole n"),
    *((of(min_k, [[1]], share=x), "must lie above 0 and not above 1") for x in (0, 1.1, math.nan)),
    (of(models_needed, 0.01, 0), "texts=0"),
    (of(one_run_fdp_epsilon, **COUNTS, delta=0.0), "delta=0.0 must lie strictly between 0 and 1"),
    (of(one_run_gaussian_audit, A, FAIR, delta=0.0, seed=1), "delta=0.0 must lie strictly"),
    *(
        (of(replace, DRAWS, shares=np.array(x)), r"shares=\[.*\] must lie in \(0, 1\] and")
        for x in ([0.0, 1.0], [0.5, 0.6], [math.nan, 1])
    ),
    (of(replace, DRAWS, limits=np.array([-1.0, math.inf])), "must each be at least 0 bits, or inf"),
    (of(replace, DRAWS, limits=np.array([math.nan, math.inf])), "must each be at least 0 bits"),
    (of(per_model_epsilon, X, COINS, significance=1, seed=0), "significance=1 must lie strictly"),
    (of(privacy_of, [GROUP], inclusion_probability=2.0), "inclusion_probability="),
    (of(rmia, [1], [[1]], [1], [[1]], a=1.5), r"a=1.5 must lie in \[0, 1\]"),
    (of(rmia, [1], [[1]], [1], [[1]], gamma=0), "gamma=0 must be a finite number above 0"),
    (of(rmia_matrix, X, COINS, X, gamma=-1), "gamma=-1 must be a finite number above 0"),
    *((of(sampled_epsilon, mu=1.0, rate=x, delta=1e-5), "rate=") for x in (0.0, 1.1, math.nan)),
    (of(sampled_exposure, 1.0, [1.0], exhaustive=True), "exhaustive=True needs space_size"),
    (of(sampled_exposure, 1.0, A, space_size=2), "space_size=2 must be above the 2 references"),
]


@pytest.mark.parametrize(("call", "message"), BAD_SETTINGS)
def test_a_bad_setting_is_refused(call: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        call()


BAD_INPUT: list[tuple[Any, str]] = [
    (of(Bonferroni, grid=()), "grid has shape"),
    (of(Claim, epsilon=1, delta=-1), "delta=-1 must lie"),
    (of(FixedThreshold, value=math.inf), r"value\[0\]=inf is not finite"),
    (of(beside_held_out, [1.0], []), "held_out"),
    (of(beside_held_out, [math.nan], [1.0]), "read"),
    (of(binomial_interval, [1, 11], 10), r"counts\[1\]=11 must be a whole number from 0 to 10"),
    (of(binomial_interval, 1.5, 10), r"counts\[0\]=1\.5 must be"),
    (of(blind_baseline, ["a"] * 4, ["b"] * 12), "needs 5 documents in each group"),
    (of(blind_baseline, ["a"] * 10, ["b"] * 12, more=([1.0], A)), "more holds 1 numbers of 10"),
    (of(calibrated_exposure, A, [1.0], A, A), r"canary_base_bits has shape \(1,\); give one for"),
    (of(calibrated_exposure, A, A, [1.0], A), r"reference_base_bits has shape \(2,\)"),
    (of(calibrated_exposure, [1.0], [math.nan], A, A), r"canary_base_bits\[0\]=nan is not finite"),
    (of(canary_rates, X, COINS[:2]), "included has shape"),
    (of(canary_rates, HOLED, COINS), r"scores\[0, 0\]=nan is not finite \(1 of 120"),
    (of(cell_rates, lambda kept: X[kept], COINS[:3], groups={"a": range(3)}), "takes at least 4"),
    (of(cell_rates, lambda kept: X, COINS[:5], groups={"a": range(3)}), r"shape \(40, 3\) for 5"),
    (
        of(cell_rates, lambda kept: X[kept], np.ones_like(COINS), groups={"a": range(3)}),
        "group 'a' has 120 scored cases with their text and 0",
    ),
    (of(certified_exposure, 8.0, [1.0, -1.0]), r"secret_bits\[1\]=-1\.0 must be at least 0"),
    (of(certified_exposure, 8.0, math.inf), r"secret_bits\[0\]=inf is not finite"),
    (of(clopper_pearson_epsilon, 11, 10, 0, 10, significance=0.05), "true_positives=11 must be a"),
    (of(clopper_pearson_epsilon, 1, 10, 0, 0, significance=0.05), "negatives=0 must be a whole"),
    (of(coin_matrix, "c", [[1]], (1, 2)), r"c has shape \(1, 1\); give one coin a score"),
    (of(coin_matrix, "c", [[1, 2]], (1, 2)), "c must hold true"),
    (of(compare_with_controls, [1.0], []), "controls_bits has shape"),
    (of(compare_with_controls, [math.inf], [1.0]), r"exposures_bits\[0\]=inf is not finite"),
    (of(counterfactual_memorisation, X, COINS, lengths=A), r"lengths has shape \(2,\); give one n"),
    (of(counterfactual_memorisation, X, COINS, lengths=0), "lengths has shape"),
    (of(counterfactual_memorisation, X, COINS, binary=True), "must be 0 or 1; give binary=False"),
    (of(spent, [0.1, 0.2]), r"norms has shape \(2,\); give \(R, N\)"),
    (of(spent, np.zeros((1, 0))), r"norms has shape \(1, 0\)"),
    (of(spent, [[0.1]], steps_each=[1, 2]), r"steps_each has shape \(2,\), and norms \(1, 1\)"),
    (of(spent, [[-0.1]]), "below 0 or not finite"),
    (of(spent, [[math.nan]]), "below 0 or not finite"),
    (of(spent, [[0.1]], steps_each=[1.5]), r"steps_each=\[1\.5\] must be whole numbers"),
    (of(spent, [[0.1]], steps_each=[-1]), r"steps_each=\[-1\.0\] must be whole numbers"),
    (of(epsilon_from_exposure, [math.nan], [1.0]), r"canary_bits\[0\]=nan is not finite"),
    (of(epsilon_from_exposure, [1.0], []), "reference_bits has shape"),
    (of(epsilon_from_median_exposure, math.inf), "median_exposure=inf must be a finite number of"),
    (of(epsilon_from_scores, [1.0], A, threshold=SplitSample()), "in_scores has 1 scores, too few"),
    (of(estimated_quantile, []), "estimates"),
    (of(ranked, [3], [2]), r"rank_low\[0\]=3 must be at most rank_high\[0\]=2"),
    (of(ranked, [1], [2]), r"rank_high\[0\]=2 must be at most place_high\[0\]=1"),
    (of(ranked, [1], [9]), r"rank_high\[0\]=9 must be a whole number from 1 to 8"),
    (of(ranked, [1, 1], [1]), "rank_low 2, rank_high 1, place_low 1, place_high 1: give"),
    (of(ranked, [], [], place_low=[], place_high=[]), "rank_low 0, rank_high 0"),
    (of(ranked, [1], [1], empirical=FAIR), r"empirical has shape \(2,\)"),
    (of(exposure_summary, A, capped=[True]), r"capped has shape \(1,\); give one flag"),
    (of(exposure_summary, [math.inf]), r"exposures_bits\[0\]=inf is not finite"),
    (of(exposure_summary, [1.0], controls_bits=[math.nan]), r"controls_bits\[0\]=nan is not"),
    (
        of(exposure_summary, A, estimates=sampled_exposure([1.0] * 40, A).estimates()),
        "estimates holds 40 for 2 exposures; give one for each",
    ),
    (of(guessing_test, math.nan, A, seed=0), r"canary_bits\[0\]=nan is not finite"),
    (of(importance_exposure, math.nan, DRAWS, space_size=8), r"canary_bits\[0\]=nan is not finite"),
    (of(importance_exposure, A, DRAWS, space_size=8, inserted=[True] * 3), r"inserted has shape"),
    (
        of(importance_exposure, 1.0, DRAWS, space_size=8, excluded_bits=[1.0, math.inf]),
        r"excluded_bits\[1\]=inf is not finite",
    ),
    (of(heavy, space_size=8), r"log2_weights\[1\]=6.000 is 3.000 bits above"),
    (of(importance_exposure, 1.0, DRAWS, space_size=16), "do not fit space_size, of 4.000 bits"),
    (of(importance_exposure, 1.0, BEYOND, space_size=8), "do not fit space_size, of 3.000 bits"),
    (of(replace, DRAWS, groups=np.arange(3)), r"groups has shape \(3,\), bits \(4,\)"),
    (of(replace, DRAWS, strata=np.arange(3)), r"strata has shape \(3,\), drawn \(4,\)"),
    (of(small_draws, [], [], [], 8), r"bits has shape \(0,\)"),
    (of(replace, DRAWS, drawn=np.array([0, 1, 2, 2])), "drawn must name each of the 4 groups"),
    (of(replace, DRAWS, groups=np.array([0, 1, 2, 4])), "groups must name each of the 4 groups"),
    (
        of(importance_exposure, 1.0, DRAWS, space_size=8, references=ALIKE),
        "references.canary_bits has 2 entries, canary_bits 1",
    ),
    (of(UniformDraws, bits=[1.0], canary_bits=[1.0], population=0), "population=0 must"),
    (of(UniformDraws, bits=[math.nan], canary_bits=[1.0], population=9), r"bits\[0\]=nan is not"),
    (of(replace, DRAWS, bits=np.full(4, math.nan)), r"bits\[0\] is no usable number \(4 of 4"),
    (of(replace, DRAWS, log2_weights=np.full(4, math.inf)), r"log2_weights\[0\] is no usable"),
    *(
        (of(replace, DRAWS, log2_totals=np.array(x)), "finite and at most the limits")
        for x in ([0.0, math.inf], [0.1, 3.0], [math.nan, 3.0])
    ),
    (of(replace, DRAWS, limits=np.zeros(1)), r"limits has shape \(1,\), shares \(2,\): give one"),
    (of(influence, X, COINS[:5]), "give one row a model, 40 of them, and one column a text"),
    (of(influence_test, HOLED, COINS, seed=0), "a missing score cannot be dropped"),
    (
        of(joint_beta_epsilon, **(TWO_BY_TWO | {"false_negatives": 0, "true_positives": 0})),
        "0 canaries were in and 2 were out",
    ),
    (of(joint_bounds, [1.0, 2.0, 3.0], [1, 1, 1]), "3 scores were in and 0 were not"),
    (of(joint_bounds, A, [1]), "included has shape"),
    (of(joint_bounds, [1.0, math.nan], [1, 0]), "is not finite"),
    (of(known_and_sampled, 0.0, 1.5), "open_mass"),
    (of(label_logits, [COINS, COINS[1:]], COINS[:, :2], kinds=["a", "a"]), r"matches\[1\] has"),
    (of(label_logits, [COINS[:, :0]], COINS[:, :1], kinds=["a"]), r"matches\[0\] has shape \(40,"),
    (of(label_logits, [X], COINS[:, :1], kinds=["a"]), r"matches\[0\] must hold true and false,"),
    (of(label_logits, [COINS, COINS], COINS[:, :2], kinds=["a"]), "kinds must be a list of 2"),
    (of(label_logits, [COINS], COINS, kinds=["a"]), r"included has shape \(40, 3\); give one coin"),
    (of(label_logits, [COINS], 1, kinds=["a"]), r"included has shape \(\); give one coin a score"),
    (of(label_logits, [], COINS[:, :0], kinds=[]), "no text to be judged; give at least one"),
    (of(length_strata, [0, 3]), "lengths hold 0"),
    (of(lidp_epsilon, [[[1.0]]], LOOK, threshold=0), r"in_scores has shape \(1, 1, 1\); give one"),
    (of(lidp_epsilon, LOOK, [], threshold=0), r"out_scores has shape \(0,\)"),
    (of(lidp_epsilon, [[1.0, math.nan]], LOOK, threshold=0), r"in_scores\[1\]=nan is not finite"),
    (of(lidp_epsilon, LOOK, LOOK, threshold=math.inf), r"threshold\[0\]=inf is not finite"),
    (of(lira, 1.0, [1], [1, 2]), "give at least 2 models"),
    (of(lira, [1, 2], [1, 2], [1, 2]), "one column for each of 2 texts"),
    (of(lira, 1.0, [1, 1], [1, 2]), "in_scores: text 0 has the same score"),
    (of(lira_matrix, X[0], COINS[0]), "scores has shape"),
    (of(lira_matrix, X, COINS.T), r"included has shape \(3, 40\)"),
    (of(lira_matrix, X, COINS + 0.5), "included must hold true"),
    (of(lira_matrix, X, COINS, kinds=["a"]), "kinds must be a list of 3 kinds"),
    (of(lira_matrix, X, COINS, shadows=np.arange(40) < 1), "give at least 2"),
    (of(lira_matrix, X, np.ones_like(COINS)), "no text has a score: each was in, or out of, none"),
    (of(lira_matrix, HOLED, COINS), r"scores\[0, 0\]=nan is not finite \(1 of 120 are not\)"),
    (of(longer_runs, np.zeros(19), np.arange(20) < 10, np.zeros(20)), "have shapes"),
    (of(mean_difference, A, [1.0]), "second has one number, which has no spread"),
    (of(mean_interval, [1.0, math.nan]), r"values\[1\]=nan is not finite"),
    (of(median_test, [1.0], []), "others"),
    (of(memorisation_test, X, COINS[:5], seed=0), r"included has shape \(5, 3\); give one coin a"),
    (of(min_k, []), "token_bits holds no texts"),
    (of(min_k, [[1], []]), r"token_bits\[1\] has shape \(0,\)"),
    (of(min_k_plus_plus, [[1, 2]], [[1, 2]], [[1]]), "std_bits must hold one number for each"),
    (of(min_k_plus_plus, [[1]], [[1]], [[-1]]), "std_bits holds -1; a standard deviation"),
    (of(per_text_epsilon, X, np.ones_like(COINS), seed=0), "coins of none of the 3 texts can have"),
    (of(per_text_epsilon, HOLED, COINS, seed=0), "is not finite"),
    (of(privacy_of, []), "no candidates"),
    (of(quantile_interval, [math.nan]), r"values\[0\]=nan is not finite"),
    (of(quantile_interval, []), "give a flat, non-empty list"),
    (of(rate_difference, (0.5, 0.6, 0.7), (0.1, 0.0, 0.2)), "a rate of 0.5 with an interval from"),
    (of(rmia, [1], [[1, 2]], [1], [[1]]), r"reference_bits has shape \(1, 2\); give one row"),
    (of(rmia, [1], [[1]], [], [[1]]), "population_bits has shape"),
    (of(rmia_matrix, X, COINS, X[1:]), r"population_bits has shape \(39, 3\); give one row for"),
    (of(rmia_matrix, X, COINS, X, shadows=FAIR), r"shadows has shape \(2,\); give true or false"),
    (of(rmia_matrix, X, COINS, X, shadows=np.arange(40) < 1), "shadows holds 1 of 40 models; a"),
    (of(sampled_exposure, [1.0, math.nan], [1.0]), r"canary_bits\[1\]=nan is not finite"),
    (of(sampled_exposure, 1.0, []), r"reference_bits has shape \(0,\)"),
    (of(scored, [1.0], ["canary", "canary"], [1], ["a"]), "1 scores, 2 roles"),
    (of(scored, [math.nan], ["canary"], [1], ["a"]), "is not finite"),
    (of(scored, A, ["canary"] * 2, [1, 1.5], ["a"] * 2), r"row 2 has 1\.5 repetitions; give a"),
    *(
        (of(scored, A, ["canary"] * 2, [1, x], ["a"] * 2), "row 2 has .* repetitions; give a whole")
        for x in (0, -1, math.nan, math.inf)
    ),
    (of(score_matrix, "x", [1, 2]), r"x has shape \(2,\); give one row a model"),
    (of(score_matrix, "x", [[]]), r"x has shape \(1, 0\)"),
    (of(score_matrix, "x", [[1, math.inf]]), r"x\[0, 1\]=inf is not finite \(1 of 2 are not\)"),
    (of(together_epsilon, X, np.ones_like(COINS), kinds=KINDS, seed=0), "120 of 120 candidates"),
    (of(together_epsilon, X, COINS, kinds=["a"], seed=0), "kinds must be a list of 3 kinds"),
    (of(tries_for, [1.0, -1.0], 0.5), "bits hold"),
    (of(tries_for, [1.0, math.nan], 0.5), "bits hold"),
    (of(unseen_passages, [3], 2), "counts"),
    (of(witness_certificate, [], sizes=100), "at least one finite number; score them again"),
    (of(witness_certificate, [[1.0]], sizes=100), "at least one finite number; score them again"),
    (of(witness_p_value, [], [1.0], seed=0), "at least one finite number; score them again"),
    (of(witness_p_value, [math.nan], [1.0], seed=0), "at least one finite number; score them"),
    (of(zlib_ratio, A, "ab"), "texts must be a list of 2 strings"),
]


@pytest.mark.parametrize(("call", "message"), BAD_INPUT)
def test_bad_input_is_refused(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
