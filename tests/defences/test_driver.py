"""What is searched of a method, by trainings that nobody makes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_defences import text_at, tiny_comparison

import lmexposure.defences.driver
from lmexposure.defences import DefencesSettings, forecast, prepare_comparison
from lmexposure.defences.driver import _Chosen, _searches
from lmexposure.errors import NumericalError, ResultError

Loss = Callable[[Mapping[str, Any]], float]


def _silent(what: str, done: int, total: int, note: str = "") -> None:
    """Watches nothing."""


Searched = tuple[list[_Chosen], list[dict[str, Any]], list[str]]


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Searched]:
    """What was chosen, which trainings were made, and what was said."""

    def of(loss: Loss, *methods: str, **changes: Any) -> Searched:
        made: list[dict[str, Any]] = []

        def trained(*_: object, training: dict[str, Any], **__: object) -> Any:
            made.append(training)
            bits = loss(training)
            return SimpleNamespace(validation_bits=bits, best_step=40, seconds=1.0)

        monkeypatch.setattr(lmexposure.defences.driver, "train_alone", trained)
        settings = tiny_comparison(*methods, **{"tries": 5, "target": 1.05} | changes)
        comparison = prepare_comparison(text_at(tmp_path), out=tmp_path / "out", settings=settings)
        said: list[str] = []
        return _searches(comparison, _silent, said.append), made, said

    return of


def test_steps_are_a_share_of_those_of_the_undefended_training(
    searched: Callable[..., Searched],
) -> None:
    def loss(training: Mapping[str, Any]) -> float:
        return float(2.0 + (40 - training.get("max_steps", 40)) / 100)

    found, made, said = searched(loss, "early-stop")
    assert made[0] == {}
    assert {training["max_steps"] for training in made[1:]} <= set(range(2, 41))
    chosen = found[1]
    assert chosen.training == {"max_steps": chosen.search.value}
    assert chosen.search.value == pytest.approx(30, abs=1)
    assert chosen.search.reached
    assert len(made) - 1 == len(chosen.search.tries) <= 5
    assert said[0] == "none: 2.000 bits a token"
    assert "early-stop: max_steps=" in said[1]


def test_the_better_batch_is_searched_on_and_counts_among_the_trainings(
    searched: Callable[..., Searched],
) -> None:
    """Of dp-sgd the second batch is better here: noise is searched with that alone."""

    def loss(training: Mapping[str, Any]) -> float:
        if not training:
            return 2.0
        worse = 0.5 if training["expected_batch"] < 3 else 0.0
        return float(2.0 * (1 + training["noise_multiplier"] / 10 + worse))

    found, made, _ = searched(loss, "dp-sgd", delta=1e-6)
    private = made[1:]
    assert len(private) <= 5
    assert len({training["expected_batch"] for training in private[:2]}) == 2
    assert {training["expected_batch"] for training in private[2:]} == {4}  # of sixty lines
    chosen: Any = found[1]
    fixed = {"expected_batch": 4, "learning_rate": 0.06, "weight_average": 0.98, "delta": 1e-6}
    assert {name: chosen.training[name] for name in fixed} == fixed
    assert chosen.training["noise_multiplier"] == pytest.approx(0.5, rel=0.3)


def test_the_strong_baseline_is_as_useful_as_no_defence(searched: Callable[..., Searched]) -> None:
    def loss(training: Mapping[str, Any]) -> float:
        return float(2.0 * (0.97 + training.get("noise_multiplier", 0.3) / 10))

    found, _, _ = searched(loss, "dp-sgd-high")
    value: Any = found[1].search.value
    assert 0.97 + value / 10 == pytest.approx(1.0, abs=0.01)


def test_what_cannot_reach_the_target_is_left_out_and_said(
    searched: Callable[..., Searched],
) -> None:
    found, made, said = searched(lambda training: 3.0 if training else 2.0, "hamp")
    assert found[1].training is None
    assert len(made) == 3
    assert "left out: even its weakest setting" in said[1]


def test_a_search_that_diverges_goes_on_where_it_is_weaker(
    searched: Callable[..., Searched],
) -> None:
    def loss(training: Mapping[str, Any]) -> float:
        if training.get("hamp_entropy", 0) > 0.1:
            raise NumericalError("the loss is nan")
        return 2.0 if not training else float(2.0 * (1 + training["hamp_entropy"]))

    found, _, _ = searched(loss, "hamp", tries=8)
    assert found[1].search.value == pytest.approx(0.05, abs=0.01)


def test_an_undefended_training_that_diverges_ends_the_comparison(
    searched: Callable[..., Searched],
) -> None:
    def loss(_: Mapping[str, Any]) -> float:
        raise NumericalError("the loss is nan")

    with pytest.raises(ResultError, match="without a defence diverged"):
        searched(loss, "hamp")


def test_a_forecast_counts_searches_models_and_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmexposure.defences.driver, "timed_training", lambda *_, **__: 10.0)
    settings = tiny_comparison("hamp")
    comparison = prepare_comparison(text_at(tmp_path), out=tmp_path / "out", settings=settings)
    alone = forecast(comparison, workers=1)
    assert [phase.what for phase in alone.phases] == ["none", "hamp", "measuring"]
    # Six models, the search, one more; starting.
    assert alone.seconds == pytest.approx(10 * (1 + 6 + 1) + 10 * (3.5 + 6 + 1) + 2 * 12)
    assert forecast(comparison, workers=2).seconds == pytest.approx(alone.seconds - 2 * 30)
    (comparison.sweep_of(comparison.defences[0]) / "sweep.json").parent.mkdir(parents=True)
    (comparison.sweep_of(comparison.defences[0]) / "sweep.json").touch()
    left = forecast(comparison, workers=1).phases
    assert left == (alone.phases[1], replace(alone.phases[2], work=12.0))


def test_the_whole_corpus_takes_more_models_unless_a_number_is_given() -> None:
    assert DefencesSettings().override({}).sweep.models == 32
    assert DefencesSettings().override({"full": True}).sweep.models == 64
    assert DefencesSettings().override({"full": True, "models": 24}).sweep.models == 24
