"""Training: it learns, keeps the best, resumes to the byte, and refuses what would mislead."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hashes import sha256_tree
from models.small_training import CANARIES, SETTINGS, small_documents, small_lstm, stops_at

from lmexposure._files import atomic_directory
from lmexposure._integrity import write_hashed, write_sealed
from lmexposure._written import LIST, study
from lmexposure.errors import (
    CorpusError,
    FileError,
    ModelError,
    NumericalError,
    ResultError,
    SettingsError,
)
from lmexposure.models import (
    LoadedModel,
    Progress,
    TrainingSettings,
    damaged_model,
    load_model,
    new_model,
    train,
    weights_sha256,
)
from lmexposure.studies import TrainingResult

Train = Callable[..., TrainingResult]
Whole = tuple[Path, TrainingResult, list[Progress]]
QUICK: dict[str, Any] = {"epochs": 1, "snapshot_epochs": ()}


@pytest.fixture
def run(tmp_path: Path) -> Train:
    """Train the small LSTM, with changes to settings by name or to arguments of `train`."""

    def go(model: LoadedModel | None = None, **changes: Any) -> TrainingResult:
        fields = {f.name for f in dataclasses.fields(TrainingSettings)}
        settings = {name: value for name, value in changes.items() if name in fields}
        arguments: dict[str, Any] = {
            "documents": small_documents(),
            "separator": "\n",
            "canaries": CANARIES,
            "out": tmp_path / "out",
        }
        arguments |= {name: value for name, value in changes.items() if name not in fields}
        chosen = dataclasses.replace(SETTINGS, **settings)
        return train(model or small_lstm(), settings=chosen, **arguments)

    return go


def _rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_training_learns_and_keeps_the_lowest_validation_loss(whole_training: Whole) -> None:
    out, result, told = whole_training
    assert [p.step for p in told] == list(range(1, result.steps + 1))
    assert told[-1].total_steps == result.steps
    rows = _rows(out)
    losses = [row["validation_bits_per_token"] for row in rows]
    assert result.validation_bits == min(losses[1:]) < 0.8 * losses[0]
    assert result.initial_validation_bits == losses[0]
    assert result.improved
    assert rows[losses.index(min(losses))]["step"] == result.best_step
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3, 4]
    assert (result.stopped, result.processes) == ("epochs", 1)
    left = sorted(p.relative_to(out).as_posix() for p in out.glob("*"))
    assert left == [LIST, "metrics.jsonl", "model", "snapshots", "training.json"]
    assert sorted(os.listdir(out / "snapshots")) == ["epoch-1", "epoch-3"]


def test_the_kept_model_is_the_one_that_was_best(run: Train, tmp_path: Path) -> None:
    """Steps too long make the loss rise again: the model of the first epoch is kept."""
    result = run(learning_rate=0.5, epochs=3, snapshot_epochs=(1, 2, 3), seed=2)
    losses = [row["validation_bits_per_token"] for row in _rows(tmp_path / "out")][1:]
    best = losses.index(min(losses)) + 1
    assert result.best_epoch == best
    kept = load_model(result.model_path)
    assert weights_sha256(kept.model) == weights_sha256(
        load_model(tmp_path / "out" / "snapshots" / f"epoch-{best}").model
    )


def test_a_finished_training_is_neither_done_again_nor_replaced(
    run: Train, whole_training: Whole
) -> None:
    out, first, _ = whole_training
    again = run(out=out, progress=lambda _: pytest.fail("trained again"))
    assert again == first.model_copy(update={"reused": True})
    for other in ({"seed": 1}, {"documents": [f"other {i}" for i in range(20)], "canaries": {}}):
        with pytest.raises(ResultError, match="holds a finished training with other settings, da"):
            run(out=out, **other)


def test_interrupted_at_any_step_it_ends_with_the_same_bytes(
    run: Train, tmp_path: Path, whole_training: Whole
) -> None:
    out, whole, _ = whole_training
    for step in (1, whole.steps // 3, whole.steps // 2, whole.steps):
        with pytest.raises(KeyboardInterrupt):
            run(progress=stops_at(step))
        assert not (tmp_path / "out" / "model").exists()
    resumed = run()
    assert sha256_tree(resumed.model_path) == sha256_tree(whole.model_path)
    assert resumed.validation_bits == whole.validation_bits
    strip = [{**row, "seconds": None} for row in _rows(tmp_path / "out")]
    assert strip == [{**row, "seconds": None} for row in _rows(out)]


def test_a_resumed_training_keeps_the_threads_it_began_with(run: Train, tmp_path: Path) -> None:
    """The last bits depend on them, and another machine has others."""
    with pytest.raises(KeyboardInterrupt):
        run(threads=1, progress=stops_at(2), **QUICK)
    before, seen = torch.get_num_threads(), set()
    resumed = run(threads=2, progress=lambda _: seen.add(torch.get_num_threads()), **QUICK)
    assert (seen, resumed.threads, torch.get_num_threads()) == ({1}, 1, before)
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    assert (record["settings"]["threads"], record["result"]["threads"]) == (2, 1)


def test_interrupted_after_the_last_step_it_only_finishes(
    run: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("lmexposure.models.training.write_hashed", _full_disk)
        with pytest.raises(FileError, match="no space"):
            run()
    assert (tmp_path / "out" / "model").exists()
    resumed = run(progress=lambda _: pytest.fail("trained again"))
    assert not resumed.reused
    assert resumed.stopped == "epochs"


def _full_disk(*_: object, **__: object) -> None:
    raise FileError("no space")


def test_evaluations_may_come_more_often_than_epochs(run: Train, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    result = run(evaluate_every=5, epochs=2, snapshot_epochs=(), separator=None)
    assert torch.equal(torch.get_rng_state(), before)
    steps = [row["step"] for row in _rows(tmp_path / "out")]
    assert steps == [*range(0, result.steps, 5), result.steps]


def test_patience_and_time_stop_training(run: Train, tmp_path: Path) -> None:
    result = run(epochs=40, patience=1, learning_rate=0.3, snapshot_epochs=())
    assert result.stopped == "patience"
    assert result.epochs == result.best_epoch + 1 < 40
    hurried = run(max_seconds=1e-6, out=tmp_path / "hurried")
    assert (hurried.stopped, hurried.steps) == ("max_seconds", 1)
    assert load_model(hurried.model_path)
    assert len(_rows(tmp_path / "hurried")) == 2


def test_accumulation_changes_only_rounding(run: Train, tmp_path: Path) -> None:
    # Without dropout: its masks depend on how blocks are grouped.
    at_once, in_parts = (
        run(small_lstm(dropout=0.0), out=tmp_path / str(n), accumulation=n, **QUICK) for n in (1, 3)
    )
    assert in_parts.validation_bits == pytest.approx(at_once.validation_bits, abs=1e-4)
    assert in_parts.tokens == at_once.tokens


def test_bf16_trains_and_keeps_float32_weights(
    run: Train, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    result = run(precision="bf16", **QUICK)
    assert "no instructions for bfloat16" in caplog.text
    assert result.improved
    assert load_model(result.model_path).to_dict()["dtype"] == "float32"


WITHOUT_AVX512 = """
import torch
from lmexposure.models.lstm import LstmConfig, LstmForCausalLM
ids = torch.randint(0, 9, (2, 5))
mask = torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])
model = LstmForCausalLM(LstmConfig(vocab_size=9, hidden_size=8, embedding_size=8))
for padded in ({}, {"attention_mask": mask, "use_cache": True}):
    single = model(ids, **padded).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(ids, labels=ids, **padded)
    half.loss.backward()
    assert torch.allclose(single, half.logits.float(), atol=0.02)
assert model.to(torch.bfloat16)(ids).logits.dtype == torch.bfloat16
assert torch.backends.mkldnn.enabled
"""


@pytest.mark.slow
def test_an_lstm_in_bf16_runs_on_a_cpu_without_avx512() -> None:
    """There oneDNN is handed the LSTM under autocast, and has no kernel for it."""
    older = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    subprocess.run([sys.executable, "-c", WITHOUT_AVX512], env=older, check=True, timeout=100)


def test_gpt2_is_trained_and_then_fine_tuned(run: Train, tmp_path: Path) -> None:
    tiny = new_model("gpt2-tiny", small_documents(), seed=1, separator="\n")
    with pytest.raises(SettingsError, match="block_size=257 must be at most 256, the context win"):
        run(tiny, block_size=257)
    first = run(tiny, out=tmp_path / "new", learning_rate=1e-3, **QUICK)
    loaded = load_model(first.model_path)
    second = run(loaded, out=tmp_path / "tuned", learning_rate=1e-4, **QUICK)
    assert second.initial_validation_bits == pytest.approx(first.validation_bits, abs=1e-5)
    assert second.improved


def test_a_model_that_was_damaged_or_is_gone_is_trained_again(
    run: Train, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = run(**QUICK).model_path
    whole = sha256_tree(model)
    with (model / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, 2)
        weights.write(b"\x7f")
    assert damaged_model(model) == model / "model.safetensors"
    assert not run(**QUICK).reused
    assert "model/model.safetensors is damaged" in caplog.text
    assert sha256_tree(model) == whole
    model.rename(tmp_path / "elsewhere")
    assert damaged_model(model) == model
    run(**QUICK)
    assert sha256_tree(model) == whole
    (model / "README.md").write_text("what somebody added is no damage")
    assert run(**QUICK).reused


def test_a_damaged_record_is_written_again_and_no_other_model_is_lost(
    run: Train, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    run(**QUICK)
    path, whole = out / "training.json", (out / "training.json").read_bytes()
    for damaged in (b"{}", b"[" * 5000, whole[:99], whole.replace(b'"stopped"', b'"stoppee"')):
        path.write_bytes(damaged)
        assert not run(**QUICK).reused
        assert "training.json is damaged" in caplog.text
        assert not list(out.glob("damaged-*"))  # it was this very training's
        assert run(**QUICK).reused
    before = sha256_tree(out / "model")
    path.write_bytes(whole[:99])
    run(**QUICK, seed=8)
    assert sha256_tree(out / "damaged-1" / "model") == before
    assert (out / "damaged-1" / "training.json").read_bytes() == whole[:99]
    assert run(**QUICK, seed=8).reused


@pytest.mark.timeout(60)
@pytest.mark.parametrize("listed", [True, False])
def test_a_damaged_record_makes_its_model_no_foreign_one(
    run: Train, tmp_path: Path, listed: bool
) -> None:
    model = run(**QUICK).model_path
    path, whole = tmp_path / "out" / "training.json", (tmp_path / "out" / LIST).read_bytes()
    content = path.read_bytes()
    (tmp_path / "out" / LIST).write_bytes(whole if listed else b"")
    for damaged in (b"", content[:99], content.replace(b'"stopped"', b'"stoppee"')):
        path.write_bytes(damaged)
        assert damaged_model(model) == path
    for made in (os.mkfifo, os.mkdir):
        path.unlink()
        made(path)
        assert (damaged_model(model) == path) is (listed or made is os.mkfifo)
    path.rmdir()
    path.write_text('{"of": "another tool"}')
    assert (damaged_model(model) == path) is listed


def test_a_record_of_another_version_is_refused_and_stays(run: Train, tmp_path: Path) -> None:
    run(**QUICK)
    path = tmp_path / "out" / "training.json"
    values = json.loads(path.read_text())
    del values["content_sha256"]
    write_hashed(path, values | {"schema": "lmexposure.training/2"})
    before = path.read_bytes()
    with pytest.raises(
        ResultError, match=r"reads 'lmexposure\.training/1' alone; use .*train again"
    ):
        run(**QUICK)
    assert path.read_bytes() == before


def test_what_a_kill_at_the_very_end_left_is_cleared(run: Train, tmp_path: Path) -> None:
    run(**QUICK)
    whole = sorted(os.listdir(tmp_path / "out"))
    with study(tmp_path / "out"):
        write_sealed(tmp_path / "out" / "checkpoint.pt", b"")
        with atomic_directory(tmp_path / "out" / "best-7") as best:
            (best / "weights").write_text("")
    assert run(**QUICK).reused
    assert sorted(os.listdir(tmp_path / "out")) == whole


def test_a_directory_in_the_place_of_the_checkpoint_is_refused(run: Train, tmp_path: Path) -> None:
    (tmp_path / "out" / "checkpoint.pt").mkdir(parents=True)
    with pytest.raises(FileError, match=r"checkpoint\.pt is there already, and lmexposure did not"):
        run(**QUICK)


def test_a_model_of_another_origin_is_not_overwritten(run: Train, tmp_path: Path) -> None:
    model = tmp_path / "out" / "model"
    model.mkdir(parents=True)
    with pytest.raises(ResultError, match="holds a model of another origin; choose another"):
        run()
    (model / "config.json").write_text("{}")
    with pytest.raises(FileError, match="model is there already, and lmexposure did not write it"):
        run()
    assert os.listdir(tmp_path / "out") == ["model"]
    assert os.listdir(model) == ["config.json"]


def test_a_gradient_that_is_not_finite_stops_and_keeps_the_checkpoint(
    run: Train, tmp_path: Path
) -> None:
    loaded = small_lstm()

    def spoil(progress: Progress) -> None:
        if progress.step == 4:
            torch.nn.init.constant_(loaded.model.lm_head.bias, math.nan)

    with pytest.raises(NumericalError, match=r"gradient of step 5 has norm nan .* lower learning"):
        run(loaded, progress=spoil, checkpoint_seconds=1e9, evaluate_every=3)
    left = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert left == [LIST, "best-3", "checkpoint.pt", "metrics.jsonl"]
    assert load_model(tmp_path / "out" / "best-3")


def widened(loaded: LoadedModel) -> None:
    loaded.tokenizer.add_tokens(["extra"])


def halved(loaded: LoadedModel) -> None:
    loaded.model.to(torch.bfloat16)


def out_of_range(loaded: LoadedModel) -> None:
    torch.nn.init.constant_(loaded.model.lm_head.bias, math.inf)


@pytest.mark.parametrize(
    ("spoil", "changes", "error", "message"),
    [
        (widened, {}, ModelError, r"tokenizer of 'lstm' has \d+ tokens, but the model only"),
        (halved, {}, ModelError, r"weights in torch\.bfloat16; load it with dtype='float32"),
        (out_of_range, {}, NumericalError, "validation loss after step 0 is nan; train"),
        (None, {"learning_rate": 1e38}, NumericalError, r"update of step 1 overflows \(learning"),
        (
            None,
            {"canaries": {"the code is 4711": 2}},
            ModelError,
            "1 of 1 canaries would not reach the model as planned",
        ),
        (
            None,
            {"documents": ["the line"] * 5, "canaries": {}},
            CorpusError,
            "too few to hold some out for validation",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(
    run: Train,
    spoil: Callable[[LoadedModel], None] | None,
    changes: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    loaded = small_lstm()
    if spoil is not None:
        spoil(loaded)
    with pytest.raises(error, match=message):
        run(loaded, **changes)


def test_what_accelerate_sees_otherwise_is_an_error(
    run: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(**QUICK)  # accelerate has looked at the environment by now
    with monkeypatch.context() as patch:
        patch.setenv("WORLD_SIZE", "2")
        said = "2 processes were launched, but accelerate runs 1; on the"
        with pytest.raises(ModelError, match=said):
            run(seed=9, out=Path("unused"))


def test_a_precision_that_is_not_ours_is_an_error(
    run: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL's Trainer chooses bf16 by itself, and accelerate keeps it for all of the process."""
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    with pytest.raises(ModelError, match=r"accelerate computes in bf16 .*; train in a new process"):
        run()


def test_an_unwritable_directory_is_an_error(run: Train, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"cannot write .*metrics\.jsonl"):
        run(out=tmp_path / "file" / "out")
