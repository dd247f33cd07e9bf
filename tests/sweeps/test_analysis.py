"""What the matrices of a sweep mean, on scores that nobody trained."""

from typing import Any

import numpy as np
import pytest
from known import known
from made_matrices import ALL, made_matrices, made_models, made_plan

from lmexposure.errors import ResultError
from lmexposure.statistics import lira_matrix, one_run_audit, tpr_at_fpr
from lmexposure.studies import FailedModel, SweepPlan, SweepResult
from lmexposure.sweeps import Matrices, analyse


def analysed(plan: SweepPlan, **parts: Any) -> SweepResult:
    return of_matrices(made_matrices(plan, **parts), plan)


def of_matrices(matrices: Matrices, plan: SweepPlan, **training: Any) -> SweepResult:
    return analyse(matrices, plan, documents=200, models=made_models(matrices, **training))


def pairs(result: SweepResult, group: str) -> list[tuple[str, str]]:
    return [(row.score, row.attack) for row in result.scores if row.group == group]


LIKELIHOOD = ("plain", "lira", "lira_offline")


def test_each_score_is_shown_under_each_attack_that_reads_it() -> None:
    plan = made_plan(8, 10, 6)
    result = analysed(plan, names=ALL)
    of_canaries = {
        "log_perplexity": (*LIKELIHOOD, "rmia"),
        "secret_tokens": LIKELIHOOD,
        "min_k": LIKELIHOOD,
        "min_k_plus_plus": LIKELIHOOD,
        "zlib": LIKELIHOOD,
        "label_only": (*LIKELIHOOD, "label_regression"),
    }
    wanted = [(score, attack) for score, attacks in of_canaries.items() for attack in attacks]
    first = ("secret_tokens", "lira")
    assert pairs(result, "canaries") == [first, *(pair for pair in wanted if pair != first)]
    of_documents = [p for p in wanted if p[0] not in ("label_only", "secret_tokens")]
    assert pairs(result, "population") == [first, *of_documents]
    assert {row.group for row in result.scores} == {"canaries", "population"}


def test_the_score_that_was_named_decides_however_well_another_does() -> None:
    plan = made_plan(16, 20, score="min_k", attack="plain")
    matrices = made_matrices(plan, names=("min_k", "zlib"))
    matrices.scores["zlib"][:] += 50 * matrices.included
    result = of_matrices(matrices, plan)
    row = result.primary["canaries"]
    assert (row.score, row.attack) == ("min_k", "plain")
    assert known(row.area) < 0.7
    assert not any(text.separated for text in result.texts)
    assert known(result.epsilon.primary).bound.value < 0.3
    best = max(result.scores, key=lambda other: other.area or 0)
    assert (best.score, best.primary) == ("zlib", False)


def test_rates_are_of_leave_one_out_scores_of_all_cells() -> None:
    plan = made_plan(32, 40, level=0.9)
    matrices = made_matrices(plan, shift=1.5)
    result = analysed(plan, shift=1.5)
    row = result.primary["canaries"]
    values = lira_matrix(matrices.scores["secret_tokens"], matrices.included).scores
    inside, outside = values[matrices.included], values[~matrices.included]
    exact = tpr_at_fpr(inside, outside, fpr=0.01, level=0.9)
    rate = next(rate for rate in row.rates if rate.fpr == 0.01)
    assert rate.value == exact.value
    assert known(rate.low) <= known(exact.low) < known(exact.value) < known(rate.high)
    assert (row.cells_in, row.cells_out, row.cells_missing) == (inside.size, outside.size, 0)
    assert 0.7 < known(row.area_low) < known(row.area) < known(row.area_high)
    curve = known(row.curve)
    assert curve.low[0] <= curve.tpr[0] <= curve.high[0]
    raw = next(other for other in result.scores if other.attack == "plain")
    assert known(raw.area) < known(row.area_low)  # texts lie apart, which LiRA takes away
    assert raw.area_low is not None
    assert raw.curve is None


def test_a_canary_that_gives_itself_away_is_the_worst() -> None:
    plan = made_plan(24, 20, 30, attack="plain")
    result = analysed(plan, leaking=(3, 25))
    worst, text = known(result.worst), result.texts[3]
    assert (worst.id, worst.among) == (text.id, 20) == (plan.texts[3].id, 20)
    assert text.separated
    assert text.tpr == worst.tpr == 1
    assert worst.p == pytest.approx(20 * known(text.p))
    assert worst.p < 1e-4
    assert text.advantage_low > 0.1
    assert 18 < known(text.difference) < 22
    assert min(worst.scores_in) > max(worst.scores_out)
    assert (len(worst.scores_in), len(worst.scores_out)) == (text.models_in, text.models_out)
    assert not any(row.separated for row in result.texts if row.id != text.id)
    ordinary = known(result.worst_of_population)
    assert (ordinary.id, ordinary.among) == ("document/000005", 30)
    assert ordinary.separated
    assert ordinary.bound is not None


def test_the_bound_of_the_worst_text_pays_for_the_choice() -> None:
    plan = made_plan(32, 20, attack="plain")
    matrices = made_matrices(plan, leaking=(3,))
    result = of_matrices(matrices, plan)
    column, coins = matrices.scores["secret_tokens"][:, 3], matrices.included[:, 3]
    bound = known(known(result.worst).bound)
    paid = one_run_audit(column, coins, significance=0.05 / 20, seed=1)
    assert bound.value == pytest.approx(paid.value)
    assert bound.value > 0.5
    alone = one_run_audit(column, coins, significance=0.05, seed=1)
    assert result.texts[3].epsilon == pytest.approx(alone.value)
    largest = next(row for row in result.epsilon.bounds if row.question == "per_canary")
    assert largest.chosen_from == 20
    assert largest.bound.value == pytest.approx(paid.value)


def test_epsilon_of_all_models_together_is_named_beforehand() -> None:
    result = analysed(made_plan(24, 40, attack="plain"), shift=3.0)
    questions = [row.question for row in result.epsilon.bounds]
    assert questions == ["together", "per_model", "per_canary"]
    assert result.epsilon.primary == result.epsilon.bounds[0]
    assert result.epsilon.bounds[0].bound.value > 1
    assert [row.chosen_from for row in result.epsilon.bounds] == [1, 24, 40]
    for row in result.epsilon.bounds:
        assert row.bound.max_attainable is not None
        assert row.bound.significance == result.epsilon.significance == 0.05
    assert result.epsilon.refused == ()


def test_canaries_of_each_number_of_repetitions_share_the_significance() -> None:
    """And each kind has its own row, and is judged by its own."""
    plan = made_plan(16, 24, kinds=("pin/x4", "pin/x1"), attack="plain")
    result = analysed(plan, shift=2.0)
    together = [row for row in result.epsilon.bounds if row.question == "together"]
    assert [row.repetitions for row in together] == [1, 4]
    assert [row.bound.significance for row in together] == [0.025, 0.025]
    assert result.epsilon.primary == together[0]
    assert result.epsilon.significance == 0.025
    assert len(result.epsilon.bounds) == 6
    of_kinds = [row for row in result.scores if row.group.startswith("pin/")]
    assert [(row.group, row.primary) for row in of_kinds] == [("pin/x4", True), ("pin/x1", True)]
    assert all(row.area_low is not None for row in of_kinds)
    assert sum(row.cells_in for row in of_kinds) == result.primary["canaries"].cells_in


def test_greedy_matches_decide_of_canaries_and_log_perplexity_of_documents() -> None:
    plan = made_plan(16, 12, 12, score="label_only", attack="plain")
    result = analysed(plan, leaking=(2,), names=("log_perplexity", "label_only"))
    assert pairs(result, "canaries")[0] == ("label_only", "plain")
    assert pairs(result, "population")[0] == ("log_perplexity", "plain")
    assert known(result.worst).id == plan.texts[2].id
    regression = next(row for row in result.scores if row.attack == "label_regression")
    assert (regression.group, regression.score) == ("canaries", "label_only")
    assert regression.area is not None


def test_another_attack_can_decide() -> None:
    plan = made_plan(16, 20, score="log_perplexity", attack="rmia")
    result = analysed(plan, shift=4.0, names=("log_perplexity",))
    row = result.primary["canaries"]
    assert (row.score, row.attack) == ("log_perplexity", "rmia")
    assert known(row.area) > 0.8
    assert row.area_low is not None


def test_coins_of_exactly_half_allow_no_bound() -> None:
    rng = np.random.default_rng(1)
    included = rng.permuted(np.arange(16)[:, None].repeat(12, axis=1) < 8, axis=0)
    result = analysed(made_plan(16, 12, coins="exactly_half", included=included), leaking=(1,))
    assert result.epsilon.primary is None
    assert result.epsilon.bounds == ()
    assert "exactly_half" in result.epsilon.refused[0]
    worst = known(result.worst)
    assert (worst.separated, worst.bound) == (True, None)
    assert all(text.epsilon is None for text in result.texts)
    assert any("exactly_half" in line for line in result.warnings)


def test_a_canary_that_all_models_have_is_named_and_not_judged() -> None:
    included = np.random.default_rng(1).random((12, 10)) < 0.5
    included[:, 4] = True
    result = analysed(made_plan(12, 10, included=included))
    text = result.texts[4]
    assert (text.tpr, text.p, text.difference, text.epsilon) == (None, None, None, None)
    assert not text.separated
    said = next(line for line in result.warnings if "in all models or in none" in line)
    assert said.startswith("1 of 10 canaries was")
    assert text.id in said
    assert result.primary["canaries"].cells_missing == 12
    assert any("12 of 120 cases have no score by lira" in line for line in result.warnings)


def test_coins_that_are_all_alike_say_nothing() -> None:
    result = analysed(made_plan(16, 10, included=np.ones((16, 10), dtype=bool)))
    assert result.worst is None
    assert result.epsilon.primary is None
    assert result.epsilon.bounds == ()
    assert result.epsilon.refused == (
        "canaries inserted once: each was in all models or in none; train more models",
    )
    row = result.primary["canaries"]
    assert (row.area, row.area_low, row.curve) == (None, None, None)
    assert row.cells_out == 0
    assert row.notes


def test_too_few_models_are_told_how_many_it_takes() -> None:
    result = analysed(made_plan(4, 10, 5))
    row = result.primary["canaries"]
    assert row.cells_missing > 0
    assert "train more models" in row.notes[-1]
    assert all(rate.value is None for rate in row.rates)
    assert any(
        line.startswith("4 models cannot show that the worst of 10 canaries leaks")
        and line.endswith("at least 10")
        for line in result.warnings
    )
    few = next(line for line in result.warnings if line.startswith("canaries: ") and "FPR" in line)
    assert "0.1 % (it takes 738 models) or 1 % (it takes 74 models)" in few
    assert any(line.startswith("ordinary documents: ") for line in result.warnings)


def test_enough_models_need_no_warning() -> None:
    result = analysed(made_plan(64, 120, 10, attack="plain"), shift=1.0, names=("secret_tokens",))
    assert [line for line in result.warnings if not line.startswith("ordinary documents")] == []


def test_without_canaries_the_population_is_judged() -> None:
    result = analysed(made_plan(12, 0, 12), leaking=(2,))
    assert (result.canaries, result.worst, result.texts) == (0, None, ())
    assert result.epsilon.refused == ("no canary has coins",)
    assert known(result.worst_of_population).id == "document/000002"
    assert {row.group for row in result.scores} == {"population"}
    assert any("no canary has coins" in line for line in result.warnings)


def test_models_that_diverged_are_named() -> None:
    plan = made_plan(12, 10)
    matrices = made_matrices(plan, kept=tuple(range(11)))
    lost = FailedModel(number=11, reason="the loss became NaN")
    result = analyse(matrices, plan, documents=9, models=made_models(matrices), failed=(lost,))
    assert (result.models, result.failed) == (11, (lost,))
    assert result.warnings[0] == (
        "1 of 12 models has no scores and is left out: 11 (the loss became NaN)"
    )
    few = made_matrices(plan, kept=tuple(range(5, 12)))
    many = [FailedModel(number=n, reason="the loss became NaN") for n in (4, 3, 2, 1, 0)]
    result = analyse(few, plan, documents=9, models=made_models(few), failed=many)
    assert [model.number for model in result.failed] == [0, 1, 2, 3, 4]
    assert "of more than 10 % it is not known" in result.warnings[0]


@pytest.mark.parametrize("left", [1, 2, 3])
def test_the_few_models_that_are_left_are_still_described(left: int) -> None:
    plan = made_plan(6, 5, 3)
    matrices = made_matrices(plan, kept=tuple(range(left)), names=ALL)
    lost = [FailedModel(number=n, reason="the loss became NaN") for n in range(left, 6)]
    result = analyse(matrices, plan, documents=9, models=made_models(matrices), failed=lost)
    row = result.primary["canaries"]
    assert row.area_low is None
    assert row.notes
    assert row.cells_in + row.cells_out + row.cells_missing == 5 * left
    assert (result.worst is None) == (left == 1)
    assert result.utility.sd == (None if left == 1 else 0.0)


def test_models_that_learned_nothing_are_told() -> None:
    plan = made_plan(12, 10)
    matrices = made_matrices(plan)
    models = [*made_models(matrices)[:5], *made_models(matrices, validation_bits=5.0)[5:]]
    result = analyse(matrices, plan, documents=9, models=models)
    assert result.utility.learned == 5
    assert (result.utility.mean, result.utility.initial) == ((5 * 2 + 7 * 5) / 12, 5.0)
    assert result.utility.seconds == 2.0
    said = next(line for line in result.warnings if "did not learn" in line)
    assert said.startswith("7 of 12 models did not learn")
    assert "5, 6, 7, 8, 9 and 2 more" in said


@pytest.mark.parametrize(
    ("tokens", "epochs", "told"),
    [(160, 2.0, True), (0, 0.0, False)],  # two epochs of 80, of which 20 are canaries
)
def test_canaries_that_are_much_of_the_corpus_are_told(
    tokens: int, epochs: float, told: bool
) -> None:
    plan = made_plan(12, 10)
    result = of_matrices(made_matrices(plan), plan, tokens=tokens, epochs=epochs)
    said = [line for line in result.warnings if "canaries are about" in line]
    assert bool(said) is told
    assert all(line.startswith("canaries are about 25 % of what") for line in said)


def test_what_does_not_belong_together_is_refused() -> None:
    plan = made_plan(12, 10)
    matrices = made_matrices(plan)
    models = made_models(matrices)
    with pytest.raises(ResultError, match="12 models, and 11 records were given"):
        analyse(matrices, plan, documents=9, models=models[1:])
    other = made_plan(12, 10, score="calibrated")
    with pytest.raises(ResultError, match="score='calibrated' was to decide"):
        analyse(matrices, other, documents=9, models=models)


def test_the_result_names_what_it_is_of_and_is_read_again(tmp_path: Any) -> None:
    plan = made_plan(12, 10, 5)
    matrices = made_matrices(plan)
    result = of_matrices(matrices, plan)
    result.write(tmp_path / "sweep.json")
    assert SweepResult.read(tmp_path) == result
    assert result.matrices_sha256 == matrices.sha256
    assert (result.canaries, result.population, result.validation) == (10, 5, 6)
    frame = result.to_frame()
    assert list(frame["id"])[: len(result.texts)] == [text.id for text in result.texts]
    assert frame["tpr"][: len(result.texts)].between(0, 1).all()
    assert repr(result) == str(result)
    assert repr(result).startswith(
        "<Sweep of 12 models of 10 canaries and 5 ordinary documents; worst pin/x1/"
    )
    assert "epsilon at least 0.000" in repr(result)
