"""What is searched of a defence, by trainings that nobody makes, and each as a training."""

import importlib.util
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known import known
from tiny_defences import text_at, tiny_comparison

import lmexposure.defences.driver
from lmexposure._forecast import Forecast
from lmexposure.cli.console import Bars, LongWork
from lmexposure.defences import (
    DEFENCES,
    Defence,
    DefencesSettings,
    Found,
    Reference,
    prepare_comparison,
    search,
)
from lmexposure.defences.catalogue import chosen, refuse_own
from lmexposure.defences.driver import _Ahead, _Chosen, _Part, _searches
from lmexposure.errors import NumericalError, ResultError, SettingsError
from lmexposure.studies import TrainingSettings
from lmexposure.sweeps import Cost


def _searched(ratio: Callable[[float], float], **changes: float) -> Found:
    asked = {"target": 1.05, "tolerance": 0.01, "tries": 5} | changes
    return search(ratio, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "ratio",
    [
        lambda s: 1 + 0.1 * s,
        lambda s: 1 + 0.5 * s**4,
        lambda s: 0.9 + 0.4 * math.sqrt(s),
        lambda s: 1.04 + s / 50,
        lambda s: 1.0 if s < 0.5 else 1.3 * s + 0.4,
    ],
)
def test_a_loss_that_rises_is_brought_to_the_target(ratio: Callable[[float], float]) -> None:
    found = _searched(ratio, tries=8)
    assert found.why is None
    assert abs(ratio(found.strength) / 1.05 - 1) <= 0.01
    assert found.tried[-1].strength == found.strength


@given(
    st.floats(0.8, 1.04),
    st.floats(1.061, 4),
    st.floats(0.3, 5),
    st.integers(min_value=2, max_value=7),
)
def test_no_search_trains_more_often_or_beyond_its_range(
    weakest: float, strongest: float, bend: float, tries: int
) -> None:
    asked: list[float] = []

    def ratio(strength: float) -> float:
        asked.append(strength)
        return weakest + (strongest - weakest) * float(strength**bend)

    found = _searched(ratio, tries=tries)
    assert len(asked) == len(found.tried) <= tries
    assert all(0 <= strength <= 1 for strength in asked)
    assert len(set(asked)) == len(asked)
    assert 0 <= found.strength <= 1
    assert not found.useless
    # What is chosen lies between the nearest on both sides.
    below = [one.strength for one in found.tried if one.ratio < 1.05]
    above = [one.strength for one in found.tried if one.ratio >= 1.05]
    if found.why is not None and below and above:
        assert max(below) <= found.strength <= min(above)


def test_what_costs_too_much_at_its_weakest_is_useless_after_two_trainings() -> None:
    found = _searched(lambda s: 1.2 + s)
    assert found.useless
    assert [one.strength for one in found.tried] == [0.5, 0.0]
    assert "higher target" in str(found.why)


def test_what_is_useful_at_its_strongest_is_kept_so() -> None:
    found = _searched(lambda s: 1 + s / 100)
    assert (found.strength, found.useless) == (1.0, False)
    assert "nearer to 1" in str(found.why)


def test_a_training_that_diverges_is_too_strong() -> None:
    found = _searched(lambda s: math.inf if s > 0.2 else 1 + s, tries=12)
    assert found.why is None
    assert found.strength == pytest.approx(0.05, abs=0.011)


def test_a_strength_between_trainings_is_named_as_such() -> None:
    found = _searched(lambda s: 0.5 if s < 0.9 else 9.0, tries=3)
    assert "in between" in str(found.why)
    assert found.strength not in {one.strength for one in found.tried}


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


COST = Cost(seconds=12.0, at_most=True, with_scores=1.2)


def test_a_forecast_counts_searches_models_and_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmexposure.defences.driver, "timed_training", lambda *_, **__: COST)
    settings = tiny_comparison("hamp")
    comparison = prepare_comparison(text_at(tmp_path), out=tmp_path / "out", settings=settings)

    def forecast(workers: int) -> Forecast:
        return _Ahead.by_trials(comparison, workers=workers, address=None).forecast

    alone = forecast(1)
    assert [phase.what for phase in alone.phases] == [
        *("search: none", "search: hamp"),
        *("none: models", "none: analysis", "hamp: models", "hamp: analysis"),
    ]
    # Of both: the search, six models, and what they show together.
    assert alone.seconds == pytest.approx(10 * (1 + 3) + 2 * (6 * 12 + 3 + 2))
    beside = forecast(2)  # which are started, and halve the models
    assert beside.seconds == pytest.approx(alone.seconds - 2 * 3 * 12 + 2 * 15)
    assert ", 2 side by side, after a search of at most 3 trainings" in beside.what
    (comparison.sweep_of(comparison.defences[0]) / "sweep.json").parent.mkdir(parents=True)
    (comparison.sweep_of(comparison.defences[0]) / "sweep.json").touch()
    left = forecast(1).phases
    assert left == tuple(phase for phase in alone.phases if "hamp" in phase.what)


class Clock(Bars):
    """A clock, and what is said at its times."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.said: list[str] = []

    def __call__(self) -> float:
        return self.now

    def say(self, line: str) -> None:
        self.said.append(line)


@pytest.mark.parametrize("slower", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("tries", [1, 3])
def test_what_is_left_is_right_once_models_were_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slower: float, tries: int
) -> None:
    """Within a factor of 1.5, whatever trials said, by a fake clock: from the first models on."""
    monkeypatch.setattr(lmexposure.defences.driver, "timed_training", lambda *_, **__: COST)
    settings = tiny_comparison("hamp")
    comparison = prepare_comparison(text_at(tmp_path), out=tmp_path / "out", settings=settings)
    clock, training = Clock(), 10.0 * slower
    ahead = _Ahead.by_trials(comparison, workers=1, address=None)
    ahead.clock = clock
    work = LongWork(clock, clock)
    ahead.tell(work)
    of_a_model = 2.0 * training  # and not 1.2, as the trials said
    ratios: list[tuple[float, float]] = []

    def takes(what: str, seconds: float, total: int = 10, told: Any = ahead) -> None:
        begun = clock.now
        for done in range(total + 1):
            clock.now = begun + seconds * done / total
            told(what, done, total)
            left = work._remaining.left(clock.now)
            assert left is not None
            ratios.append((clock.now, left))

    takes("search: none", training)
    for _ in range(tries):
        takes("search: hamp", training)
    known_since = 0.0
    for name in ("none", "hamp"):
        part = _Part(ahead=ahead, name=name)
        begun = clock.now
        takes("models", 0.0, 1, part)
        for done in range(7):  # as the display of the models says from the first on
            clock.now = begun + done * of_a_model
            part.expect("models", (6 - done) * of_a_model)
            takes("models", 0.0, 6, part)
        takes("analysis", 5.0, 1, part)
        known_since = begun + of_a_model if name == "none" else known_since
    for now, left in ratios:
        if known_since < now < clock.now:
            assert (clock.now - now) / 1.5 - 6 <= left <= 1.5 * (clock.now - now) + 6
    announced = float(clock.said[0].rpartition("about ")[2].split()[0])
    assert announced == pytest.approx(3, abs=1)  # minutes, by the trials


def test_a_method_that_is_left_out_takes_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmexposure.defences.driver, "timed_training", lambda *_, **__: COST)
    settings = tiny_comparison("hamp")
    comparison = prepare_comparison(text_at(tmp_path), out=tmp_path / "out", settings=settings)
    clock = Clock()
    ahead, work = _Ahead.by_trials(comparison, workers=1, address=None), LongWork(clock, clock)
    ahead.tell(work)
    before = work._remaining.left(0.0)
    ahead.leave_out("hamp")
    assert known(before) - known(work._remaining.left(0.0)) == pytest.approx(6 * 12 + 5)


def test_the_whole_corpus_takes_more_models_unless_a_number_is_given() -> None:
    assert DefencesSettings().override({}).sweep.models == 32
    assert DefencesSettings().override({"entire": True}).sweep.models == 64
    assert DefencesSettings().override({"entire": True, "models": 24}).sweep.models == 24


_REFERENCE = Reference(bits=2.0, steps=120)


@pytest.mark.parametrize("defence", DEFENCES.values(), ids=list(DEFENCES))
def test_every_defence_is_a_training_at_both_ends(defence: Defence) -> None:
    for strength in (0.0, 0.5, 1.0):
        settings: dict[str, Any] = dict(defence.training)
        if defence.knob is not None:
            settings[defence.knob.setting] = defence.knob.value(strength, _REFERENCE)
        made = TrainingSettings(**settings)
        assert made.method == defence.training.get("method", "plain")
    assert defence.meaning
    assert defence.promises_not


def test_shares_are_of_the_undefended_training() -> None:
    steps: Any = DEFENCES["early-stop"].knob
    level: Any = DEFENCES["relaxloss"].knob
    assert steps.value(0.0, _REFERENCE) == 120
    assert steps.value(1.0, _REFERENCE) == 6
    assert level.value(0.0, _REFERENCE) == pytest.approx(0.4 * 2 * 0.6931, rel=1e-3)


def test_the_undefended_training_comes_first_and_once() -> None:
    assert [defence.name for defence in chosen(["hamp", "none"])] == ["none", "hamp"]
    assert [defence.name for defence in chosen(["hamp"])] == ["none", "hamp"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("simclr", "is no defence; choose from none"),
        ("hamp+selena", "at once"),
        ("dp-sgd", r"lmexposure\[dp\]"),
    ],
)
def test_what_is_no_defence_or_not_installed_is_refused(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "lmexposure.defences.catalogue.find_spec",
        lambda module: None if module == "opacus" else real(module),
    )
    with pytest.raises(SettingsError, match=said):
        chosen([name])


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"method": "goldfish"}, "makes a defence"),
        ({"weight_decay": 0.1}, "fixed by weight-decay"),
        ({"max_steps": 5}, "fixed by early-stop"),
    ],
)
def test_settings_for_all_are_no_method_s_own(training: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        refuse_own(training, chosen(["weight-decay", "early-stop"]))
    refuse_own({"epochs": 3}, chosen(["weight-decay", "early-stop"]))
