import itertools
import json
import logging
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from integrations.tiny_training import hidden, trainer_of
from tiny import characters
from tokenizers import normalizers
from transformers import TrainerCallback

from lmexposure.canaries import Format, Manifest
from lmexposure.errors import ManifestError, ModelError, SettingsError
from lmexposure.integrations import (
    ExposureCallback,
)
from lmexposure.records.run import read_curve
from lmexposure.reporting.charts.training import training_chart
from lmexposure.scoring import log_perplexity
from lmexposure.statistics import sampled_exposure

pytestmark = pytest.mark.filterwarnings("ignore")  # of the Trainer, which is not ours

TEXTS, MANIFEST = hidden()
WHOLE: dict[str, Any] = {"references": 128, "budget_seconds": 60.0}


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "exposure.jsonl").read_text().splitlines()]


def median(model: Any, tokenizer: Any, repetitions: int) -> float:
    """By the book: ranked among the manifest's first references."""
    own = [c.text for c in MANIFEST.entries if c.inserted == repetitions]
    null = [MANIFEST.formats["pin"].text(i) for i in MANIFEST.references("pin", 128)]
    bits = log_perplexity(model, tokenizer, own + null)
    return float(np.median(sampled_exposure(bits[: len(own)], bits[len(own) :]).value))


@pytest.mark.parametrize("precision", [{}, {"bf16": True}])
def test_each_evaluation_logs_what_measuring_gives(
    tmp_path: Path, precision: dict[str, Any]
) -> None:
    trainer = trainer_of(tmp_path, TEXTS, [ExposureCallback(MANIFEST, **WHOLE)], **precision)
    trainer.train()
    logged = [row for row in trainer.state.log_history if "exposure/seconds" in row]
    assert [row["step"] for row in logged] == [2, 4]
    model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False).eval()
    for name, repetitions in (("x1", 1), ("x8", 8), ("controls", 0)):
        expected = median(model, trainer.processing_class, repetitions)
        assert logged[-1][f"exposure/pin/{name}/median"] == pytest.approx(expected, abs=1e-9)
    assert logged[-1]["exposure/pin/references"] == 128
    assert logged[-1]["exposure/canaries"] == logged[-1]["exposure/canaries_planned"] == 7


def test_the_trajectory_is_written_for_the_report_and_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    MANIFEST.write(path)
    trainer_of(tmp_path, TEXTS, [ExposureCallback(path, **WHOLE)], max_steps=3).train()
    rows = rows_of(tmp_path)
    assert [row["step"] for row in rows] == [2, 3]
    assert set(rows[0]["exposure"]) == {"pin, 1 repetition", "pin, 8 repetitions", "pin, controls"}
    assert rows[0]["validation_bits_per_token"] > 0 < rows[0]["train_bits_per_token"]
    assert all(row["texts"] == row["texts_planned"] == 135 and not row["note"] for row in rows)
    chart = training_chart(read_curve(tmp_path / "exposure.jsonl")[0])
    assert chart is not None
    assert chart.title == "Loss while training, and exposure"
    written = (tmp_path / "exposure.jsonl").read_text()
    assert not any(c.text in written for c in MANIFEST.entries)


@pytest.mark.parametrize("more", [{}, {"gradient_checkpointing": True}])
def test_training_ends_with_the_very_weights_of_one_without(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    ends = []
    for callbacks in ([], [ExposureCallback(MANIFEST, **WHOLE)]):
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


def test_what_the_budget_leaves_out_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = ExposureCallback(MANIFEST, budget_share=1e-9, full_at_end=False)
    trainer_of(tmp_path, TEXTS, [callback]).train()
    for row in rows_of(tmp_path):
        assert row["exposure"] == {}
        assert row["note"].startswith("not measured: the time budget, 0.00 s")
        assert (row["texts"], row["texts_planned"]) == (0, 1007)
    assert "exposure was never measured in this training" in caplog.text


def test_without_evaluations_the_end_is_measured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer_of(tmp_path, TEXTS, [ExposureCallback(MANIFEST, **WHOLE)], eval_strategy="no").train()
    assert [row["step"] for row in rows_of(tmp_path)] == [4]
    assert "no evaluations, so exposure is measured at the end only" in caplog.text


UNPAID: dict[str, Any] = {"references": 128, "budget_share": 1e-9}


def test_the_last_evaluation_measures_all_and_says_before_what_that_takes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer_of(tmp_path, TEXTS, [ExposureCallback(MANIFEST, **UNPAID)]).train()
    first, last = rows_of(tmp_path)
    assert (first["step"], first["texts"], first["full"]) == (2, 0, False)
    assert (last["step"], last["texts"], last["full"]) == (4, 135, True)
    assert last["exposure"]
    assert last["validation_bits_per_token"] > 0
    assert not last["note"]
    said = re.search(
        r"scoring all 135 texts under the trained model: about ([0-9.e-]+) s", caplog.text
    )
    assert said is not None
    assert float(said[1]) > 0


def test_an_evaluation_that_left_texts_out_says_what_the_end_will_take(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = ExposureCallback(MANIFEST, references=1000, budget_seconds=14, preflight="off")
    clock = itertools.count()  # a second passes whenever somebody looks
    callback._budget.clock = lambda: float(next(clock))
    trainer_of(tmp_path, TEXTS, [callback]).train()
    first, last = rows_of(tmp_path)
    assert 0 < first["texts"] < first["texts_planned"] == last["texts"]
    assert re.search(
        r"at the end all 1007 texts are scored, which would take about [0-9.]+ s; "
        r"full_at_end=False keeps the end to the budget",
        caplog.text,
    )


def test_a_class_of_few_canaries_is_logged_with_its_n(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = trainer_of(tmp_path, TEXTS, [ExposureCallback(MANIFEST, **WHOLE)])
    trainer.train()
    (_, last) = (row for row in trainer.state.log_history if "exposure/seconds" in row)
    for name, n in (("x1", 2), ("x8", 2), ("controls", 3)):
        assert last[f"exposure/pin/{name}/n"] == n
    said = [line for line in caplog.messages if "few canaries" in line]
    assert said == [
        "at step 2 exposures of these classes are of few canaries: pin, controls: n = 3 of 3; "
        "pin, 1 repetition: n = 2 of 2; pin, 8 repetitions: n = 2 of 2"
    ]


class Unhurried(TrainerCallback):  # type: ignore[misc]
    """A training that takes long beside a measurement, as real ones do."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        time.sleep(0.1)


def test_the_log_says_what_to_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer_of(tmp_path, TEXTS, [ExposureCallback(MANIFEST, budget_seconds=1e-9)]).train()
    assert re.search(r"not measured: .*; give (at least )?budget_seconds=[0-9.e-]+", caplog.text)
    caplog.clear()
    callbacks = [ExposureCallback(MANIFEST, budget_share=1e-9), Unhurried()]
    trainer_of(tmp_path, TEXTS, callbacks).train()
    assert re.search(r"; give at least budget_share=0\.[0-9]+ or budget_seconds=", caplog.text)


class Slow(TrainerCallback, logging.Handler):  # type: ignore[misc]
    """A logger, of training and of Python, that takes a twentieth of a second for each line."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        time.sleep(0.05)

    def emit(self, record: logging.LogRecord) -> None:
        time.sleep(0.05)


class Timed(ExposureCallback):
    """Each hook with the seconds that it took, and those that its own clock says."""

    def __init__(self, manifest: Manifest, **settings: Any) -> None:
        super().__init__(manifest, **settings)
        self.took: list[tuple[str, float, float]] = []
        for name in vars(ExposureCallback):
            if name.startswith("on_"):
                setattr(self, name, self._timed(name, getattr(self, name)))

    def _timed(self, name: str, hook: Any) -> Any:
        def timed(*arguments: Any, **more: Any) -> None:
            # What was spent before is forgotten when training begins.
            before = 0.0 if name == "on_train_begin" else self.spent_seconds
            began = time.perf_counter()
            hook(*arguments, **more)
            took = time.perf_counter() - began
            self.took.append((name, took, self.spent_seconds - before))

        return timed


@pytest.mark.parametrize("settings", [WHOLE, {"budget_share": 1e-9}])
def test_the_time_of_every_hook_is_on_its_own_clock(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    callback, slow = Timed(MANIFEST, **settings), Slow()
    logger = logging.getLogger("lmexposure")
    logger.addHandler(slow)
    try:
        trainer_of(tmp_path, TEXTS, [callback, slow]).train()
    finally:
        logger.removeHandler(slow)
    hooks = [name for name, _, _ in callback.took]
    assert hooks == ["on_train_begin", "on_evaluate", "on_evaluate", "on_train_end"]
    for name, took, counted in callback.took:
        assert took - 0.02 <= counted <= took, name
    assert callback.spent_seconds == pytest.approx(sum(counted for _, _, counted in callback.took))


class StopAtThree(TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step == 3


@pytest.mark.parametrize("settings", [WHOLE, UNPAID])  # measured when it was evaluated, or not
@pytest.mark.parametrize(("best", "steps"), [(False, [2, 3]), (True, [2])])
def test_a_best_model_that_is_loaded_again_is_no_new_state(
    tmp_path: Path, best: bool, steps: list[int], settings: dict[str, Any]
) -> None:
    trainer_of(
        tmp_path,
        TEXTS,
        [StopAtThree(), ExposureCallback(MANIFEST, **settings)],
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=best,
    ).train()
    rows = rows_of(tmp_path)
    assert [row["step"] for row in rows] == steps
    assert rows[-1]["texts"] == 135
    assert rows[0]["validation_bits_per_token"] > 0


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
    (tmp_path / "exposure.jsonl").mkdir()
    trainer = trainer_of(tmp_path, TEXTS, [ExposureCallback(MANIFEST, **WHOLE)])
    trainer.train()
    assert "exposure/seconds" in str(trainer.state.log_history)
    assert "exposure.jsonl: cannot write" in caplog.text


class TestRefusedBeforeTheFirstStep:
    def refuse(
        self,
        out: Path,
        error: type[Exception],
        match: str,
        manifest: Manifest = MANIFEST,
        **more: Any,
    ) -> None:
        trainer = trainer_of(out, TEXTS, [ExposureCallback(manifest)], **more)
        with pytest.raises(error, match=match):
            trainer.train()
        assert trainer.state.global_step == 0

    def test_no_tokenizer(self, tmp_path: Path) -> None:
        trainer = trainer_of(tmp_path, TEXTS, [ExposureCallback(MANIFEST)])
        trainer.processing_class = None
        with pytest.raises(ModelError, match=r"processing_class=NoneType, which is no tokenizer"):
            trainer.train()

    def test_an_unknown_token(self, tmp_path: Path) -> None:
        _, manifest = hidden(formats=[Format(name="snow", template="☃ {digits:4}")])
        self.refuse(tmp_path, ModelError, "no token for", manifest, tokenizer=characters())

    def test_a_canary_beyond_the_context_window(self, tmp_path: Path) -> None:
        _, manifest = hidden(formats=[Format(name="long", template="so {digits:4} it is" * 9)])
        self.refuse(tmp_path, ModelError, "context window holds 96", manifest)

    def test_two_fills_of_the_same_tokens(self, tmp_path: Path) -> None:
        tokenizer = characters()
        tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
        one = Format(name="case", template="In {choice:a} {digits:3}", lists={"a": ["My", "my"]})
        _, manifest = hidden(formats=[one])
        self.refuse(tmp_path, ModelError, "two different fills", manifest, tokenizer=tokenizer)

    def test_nothing_inserted(self, tmp_path: Path) -> None:
        plan = MANIFEST.plan
        _, manifest = hidden(left_out=plan.ids(plan.formats[0]))
        self.refuse(tmp_path, ManifestError, "no inserted canary", manifest)

    def test_no_references(self, tmp_path: Path) -> None:
        seven = Format(name="seven", template="It is {choice:a}.", lists={"a": list("1234567")})
        _, manifest = hidden(formats=[seven])
        self.refuse(tmp_path, ManifestError, "no secret left to compare with", manifest)

    def test_weights_spread_over_processes(self, tmp_path: Path) -> None:
        trainer = trainer_of(tmp_path, TEXTS, [ExposureCallback(MANIFEST)])
        next(trainer.model.parameters()).ds_id = 0
        with pytest.raises(ModelError, match="weights are spread over processes"):
            trainer.train()

    def test_no_trainer(self) -> None:
        callback = ExposureCallback(MANIFEST)
        with pytest.raises(SettingsError, match=r"called by no transformers\.Trainer"):
            callback.on_train_begin(None, None, None)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"budget_share": 1.0}, "budget_share=1.0 must lie strictly between 0 and 1"),
        ({"budget_seconds": 0}, "budget_seconds=0 must be a finite number above 0"),
        ({"references": 63}, "references=63 must be a whole number at least 64"),
        ({"stop_above": -1}, "stop_above=-1 must be a finite number above 0"),
        ({"stop_above": 10, "references": 1024}, "stop_above=10 can never be passed"),
        (
            {"wrapping": "chat"},
            r"wrapping is of type str; give Wrapping\(\.\.\.\), or leave it out",
        ),
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
