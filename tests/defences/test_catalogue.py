"""Each defence is a training that can be made, at both ends of what is searched."""

import importlib.util
from typing import Any

import pytest

from lmexposure.defences import DEFENCES, Defence, Reference
from lmexposure.defences.catalogue import chosen, refuse_own
from lmexposure.errors import SettingsError
from lmexposure.studies import TrainingSettings

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
