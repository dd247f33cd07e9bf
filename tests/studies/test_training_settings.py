"""Training settings, of defences too: defaults, checks, and what they decide."""

import dataclasses
import json
import re
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


def test_defaults_differ_by_model() -> None:
    assert TrainingSettings.for_model("lstm") == TrainingSettings()
    assert TrainingSettings.for_model("pretrained").learning_rate == 5e-5
    assert TrainingSettings.for_model("pretrained").epochs == 3
    assert TrainingSettings.for_model("gpt2-tiny").block_size <= 256


def test_changes_win_over_defaults() -> None:
    assert TrainingSettings.for_model("pretrained", epochs=7).epochs == 7


def test_unknown_kind_and_unknown_setting_are_refused() -> None:
    with pytest.raises(SettingsError, match="kind='gru' must be one of lstm, gpt2-tiny, pretrain"):
        TrainingSettings.for_model("gru")
    with pytest.raises(
        SettingsError, match="unknown setting of the training 'epoch'; did you mean 'epochs'"
    ):
        TrainingSettings.for_model("lstm", epoch=3)


@pytest.mark.parametrize(
    ("method", "name", "value", "message"),
    [
        ("plain", "seed", -1, "must be a whole number at least 0"),
        ("plain", "epochs", 0, "must be a whole number at least 1"),
        ("plain", "patience", 0, "must be"),
        ("plain", "batch_size", 2.5, "must be a whole number"),
        ("plain", "accumulation", 0, "must be"),
        ("plain", "validation_characters", 0, "must be"),
        ("plain", "block_size", 1, "must be a whole number from 2 to 10000000"),
        ("plain", "block_size", 10**20, "must be a whole number from 2 to 10000000"),
        ("plain", "warmup_steps", -1, "must be"),
        ("plain", "learning_rate", 0.0, "must be a finite number above 0"),
        ("plain", "gradient_clip", float("inf"), "must be a finite number above 0"),
        ("plain", "checkpoint_seconds", 0, "must be a finite number above 0"),
        ("plain", "validation_fraction", 1.0, "must lie strictly between"),
        ("plain", "schedule", "cosine", "must be one of constant, linear"),
        ("plain", "precision", "fp16", "must be one of float32, bf16"),
        ("plain", "weight_decay", -0.1, "must be finite and at least 0"),
        ("plain", "weight_decay", float("nan"), "must be finite and at least 0"),
        ("plain", "evaluate_every", 0, "must be a whole number at least 1"),
        ("plain", "threads", 0, "must be a whole number from 1 to 1024"),
        ("plain", "threads", 10**11, "must be a whole number from 1 to 1024"),
        ("plain", "max_seconds", -1.0, "must be a finite number above 0"),
        ("dp-sgd", "precision", "bf16", "does not go with method='dp-sgd': rounding"),
        ("dp-sgd", "accumulation", 2, "does not go with method='dp-sgd', whose batch_size"),
        ("dp-sgd", "delta", 0.0, "must lie strictly between"),
        ("dp-sgd", "delta", 1.0, "must lie strictly between"),
        ("dp-sgd", "clip", 0.0, "must be a finite number above 0"),
        ("dp-sgd", "clip", 1e200, "must be at most 1e+100"),
        ("dp-sgd", "noise_multiplier", -1.0, "must be a finite number ab"),
        ("dp-sgd", "expected_batch", 0, "must be a whole number at least 1"),
        ("dp-sgd", "unit_field", "", "must be a string, and not an empty"),
        ("relaxloss", "relax_upper", 1.5, "is a probability; give at most 1"),
        ("relaxloss", "relax_level", 0.0, "must be a finite number ab"),
        ("distillation", "lora", True, "does not go with method='distillation'"),
        ("dp-sgd", "weight_average", 1.0, "must lie strictly between 0 and 1"),
        ("plain", "deduplicate", "fuzzy", "must be one of none, exact, near"),
        ("plain", "dropout", 1.0, "must be at least 0 and below 1"),
        ("plain", "dropout", -0.1, "must be at least 0 and below 1"),
        ("plain", "dropout", True, "must be at least 0 and below 1"),
        ("plain", "dropout", "0.1", "must be at least 0 and below 1"),
        ("plain", "dropout", float("nan"), "must be at least 0 and below 1"),
        ("goldfish", "goldfish_k", 1, "must be a whole number from 2"),
        ("goldfish", "goldfish_width", 0, "must be a whole number from"),
        ("hamp", "hamp_entropy", 1.0, "must lie strictly between"),
        ("hamp", "hamp_weight", 0.0, "must be a finite number above 0"),
        ("selena", "selena_parts", 101, "must be a whole number from 2"),
        ("selena", "selena_absent", 0, "must be a whole number from 1"),
        ("distillation", "synthetic_share", 0.0, "must be a finit"),
    ],
)
def test_values_out_of_range_are_refused(
    method: str, name: str, value: object, message: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"{name}={value!r} {message}")):
        TrainingSettings.for_model("lstm", **LEAST[method] | {name: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"snapshot_epochs": (1, 21)}, "snapshot_epochs=21 must be a whole number from 1 to 20"),
        ({"lora": True, "lora_targets": []}, r"lora_targets=\(\) must be a list with at least one"),
        (
            {"lora": True, "lora_targets": ("",)},
            "lora_targets='' must be a string, and not an empty",
        ),
        *(
            (given, f"{next(iter(given))}=.* add lora=True, or leave it out")
            for given in (
                {"lora_rank": 4},
                {"lora_alpha": 8.0},
                {"lora_targets": ["q"]},
                {"lora_rank": 16},  # the default: who says it means adapters all the same
                {"lora_targets": ["all-linear"]},
                {"lora_rank": 16, "lora": False},
            )
        ),
        (
            {"epsilon": 1.0},
            r"epsilon=1\.0 is of differential privacy, and the training would promise none; "
            "add method='dp-sgd', or leave it out",
        ),
        (
            LEAST["relaxloss"] | {"accumulation": 2},
            "accumulation=2 does not go with method='relaxloss', which reads the mean loss of",
        ),
        (
            LEAST["selena"] | {"lora": True},
            "lora=True does not go with method='selena', which trains several models; train all",
        ),
        (
            LEAST["dp-sgd"] | {"deduplicate": "exact"},
            "deduplicate='exact' does not go with method='dp-sgd': a document more or less would",
        ),
        (
            LEAST["dp-sgd"] | {"noise_multiplier": None},
            "takes epsilon=... or noise_multiplier=..., and neither is given",
        ),
        (
            LEAST["dp-sgd"] | {"epsilon": 3.0},
            "takes epsilon=... or noise_multiplier=..., and both are given; give one of",
        ),
        (LEAST["dp-sgd"] | {"method": "other"}, "method='other' must be one of plain, dp-sgd, "),
        (
            LEAST["dp-sgd"] | {"noise_multiplier": None, "epsilon": 0},
            "epsilon=0 must be a finite number above 0",
        ),
        (
            {"method": "relaxloss"},
            r"method='relaxloss' holds the loss at a level, and relax_level is not given",
        ),
        (
            LEAST["selena"] | {"selena_parts": 4, "selena_absent": 4},
            r"selena_absent=4 must be below selena_parts=4: some model has to see each row",
        ),
        (LEAST["selena"] | {"selena_parts": 2}, "selena_absent=2 must be below selena_parts=2"),
        (
            {"method": "gold-fish"},
            "method='gold-fish' must be one of plain, dp-sgd, goldfish, relaxloss, hamp, sel",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        TrainingSettings.for_model("lstm", **change)


def test_speed_is_kept_apart_from_what_decides_the_result() -> None:
    slow = TrainingSettings(accumulation=4, checkpoint_seconds=1.0, threads=2)
    assert slow.decisive() == TrainingSettings().decisive()
    assert TrainingSettings(seed=1).decisive() != TrainingSettings().decisive()
    private = TrainingSettings(**LEAST["dp-sgd"], unit_field="user")
    assert (private.is_private, slow.is_private) == (True, False)
    for settings in (slow, private):
        assert json.loads(json.dumps(settings.to_dict())) == settings.to_dict()


def test_learning_rate_warms_up_and_runs_down() -> None:
    settings = TrainingSettings(learning_rate=1.0, warmup_steps=3, schedule="linear")
    rates = [settings.learning_rate_at(step, 10) for step in range(10)]
    assert rates[:4] == pytest.approx([0.25, 0.45, 0.6, 0.7])
    assert rates[-1] == pytest.approx(0.1)
    assert TrainingSettings(learning_rate=2.0).learning_rate_at(9, 10) == 2.0


def test_targets_of_adapters_are_names() -> None:
    chosen = TrainingSettings(lora=True, lora_targets=["q_proj"])  # type: ignore[arg-type]
    assert chosen.to_dict()["lora_targets"] == ["q_proj"]


def test_adapters_take_longer_steps() -> None:
    assert TrainingSettings.for_model("pretrained", lora=True).learning_rate == 2e-4
    assert TrainingSettings.for_model("pretrained", lora=True, learning_rate=1e-3).lora_rank == 16


def test_a_plain_training_has_the_hash_that_it_had_before_there_were_others() -> None:
    of_plain = TrainingSettings().decisive()
    assert set(of_plain) == {
        *("seed", "epochs", "patience", "evaluate_every", "batch_size", "block_size"),
        *("learning_rate", "schedule", "warmup_steps", "weight_decay", "gradient_clip"),
        *("precision", "validation_fraction", "validation_characters", "snapshot_epochs"),
        "max_seconds",
    }
    with_adapters = TrainingSettings(lora=True).decisive()
    adapters = {"lora", "lora_rank", "lora_alpha", "lora_targets"}
    assert set(with_adapters) == {*of_plain, *adapters}


def test_a_seed_of_noise_is_not_shown() -> None:
    assert "987654" not in repr(TrainingSettings(**LEAST["dp-sgd"], noise_seed=987654))


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
