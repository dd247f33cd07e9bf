"""Settings of defences: which go together, what is said of those that do not, what they decide."""

import dataclasses
from typing import Any

import pytest

from lmexposure.errors import SettingsError
from lmexposure.studies import OF_METHOD, TrainingSettings
from lmexposure.studies.training_settings import METHODS, TAUGHT, DefenceSettings

# The least that a training by each method is given.
LEAST: dict[str, dict[str, Any]] = {method: {"method": method} for method in METHODS}
LEAST["relaxloss"]["relax_level"] = 2.0
LEAST["dp-sgd"]["noise_multiplier"] = 1.0
# Another value of each setting that one method alone has.
OTHERS: dict[str, Any] = {
    "goldfish_k": 3,
    "goldfish_width": 5,
    "relax_level": 1.5,
    "relax_upper": 0.5,
    "hamp_entropy": 0.7,
    "hamp_weight": 0.1,
    "selena_parts": 7,
    "selena_absent": 3,
    "synthetic_share": 2.0,
    "delta": 1e-6,
    "noise_multiplier": 2.0,
    "clip": 2.0,
    "expected_batch": 9,
    "unit_field": "user",
    "noise_seed": 12345,
    "document_norms": True,
    "gradient_canaries": 100,
    "weight_average": 0.99,
}
OWNERS = {name: method for method, names in OF_METHOD.items() for name in names}


def test_each_setting_of_a_defence_is_of_a_method_or_of_all() -> None:
    declared = {field.name for field in dataclasses.fields(DefenceSettings)}
    assert declared - OWNERS.keys() == {"deduplicate", "dropout"}
    assert OTHERS.keys() == OWNERS.keys() - {"epsilon"}
    assert set(TAUGHT) < set(METHODS)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("method", METHODS)
def test_a_setting_of_another_method_is_refused_and_one_of_its_own_decides(
    method: str, name: str
) -> None:
    given = LEAST[method] | {name: OTHERS[name]}
    owner = OWNERS[name]
    if owner == method:
        assert TrainingSettings(**given).decisive() != TrainingSettings(**LEAST[method]).decisive()
        return
    message = rf"{name}={OTHERS[name]!r} is of method='{owner}', and the training is by '{method}'"
    if owner == "dp-sgd":
        message = rf"{name}=.* is of differential privacy, .*; add method='dp-sgd', or leave it out"
    with pytest.raises(SettingsError, match=message) as refused:
        TrainingSettings(**given)
    assert "12345" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"method": "relaxloss"},
            r"method='relaxloss' holds the loss at a level, and relax_level is not given",
        ),
        (
            LEAST["relaxloss"] | {"relax_upper": 1.5},
            r"relax_upper=1\.5 is a probability; give at most 1",
        ),
        (LEAST["relaxloss"] | {"relax_level": 0.0}, r"relax_level=0\.0 must be a finite number ab"),
        (
            LEAST["relaxloss"] | {"accumulation": 2},
            r"accumulation=2 does not go with method='relaxloss', which reads the mean loss of",
        ),
        (
            LEAST["selena"] | {"selena_parts": 4, "selena_absent": 4},
            r"selena_absent=4 must be below selena_parts=4: some model has to see each row",
        ),
        (LEAST["selena"] | {"selena_parts": 2}, "selena_absent=2 must be below selena_parts=2"),
        (
            LEAST["selena"] | {"lora": True},
            r"lora=True does not go with method='selena', which trains several models; train all",
        ),
        (
            LEAST["distillation"] | {"lora": True},
            "lora=True does not go with method='distillation'",
        ),
        (
            LEAST["dp-sgd"] | {"deduplicate": "exact"},
            r"deduplicate='exact' does not go with method='dp-sgd': a document more or less would",
        ),
        (
            LEAST["dp-sgd"] | {"weight_average": 1.0},
            r"weight_average=1\.0 must lie strictly between 0 and 1",
        ),
        ({"deduplicate": "fuzzy"}, "deduplicate='fuzzy' must be one of none, exact, near"),
        ({"dropout": 1.0}, r"dropout=1\.0 must be at least 0 and below 1"),
        ({"dropout": -0.1}, r"dropout=-0\.1 must be at least 0 and below 1"),
        ({"dropout": True}, "dropout=True must be at least 0 and below 1"),
        ({"dropout": "0.1"}, r"dropout='0\.1' must be at least 0 and below 1"),
        ({"dropout": float("nan")}, "dropout=nan must be at least 0 and below 1"),
        (LEAST["goldfish"] | {"goldfish_k": 1}, "goldfish_k=1 must be a whole number from 2"),
        (LEAST["goldfish"] | {"goldfish_width": 0}, "goldfish_width=0 must be a whole number from"),
        (LEAST["hamp"] | {"hamp_entropy": 1.0}, r"hamp_entropy=1\.0 must lie strictly between"),
        (LEAST["hamp"] | {"hamp_weight": 0.0}, r"hamp_weight=0\.0 must be a finite number above 0"),
        (LEAST["selena"] | {"selena_parts": 101}, "selena_parts=101 must be a whole number from 2"),
        (LEAST["selena"] | {"selena_absent": 0}, "selena_absent=0 must be a whole number from 1"),
        (LEAST["distillation"] | {"synthetic_share": 0.0}, r"synthetic_share=0\.0 must be a finit"),
        (
            {"method": "gold-fish"},
            "method='gold-fish' must be one of plain, dp-sgd, goldfish, relaxloss, hamp, sel",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        TrainingSettings(**given)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_decides_by_its_own_settings_alone(method: str) -> None:
    """Those of before there were defences have the names, and so the hash, that they had."""
    plain = TrainingSettings().decisive()
    new = {*OWNERS, "method", "deduplicate", "dropout"}
    assert not plain.keys() & new
    own = TrainingSettings(**LEAST[method]).decisive()
    expected = {"method", *OF_METHOD[method]} if method != "plain" else set[str]()
    assert own.keys() - plain.keys() == expected - {"weight_average", "gradient_canaries"}
    assert {name: own[name] for name in plain} == plain


@pytest.mark.parametrize(
    "given", [{"deduplicate": "exact"}, {"deduplicate": "near"}, {"dropout": 0.1}]
)
@pytest.mark.parametrize("method", ["plain", "goldfish", "distillation"])
def test_what_every_method_has_decides_where_it_is_given(
    method: str, given: dict[str, Any]
) -> None:
    own, usual = (TrainingSettings(**LEAST[method], **more).decisive() for more in (given, {}))
    assert own == usual | given


def test_adapters_go_with_a_defence_of_one_model() -> None:
    for method in ("goldfish", "relaxloss", "hamp"):
        assert TrainingSettings(**LEAST[method], lora=True).decisive()["lora"] is True
    assert TrainingSettings(method="goldfish", accumulation=4).accumulation == 4
