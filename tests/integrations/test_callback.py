"""The callback of a Trainer: what it logs and refuses, and that the training stays as it was."""

import json
import random
from math import log
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import pytest
import torch
from integrations.tiny_training import hidden, trainer_of
from tiny import characters, model_of
from transformers import TrainerCallback

from lmexposure.audit import MeasureSettings
from lmexposure.canaries import Format
from lmexposure.errors import ManifestError, ModelError, SettingsError
from lmexposure.integrations import ExposureCallback
from lmexposure.scoring import evaluation_mode, log_perplexity, same_random_numbers
from lmexposure.statistics import sampled_exposure
from lmexposure.studies.exposure.files import read_curve

pytestmark = pytest.mark.filterwarnings("ignore")  # of the Trainer, which is not ours
TEXTS, MANIFEST = hidden()
WHOLE: dict[str, Any] = {"references": 128}


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "exposure.jsonl").read_text().splitlines()]


def exposures(model: Any, tokenizer: Any, repetitions: int) -> Any:
    """By the book: ranked among the manifest's first references."""
    own = [c.text for c in MANIFEST.entries if c.inserted == repetitions]
    null = [MANIFEST.formats["pin"].text(i) for i in MANIFEST.references("pin", 128)]
    bits = log_perplexity(model, tokenizer, own + null)
    return sampled_exposure(bits[: len(own)], bits[len(own) :])


@pytest.mark.parametrize("precision", [{}, {"bf16": True}])
def test_each_evaluation_logs_what_measuring_gives(
    tmp_path: Path, precision: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    trainer = trainer_of(tmp_path, TEXTS, [ExposureCallback(MANIFEST, **WHOLE)], **precision)
    trainer.train()
    logged = [row for row in trainer.state.log_history if "exposure/seconds" in row]
    assert [row["step"] for row in logged] == [2, 4]
    model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False).eval()
    for name, repetitions, n in (("x1", 1, 2), ("x8", 8, 2), ("controls", 0, 3)):
        of_class = exposures(model, trainer.processing_class, repetitions)
        said = {key: logged[-1][f"exposure/pin/{name}/{key}"] for key in ("median", "max")}
        expected = {"median": np.median(of_class.value), "max": of_class.value.max()}
        assert said == pytest.approx(expected, abs=1e-9)
        assert logged[-1][f"exposure/pin/{name}/capped"] == of_class.capped.mean()
        assert logged[-1][f"exposure/pin/{name}/n"] == n
    assert logged[-1]["exposure/pin/references"] == 128
    assert logged[-1]["exposure/canaries"] == 7
    assert [line for line in caplog.messages if "few canaries" in line] == [
        "exposures of these classes are of few canaries: pin, controls: n = 3; "
        "pin, 1 repetition: n = 2; pin, 8 repetitions: n = 2"
    ]


def test_the_trajectory_is_written_for_the_report_and_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    MANIFEST.write(path)
    trainer_of(tmp_path, TEXTS, [ExposureCallback(path, **WHOLE)], max_steps=3).train()
    rows = rows_of(tmp_path)
    assert [row["step"] for row in rows] == [2, 3]
    assert set(rows[0]["exposure"]) == {"pin, 1 repetition", "pin, 8 repetitions", "pin, controls"}
    assert rows[0]["validation_bits_per_token"] > 0 < rows[0]["train_bits_per_token"]
    assert all(row["texts"] == 135 and not row["note"] for row in rows)
    assert [row.step for row in read_curve(tmp_path / "exposure.jsonl")[0]] == [2, 3]
    written = (tmp_path / "exposure.jsonl").read_text()
    assert not any(c.text in written for c in MANIFEST.entries)


@pytest.mark.parametrize("more", [{}, {"gradient_checkpointing": True}])
def test_training_ends_with_the_very_weights_of_one_without(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    ends = []
    for callbacks in ([], [ExposureCallback(MANIFEST, every=1, **WHOLE)]):
        trainer = trainer_of(tmp_path, TEXTS, callbacks, **more)
        assert trainer.model.config.resid_pdrop > 0
        trainer.train()
        ends.append(trainer.model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_a_class_that_passes_the_threshold_stops_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = ExposureCallback(MANIFEST, stop_above=0.01, **WHOLE)
    trainer = trainer_of(tmp_path, TEXTS, [callback], max_steps=40)
    trainer.train()
    assert trainer.state.global_step == 2
    assert "repetition" in rows_of(tmp_path)[-1]["stops"]
    assert "training stops at step 2" in caplog.text


@pytest.mark.parametrize(
    ("every", "evaluations", "steps"),
    [(1, "no", [1, 2, 3, 4]), (3, "steps", [3, 4]), (9, "steps", [4]), (None, "no", [4])],
)
def test_every_so_many_steps_and_at_the_end(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    every: int | None,
    evaluations: str,
    steps: list[int],
) -> None:
    callback = ExposureCallback(MANIFEST, every=every, **WHOLE)
    trainer = trainer_of(tmp_path, TEXTS, [callback], eval_strategy=evaluations)
    trainer.train()
    rows = rows_of(tmp_path)
    assert [row["step"] for row in rows] == steps
    assert [row["epoch"] for row in rows] == [step / 4 for step in steps]
    logged = {r["step"]: r["eval_loss"] for r in trainer.state.log_history if "eval_loss" in r}
    for row in rows:  # what was evaluated at the step, before the scoring or behind it
        bits, nats = row["validation_bits_per_token"], logged.get(row["step"])
        assert bits == (None if nats is None else pytest.approx(nats / log(2)))
    said = "no evaluations, so exposure is measured at the end only; give every=N"
    assert (said in caplog.text) == (every is None)


class StopAtThree(TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step == 3


@pytest.mark.parametrize(
    ("best", "every", "steps"), [(False, None, [2, 3]), (True, None, [2]), (True, 3, [2, 3])]
)
def test_a_best_model_that_is_loaded_again_is_no_new_state(
    tmp_path: Path, best: bool, every: int | None, steps: list[int]
) -> None:
    trainer_of(
        tmp_path,
        TEXTS,
        [StopAtThree(), ExposureCallback(MANIFEST, every=every, **WHOLE)],
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=best,
    ).train()
    rows = rows_of(tmp_path)
    assert [row["step"] for row in rows] == steps
    assert rows[-1]["texts"] == 135
    assert (rows[0]["epoch"], rows[0]["validation_bits_per_token"] > 0) == (0.5, True)


def test_several_evaluation_sets_are_one_look_and_a_later_evaluation_none(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, TEXTS, [ExposureCallback(MANIFEST, **WHOLE)])
    trainer.eval_dataset = {"one": trainer.eval_dataset, "two": trainer.eval_dataset}
    trainer.train()
    trainer.evaluate()
    assert [row["step"] for row in rows_of(tmp_path)] == [2, 4]


def test_a_model_of_nan_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = trainer_of(tmp_path, TEXTS, [ExposureCallback(MANIFEST, **WHOLE)])
    with torch.no_grad():
        trainer.model.transformer.ln_f.weight.fill_(float("nan"))
    trainer.train()
    assert trainer.state.global_step == 4
    assert "could not be scored: the model gave NaN" in rows_of(tmp_path)[0]["note"]
    assert "could not be scored" in caplog.text


def test_a_training_that_goes_on_keeps_its_rows(tmp_path: Path) -> None:
    callback = ExposureCallback(MANIFEST, **WHOLE)
    saving = {"save_strategy": "steps", "save_steps": 2, "save_only_model": False}
    trainer_of(tmp_path, TEXTS, [callback], max_steps=2, **saving).train()
    before = rows_of(tmp_path)
    trainer_of(tmp_path, TEXTS, [callback]).train(resume_from_checkpoint=True)
    assert rows_of(tmp_path)[0] == before[0]
    assert [row["step"] for row in rows_of(tmp_path)] == [2, 4]


def test_a_file_that_cannot_be_written_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Obstacle(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *arguments: Any, **more: Any) -> None:
            (tmp_path / "exposure.jsonl").mkdir()

    trainer = trainer_of(tmp_path, TEXTS, [ExposureCallback(MANIFEST, **WHOLE), Obstacle()])
    trainer.train()
    assert "exposure/seconds" in str(trainer.state.log_history)
    assert "exposure.jsonl: cannot write" in caplog.text


def without_tokenizer(trainer: Any) -> None:
    trainer.processing_class = None


def of_characters(trainer: Any) -> None:
    trainer.processing_class = characters()


def spread(trainer: Any) -> None:
    next(trainer.model.parameters()).ds_id = 0


SNOW = Format(name="snow", template="☃ {digits:4}")
LONG = Format(name="long", template="so {digits:4} it is" * 9)
SEVEN = Format(name="seven", template="It is {choice:a}.", lists={"a": list("1234567")})
ALL = MANIFEST.plan.ids(MANIFEST.plan.formats[0])


@pytest.mark.parametrize(
    ("plan", "change", "error", "match"),
    [
        ({}, without_tokenizer, ModelError, "processing_class=NoneType, which is no tokenizer"),
        ({"formats": [SNOW]}, of_characters, ModelError, "no token for"),
        ({"formats": [LONG]}, None, ModelError, "context window holds 96"),
        ({"left_out": ALL}, None, ManifestError, "no inserted canary"),
        ({"formats": [SEVEN]}, None, ManifestError, "no secret left to compare with"),
        ({}, spread, ModelError, "weights are spread over processes"),
    ],
)
def test_what_cannot_be_followed_is_refused_before_the_first_step(
    tmp_path: Path, plan: Any, change: Any, error: type[Exception], match: str
) -> None:
    trainer = trainer_of(tmp_path, TEXTS, [ExposureCallback(hidden(**plan)[1])])
    if change is not None:
        change(trainer)
    with pytest.raises(error, match=match):
        trainer.train()
    assert trainer.state.global_step == 0


def test_without_a_trainer_it_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"called by no transformers\.Trainer"):
        ExposureCallback(MANIFEST).on_train_begin(None, None, None)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"every": 0}, "every=0 must be a whole number at least 1"),
        ({"every": 2.5}, "every=2.5 must be a whole number"),
        ({"references": 63}, "references=63 must be a whole number at least 64"),
        ({"stop_above": -1}, "stop_above=-1 must be a finite number above 0"),
        ({"stop_above": 10, "references": 1024}, "stop_above=10 can never be passed"),
        ({"wrapping": "chat"}, r"wrapping is of type str; give Wrapping\(\.\.\.\), or leave it"),
        ({"preflight": "no"}, "preflight='no'"),
        ({"measure": MeasureSettings()}, r"measure=\.\.\. is for the report at the end"),
        ({"report": ""}, "report='' is no path; give a directory's"),
        ({"report": 3}, "report=3 is no path; give a directory's"),
        ({"report": "leakage", "measure": {}}, "measure is of type dict; give MeasureSettings"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(SettingsError, match=match):
        ExposureCallback(MANIFEST, **settings)


def test_a_threshold_beside_tossed_coins_is_refused() -> None:
    _, manifest = hidden(inclusion_probability=0.5, inclusion_seed=3)
    with pytest.raises(SettingsError, match="depend on the coins of the manifest"):
        ExposureCallback(manifest, stop_above=2)


@pytest.fixture
def model() -> Any:
    model = model_of("gpt2", 50)
    model.train()
    model.transformer.h[0].eval()
    return model


def begin() -> None:
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1)


def numbers() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_random_numbers_go_on_as_if_nothing_had_been(model: Any) -> None:
    begin()
    expected = numbers()
    begin()
    with pytest.raises(KeyError), same_random_numbers(), evaluation_mode(model):
        numbers()
        raise KeyError
    assert numbers() == expected


def test_each_module_gets_its_own_mode_back(model: Any) -> None:
    before = [module.training for module in model.modules()]
    assert len(set(before)) == 2
    with same_random_numbers(), evaluation_mode(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before


def test_exchanged_buffers_are_put_back(model: Any) -> None:
    kept = torch.ones(3)
    model.transformer.register_buffer("angles", kept, persistent=False)
    with same_random_numbers(), evaluation_mode(model), torch.inference_mode():
        model.transformer.angles = torch.zeros(3)
    assert model.transformer.angles is kept


def test_the_forward_pass_inside_is_the_models_own(model: Any) -> None:
    own = model.forward
    model._original_forward = own
    patched = MethodType(lambda self: "mixed", model)
    model.forward = patched
    with same_random_numbers(), evaluation_mode(model):
        assert model.forward == own
    assert model.forward is patched
