"""What each text of a sweep changes, on scores that nobody trained."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from known import known
from made_matrices import ALL, made_matrices, made_models, made_plan

from lmexposure.statistics import mean_difference, memorisation_test, per_text_epsilon
from lmexposure.studies import CounterfactualGroup, FailedModel, SweepCounterfactual, SweepPlan
from lmexposure.sweeps import Matrices, analyse

NAMES = ("log_perplexity", "secret_tokens")


def found_in(matrices: Matrices, plan: SweepPlan, **parts: Any) -> SweepCounterfactual:
    models = made_models(matrices)
    return known(analyse(matrices, plan, documents=200, models=models, **parts).counterfactual)


def group_of(found: SweepCounterfactual, name: str) -> CounterfactualGroup:
    return known(found.group(name))


def plan_of(models: int = 24, canaries: int = 10, population: int = 30, **parts: Any) -> SweepPlan:
    return made_plan(models, canaries, population, attack="plain", **parts)


def test_a_document_that_leaves_a_trace_comes_first() -> None:
    plan = plan_of()
    matrices = made_matrices(plan, leaking=(3, 25), names=NAMES)
    found = found_in(matrices, plan)
    group = group_of(found, "population")
    first = group.texts[0]
    assert first.id == "document/000015"
    coins, bits = matrices.included[:, 25], matrices.token_bits[25]
    own = -bits[:, matrices.secret[25]].sum(axis=1) / 3
    wanted = mean_difference(own[coins], own[~coins])
    memorised = known(first.memorised)
    assert memorised.difference == pytest.approx(wanted.value)
    assert (memorised.low, memorised.high) == pytest.approx((wanted.low, wanted.high))
    assert memorised.mean_in == pytest.approx(own[coins].mean())
    assert first.log_ratio == pytest.approx(3 * wanted.value)
    assert first.p == 1 / (1 + found.permutations)
    assert (first.models_in, first.models_out) == (coins.sum(), (~coins).sum())
    assert first.reproduced is None
    differences = [text.memorised.difference for text in group.texts if text.memorised]
    assert differences == sorted(differences, reverse=True)
    assert all((text.p or 0) > 0.05 for text in group.texts[1:])
    assert group.by_halves[0] == pytest.approx(wanted.value, rel=0.3)
    assert abs(known(group.by_halves[1])) < differences[1]
    assert 0.3 < known(group.spread) < 0.9  # a bell curve of width 1 over four tokens, and noise
    assert group_of(found, "canaries").texts[0].id == plan.texts[3].id
    assert found.notes == ()


def test_p_values_are_those_of_the_statistics_and_of_all_texts_at_once() -> None:
    plan = plan_of(canaries=6)
    matrices = made_matrices(plan, shift=1.0, names=NAMES)
    group = group_of(found_in(matrices, plan), "canaries")
    scores = np.stack(
        [-b[:, s].mean(axis=1) for b, s in zip(matrices.token_bits, matrices.secret, strict=True)],
        axis=1,
    )[:, :6]
    alone = memorisation_test(scores, matrices.included[:, :6], permutations=999, seed=0)
    by_id = {text.id: text.p for text in group.texts}
    for n, text in enumerate(plan.canaries):
        assert by_id[text.id] == pytest.approx(alone.p[n], abs=0.05)


def test_bounds_pay_for_all_texts_of_the_group() -> None:
    plan = plan_of(40, kinds=("pin/x4", "pin/x1"))
    matrices = made_matrices(plan, leaking=(0, 1), names=NAMES)
    result = analyse(matrices, plan, documents=200, models=made_models(matrices))
    texts = group_of(known(result.counterfactual), "canaries").texts
    by_id = {text.id: text.epsilon for text in texts}
    for copies, place in ((4, 0), (1, 1)):
        cells = matrices.scores["secret_tokens"][:, [place]], matrices.included[:, [place]]
        paid = per_text_epsilon(*cells, significance=0.05 / 10, repetitions=copies, seed=0)
        assert by_id[plan.texts[place].id] == pytest.approx(paid.values[0])
        assert (by_id[plan.texts[place].id] or 0) > 0
    assert (result.texts[1].epsilon or 0) > (by_id[plan.texts[1].id] or 0)


def test_a_secret_that_greedy_tokens_give_away() -> None:
    plan = plan_of(30, 4, 0)
    matrices = made_matrices(plan, leaking=(2,), names=ALL)
    group = group_of(found_in(matrices, plan), "canaries")
    by_id = {text.id: text.reproduced for text in group.texts}
    hit = np.all(matrices.matches[2][:, :3], axis=1)
    assert isinstance(hit, np.ndarray)
    coins = matrices.included[:, 2]
    found = known(by_id[plan.texts[2].id])
    assert (found.mean_in, found.mean_out) == (hit[coins].mean(), hit[~coins].mean()) == (1, 0)
    assert 0 < found.low < found.difference == found.high == 1
    assert all(-1 <= rate.low <= rate.high <= 1 for rate in by_id.values() if rate)


def test_influence_on_a_document_that_no_model_learned() -> None:
    plan = plan_of(30, seed=1)
    matrices = made_matrices(plan, names=NAMES)
    matrices.validation_bits[:, 4] -= 16 * matrices.included[:, 13]
    found = known(found_in(matrices, plan).influence)
    assert (found.documents, found.held_out, found.found) == (30, 6, 1)
    first = found.pairs[0]
    assert (first.id, first.held_out) == ("document/000003", "document/000034")
    own, coins = -matrices.validation_bits[:, 4] / 4, matrices.included[:, 13]
    wanted = mean_difference(own[coins], own[~coins])
    assert first.change.difference == pytest.approx(wanted.value)
    assert first.change.low == pytest.approx(wanted.low)
    assert 3 < first.change.difference < 5  # 16 bits over four tokens
    assert first.p == 0.001
    assert len(found.pairs) == 20
    assert [pair.p for pair in found.pairs] == sorted(pair.p for pair in found.pairs)
    assert found.pairs[1].p > 0.05


@pytest.mark.slow
def test_without_a_trace_nothing_is_found() -> None:
    called = 0
    for seed in range(5):
        plan = plan_of(16, 10, 10, seed=seed)
        found = found_in(made_matrices(plan, names=NAMES, seed=seed), plan)
        called += known(found.influence).found > 0
        for group in found.groups:
            called += (group.texts[0].p or 1) <= 0.05
            assert all(text.epsilon == 0 for text in group.texts)
    assert called <= 4  # of 15 at 5 %: P(more) = .001


def test_what_too_few_models_leave_open_is_said() -> None:
    coins = np.random.default_rng(1).random((5, 8)) < 0.5
    coins[:, 0], coins[:, 6] = True, False
    plan = made_plan(5, 5, 3, included=coins, attack="plain")
    matrices = made_matrices(plan, names=NAMES, kept=(0, 1, 2))
    failed = tuple(FailedModel(number=number, reason="NaN") for number in (3, 4))
    found = found_in(matrices, plan, failed=failed)
    last = {text.id: text for text in group_of(found, "population").texts}["document/000001"]
    assert (last.memorised, last.log_ratio, last.p, last.models_in) == (None, None, None, 0)
    said = "; ".join(found.notes)
    assert "fewer than two models" in said
    assert "3 models are too few to choose the most memorised text in one half" in said
    assert "influence on documents that no model learned is not known: it takes such" in said
    assert found.influence is None
    halves = plan_of(16, coins="exactly_half")
    found = found_in(made_matrices(halves, names=NAMES), halves)
    assert any("p-values hold as they are" in note for note in found.notes)
    assert all(text.epsilon is None for group in found.groups for text in group.texts)


def test_no_document_held_out_is_no_influence() -> None:
    plan = plan_of()
    matrices = made_matrices(plan, names=NAMES)
    alone = plan.model_copy(update={"texts": plan.scored})
    without = replace(
        matrices,
        validation_bits=matrices.validation_bits[:, :0],
        validation_tokens=matrices.validation_tokens[:0],
    )
    found = found_in(without, alone)
    assert found.influence is None
    assert len(found.notes) == 1


def test_it_is_made_again_and_a_group_with_a_text_too_few_is_refused() -> None:
    plan = plan_of(12, population=4)
    found = found_in(made_matrices(plan, names=ALL), plan)
    assert found_in(made_matrices(plan, names=ALL), plan) == found
    group = found.groups[0]
    with pytest.raises(ValueError, match="10 halves for 9 texts"):
        CounterfactualGroup(**{**dict(group), "texts": group.texts[1:]})
