"""Power of kinds on made matrices: who leaks is stronger, and who does not is not."""

from typing import Any

import numpy as np
import pytest
from made_matrices import made_matrices, made_models, made_plan

from lmexposure.studies import SweepPower
from lmexposure.sweeps import analyse
from lmexposure.sweeps.counterfactual import kind_of

_MODELS, _EACH = 64, 20
_CHOSEN = ("new_token", "near_duplicate")
_KINDS = ("pin/x1", "new_token/x1", "near_duplicate/x1")


def _plan(*, seed: int = 0, shares: bool = True) -> Any:
    rng = np.random.default_rng([seed, 7])
    fewer = {}
    if shares:
        half = rng.random((_MODELS, 3 * _EACH)) < 0.5
        half[:, 3 * (_EACH // 2) :] = False
        fewer = {0.5: half, 0.0: np.zeros((8, 3 * _EACH), dtype=bool)}
    return made_plan(
        _MODELS, 3 * _EACH, kinds=_KINDS, chosen=_CHOSEN, fewer=fewer, seed=seed, attack="plain"
    )


def _power(plan: Any, *, leaking: tuple[int, ...] = (), worse: float = 0.0) -> SweepPower:
    matrices = made_matrices(plan, leaking=leaking)
    models = []
    for n, record in enumerate(made_models(matrices)):
        bits = 2 + worse * plan.shares[record.number] + 0.01 * (n % 3)
        training = record.training.model_copy(update={"validation_bits": bits})
        models.append(record.model_copy(update={"training": training}))
    found = analyse(matrices, plan, documents=99, models=models)
    assert found.power is not None
    assert found.models == _MODELS
    return found.power


def test_the_kind_that_leaks_is_the_strongest() -> None:
    plan = _plan()
    power = _power(plan, leaking=tuple(range(1, 3 * _EACH, 3)), worse=0.5)
    assert power.strongest == "new_token/x1"
    assert power.strongest_low is not None
    assert power.strongest_low > 0.9
    by_class = {row.group: row for row in power.comparisons}
    assert set(by_class) == {"new_token/x1", "near_duplicate/x1"}
    assert by_class["new_token/x1"].verdict == "stronger"
    assert by_class["near_duplicate/x1"].verdict == "open"
    rows = {(row.group, row.share): row for row in power.rows}
    assert rows["new_token/x1", 1.0].separated == _EACH
    assert rows["new_token/x1", 0.5].canaries == _EACH // 2
    assert rows["new_token/x1", 0.5].kind == "new_token"
    assert rows["pin/x1", 1.0].kind == "uniform"
    whole, half, none = power.utility
    assert (whole.share, half.share, none.share) == (1.0, 0.5, 0.0)
    assert none.inserted == 0
    assert none.cost is None
    assert whole.cost == pytest.approx(0.5, abs=0.02)
    assert whole.cost_low is not None
    assert whole.cost_low > 0.4
    assert half.inserted < whole.inserted


def test_a_kind_that_shows_less_is_said_to_be_weaker() -> None:
    power = _power(_plan(), leaking=tuple(range(0, 3 * _EACH, 3)))
    assert [row.verdict for row in power.comparisons] == ["weaker", "weaker"]
    assert power.strongest == "pin/x1"


@pytest.mark.slow
def test_without_a_signal_no_kind_is_stronger() -> None:
    plans = (_plan(seed=seed, shares=False) for seed in range(12))
    verdicts = [row.verdict for plan in plans for row in _power(plan).comparisons]
    assert verdicts == ["open"] * 24


def test_one_class_and_one_share_have_no_power() -> None:
    plan = made_plan(8, 6, attack="plain")
    matrices = made_matrices(plan)
    found = analyse(matrices, plan, documents=99, models=made_models(matrices))
    assert found.power is None


def test_models_of_fewer_canaries_decide_nothing() -> None:
    with_shares, alone = _plan(), _plan(shares=False)
    leaking = (1, 4)
    matrices = made_matrices(with_shares, leaking=leaking)
    first = matrices.of_models(matrices.numbers < _MODELS)
    whole = analyse(matrices, with_shares, documents=9, models=made_models(matrices))
    part = analyse(first, alone, documents=9, models=made_models(first))
    assert whole.texts == part.texts
    assert whole.scores == part.scores
    assert whole.epsilon == part.epsilon


def test_what_is_not_resolved_and_what_has_no_yardstick_is_said() -> None:
    plan = made_plan(8, 6, kinds=_KINDS[1:], chosen=_CHOSEN, attack="plain")
    matrices = made_matrices(plan)
    power = analyse(matrices, plan, documents=9, models=made_models(matrices)).power
    assert power is not None
    assert power.strongest is None
    assert power.comparisons == ()
    assert "there are no uniform canaries to compare the kinds with" in power.notes[0]
    assert "too few for a false-positive rate of 0.01" in power.notes[1]
    assert [kind_of(text, plan) for text in plan.canaries[:2]] == [*_CHOSEN]
