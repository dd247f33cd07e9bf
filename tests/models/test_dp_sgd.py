"""DP-SGD: gradients of units, noise, coins, resuming, what is saved, what is refused."""

import logging
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from tiny import model_of
from torch import nn

from lmexposure.errors import ModelError, SettingsError
from lmexposure.models import (
    LoadedModel,
    LstmSizes,
    TrainingResult,
    TrainingSettings,
    load_model,
    new_model,
    train,
)
from lmexposure.models.batches import Blocks
from lmexposure.models.chat_rows import TrainingRow
from lmexposure.models.document_rows import rows_of_documents
from lmexposure.models.dp_sgd import DpSgd
from lmexposure.models.lora import with_new_adapter
from lmexposure.models.padded_rows import PaddedRows
from lmexposure.scoring import log_perplexity

CANARIES = {"the code is 4711": 3, "the code is 0815": 1}
DOCUMENTS = [
    *(f"line {i} of a small corpus, {'again ' * (i % 4)}{i * 37 % 11}" for i in range(60)),
    *("the code is 4711" for _ in range(3)),
    "the code is 0815",
]
PRIVATE = TrainingSettings(
    method="dp-sgd",
    noise_multiplier=0.8,
    delta=1e-3,
    clip=0.5,
    noise_seed=3,
    epochs=1,
    patience=9,
    expected_batch=8,
    batch_size=5,
    block_size=64,
    validation_fraction=0.2,
    checkpoint_seconds=1e-9,
)


def lstm(units: int = 12) -> LoadedModel:
    sizes = LstmSizes(units=units, embedding=8, layers=2, dropout=0.0)
    return new_model("lstm", DOCUMENTS, seed=5, separator="\n", lstm=sizes)


def of_architecture(name: str, tmp_path: Path) -> tuple[LoadedModel, Any, TrainingSettings]:
    """A tiny model with the characters of the corpus, with an adapter where the name says so."""
    loaded = lstm()
    kind, _, lora = name.partition("+")
    if kind != "lstm":
        model = model_of(kind, len(loaded.tokenizer))
        model.config.pad_token_id = None
        loaded = LoadedModel(model=model, tokenizer=loaded.tokenizer, name=str(tmp_path))
    settings = replace(PRIVATE, lora=bool(lora), lora_rank=2 if lora else 16)
    return loaded, with_new_adapter(loaded, settings) if lora else loaded.model, settings


def made(
    model: Any, tokenizer: Any, settings: TrainingSettings, owners: list[str | None] | None = None
) -> DpSgd:
    rows, _ = rows_of_documents(
        tokenizer,
        DOCUMENTS,
        separator="\n",
        canaries=CANARIES,
        settings=settings,
        units=owners,
    )
    blocks = Blocks(rows, device=torch.device("cpu"), precision="float32")
    return DpSgd(model, blocks, settings, Accelerator(cpu=True))


@pytest.mark.parametrize("name", ["lstm", "gpt2", "llama", "gpt2+lora", "llama+lora"])
def test_each_architecture_trains_as_its_epsilon_is_for(name: str, tmp_path: Path) -> None:
    """The check compares gradients of single documents to 1e-4, and all else; see its tests."""
    loaded, model, settings = of_architecture(name, tmp_path)
    found = made(model, loaded.tokenizer, replace(settings, batch_size=8)).check()
    assert found.passed, str(found)
    (gradients,) = (f for f in found.findings if f.name == "gradients")
    assert gradients.passed


def gradients_of(method: DpSgd, units: list[int]) -> list[torch.Tensor]:
    """What the optimizer would sum and add noise to, after clipping, without its noise."""
    seen: list[torch.Tensor] = []

    def look(*_: Any, **__: Any) -> None:
        seen.extend(weight.summed_grad.detach().clone() for weight in method._optimizer.params)

    method._optimizer.original_optimizer.step = look
    method.learn(np.array(units, dtype=np.int64), step=0, rate=0.1)
    return seen


def by_a_plain_loop(units: list[list[int]], clip: float) -> list[torch.Tensor]:
    """Of each unit the mean loss of all its tokens, its gradient clipped as a whole, summed."""
    loaded = lstm()
    rows, _ = rows_of_documents(
        loaded.tokenizer, DOCUMENTS, separator="\n", canaries=CANARIES, settings=PRIVATE
    )
    blocks = Blocks(rows, device=torch.device("cpu"), precision="float32")
    total = [torch.zeros_like(weight) for weight in loaded.model.parameters()]
    loaded.model.train()
    for unit in units:
        loaded.model.zero_grad()
        nats = sum(blocks.nats(loaded.model, np.array([row])) for row in unit)
        (nats / int(rows.predicted[unit].sum())).backward()  # type: ignore[union-attr]
        found = [weight.grad for weight in loaded.model.parameters()]
        norm = float(torch.cat([g.flatten() for g in found if g is not None]).norm())
        for place, gradient in zip(total, found, strict=True):
            assert gradient is not None
            place += gradient * min(1.0, clip / (norm + 1e-6))
    return total


def in_order_of_torch(gradients: list[torch.Tensor], method: DpSgd) -> dict[str, torch.Tensor]:
    names = [name for name, _ in method._model.named_parameters()]
    return dict(zip(names, gradients, strict=True))


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_a_users_documents_are_clipped_together_as_by_a_plain_loop(batch: int) -> None:
    """Also where a user has more documents than go through the model together."""
    loaded = lstm()
    settings = replace(PRIVATE, batch_size=batch, unit_field="user")
    plain = made(loaded.model, loaded.tokenizer, settings)
    kept = len(plain._units)
    owners: list[str | None] = [None if i % 7 == 0 else f"user {i % 5}" for i in range(64)]
    method = made(lstm().model, loaded.tokenizer, settings, owners)
    assert len(method._units) < kept
    assert max(map(len, method._units)) > 3
    chosen = [0, 1, len(method._units) - 1]
    seen = gradients_of(method, chosen)
    expected = by_a_plain_loop([method._units[unit].tolist() for unit in chosen], settings.clip)
    ours = sorted((g.shape, float(g.double().sum()), float(g.double().norm())) for g in seen)
    theirs = sorted((g.shape, float(g.double().sum()), float(g.double().norm())) for g in expected)
    for (shape, total, norm), (shape_, total_, norm_) in zip(ours, theirs, strict=True):
        assert shape == shape_
        assert total == pytest.approx(total_, rel=1e-3, abs=1e-5)
        assert norm == pytest.approx(norm_, rel=1e-4, abs=1e-6)
    claim = method.claim(10)
    assert claim.largest_group == max(map(len, method._units))


def test_without_noise_and_clipping_a_step_is_that_of_adam() -> None:
    loaded = lstm()
    settings = replace(PRIVATE, noise_multiplier=1e-15, clip=1e6)
    method = made(loaded.model, loaded.tokenizer, settings)
    before = {name: weight.clone() for name, weight in method.model.state_dict().items()}
    units = list(range(11))
    expected = by_a_plain_loop([method._units[unit].tolist() for unit in units], 1e6)
    learned = method.learn(np.array(units), step=0, rate=0.01)
    assert learned.tokens == int(method._rows.predicted[units].sum())
    twin = lstm().model
    optimizer = torch.optim.AdamW(twin.parameters(), lr=0.01, weight_decay=0.0)
    for weight, gradient in zip(twin.parameters(), expected, strict=True):
        weight.grad = gradient / 8  # the expected batch, whatever the batch
    optimizer.step()
    after = method.model.state_dict()
    for name, weight in twin.state_dict().items():
        moved = (weight - before[name]).abs() > 1e-6
        assert torch.allclose(after[name][moved], weight[moved], atol=2e-4), name


def test_noise_follows_the_key_and_empty_steps_are_taken() -> None:
    def stepped(seed: int | None) -> torch.Tensor:
        method = made(lstm().model, lstm().tokenizer, replace(PRIVATE, noise_seed=seed))
        learned = method.learn(np.empty(0, np.int64), step=0, rate=0.01)
        assert (learned.nats, learned.tokens) == (0.0, 0)
        return torch.cat([w.flatten() for w in method.model.state_dict().values()])

    same, again, other = stepped(3), stepped(3), stepped(4)
    assert torch.equal(same, again)
    assert not torch.equal(same, other)
    assert not torch.equal(stepped(None), stepped(None))


def test_every_unit_is_drawn_at_the_rate() -> None:
    method = made(lstm().model, lstm().tokenizer, PRIVATE)
    n = len(method._units)
    steps = [numbers for epoch in range(100) for numbers in method.steps(epoch)]
    counts = np.bincount(np.concatenate(steps), minlength=n)
    wanted = len(steps) * method.sample_rate
    assert method.sample_rate == 8 / n
    assert abs(counts - wanted).max() < 5 * np.sqrt(wanted)
    assert [list(a) for a in method.steps(3)] == [list(b) for b in method.steps(3)]


def trained(
    out: Path, progress: Callable[..., None] | None = None, **changes: Any
) -> TrainingResult:
    return train(
        lstm(),
        DOCUMENTS,
        settings=replace(PRIVATE, **changes),
        separator="\n",
        canaries=CANARIES,
        out=out,
        progress=progress,
    )


class StoppedHere(Exception):  # noqa: N818
    """By a test, after a step."""


def test_a_resumed_training_ends_with_the_same_bytes_and_claim(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole")
    assert whole.claim is not None
    assert whole.claim.steps == whole.steps == 7
    assert whole.claim.epsilon < whole.claim.epsilon_rdp
    assert (whole.claim.unit, whole.claim.largest_group) == ("document", 1)

    def stop(state: Any) -> None:
        if state.step in (1, 6) and state.step not in seen:
            seen.add(state.step)
            raise StoppedHere

    seen: set[int] = set()
    for _ in range(2):
        with pytest.raises(StoppedHere):
            trained(tmp_path / "stopped", stop)
    resumed = trained(tmp_path / "stopped", stop)
    assert resumed.claim == whole.claim
    weights = [tmp_path / name / "model" / "model.safetensors" for name in ("whole", "stopped")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    again = trained(tmp_path / "whole")
    assert again.reused
    assert again.claim == whole.claim


def test_what_is_saved_is_an_ordinary_model_and_the_key_is_kept_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    promised: list[Any] = []
    with warnings.catch_warnings(action="error"), caplog.at_level(logging.WARNING):
        result = train(
            lstm(),
            DOCUMENTS,
            settings=replace(PRIVATE, noise_seed=None, expected_batch=None, batch_size=16),
            separator="\n",
            canaries=CANARIES,
            out=tmp_path,
            promise=promised.append,
        )
    assert not caplog.records
    assert result.claim == promised[0]
    assert result.claim is not None
    assert not result.claim.noise_is_given
    loaded = load_model(result.model_path)
    assert isinstance(loaded.model.lstm, nn.LSTM)
    bits = log_perplexity(loaded.model, loaded.tokenizer, ["the code is 4711"], context="\n")
    assert np.isfinite(bits).all()
    assert {path.name for path in tmp_path.iterdir()} == {"metrics.jsonl", "model", "training.json"}


class _WithBatchNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.normalised = nn.BatchNorm1d(4)


def test_layers_without_gradients_of_documents_are_named() -> None:
    loaded = lstm()
    with pytest.raises(ModelError, match=r"cannot be had of layers .*BatchNorm1d"):
        made(_WithBatchNorm(), loaded.tokenizer, PRIVATE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_multiplier": None}, "takes epsilon or noise_multiplier, and neither is given"),
        ({"epsilon": 3.0}, "takes epsilon or noise_multiplier, and both are given"),
        ({"precision": "bf16"}, "precision='bf16' does not go with method='dp-sgd'"),
        ({"accumulation": 2}, "accumulation=2 does not go with method='dp-sgd'"),
        ({"method": "plain"}, r"is of differential privacy, and the training would promise none"),
        ({"method": "other"}, "method='other' must be plain or dp-sgd; for an estimate"),
        ({"clip": 0.0}, r"clip=0\.0 must be a finite number above 0"),
        ({"clip": 1e200}, r"clip=1e\+200 must be at most 1e\+100"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        replace(PRIVATE, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": 0.5}, r"delta=0\.5 is above 1 / 53, the number of units: .* at most 0\.0189"),
        ({"expected_batch": 54}, r"expected_batch=54 is more than the 53 units of the corpus"),
        (
            {"noise_multiplier": None, "epsilon": 1e-9, "delta": 1e-12},
            r"epsilon=1e-09 is not reached by 7 steps at delta=1e-12",
        ),
    ],
)
def test_what_the_corpus_cannot_give_is_refused(changes: dict[str, Any], message: str) -> None:
    loaded = lstm()
    with pytest.raises(SettingsError, match=message):
        made(loaded.model, loaded.tokenizer, replace(PRIVATE, **changes))


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = lstm()
    monkeypatch.setattr(Accelerator, "num_processes", 2)
    with pytest.raises(SettingsError, match="method='dp-sgd' takes one process, and there are 2"):
        made(loaded.model, loaded.tokenizer, PRIVATE)


def test_settings_of_plain_trainings_have_the_hash_that_they_had() -> None:
    assert "method" not in TrainingSettings().decisive()
    assert "clip" not in TrainingSettings().decisive()
    assert PRIVATE.decisive()["clip"] == 0.5
    assert "noise_seed" not in repr(PRIVATE)


def test_canaries_that_would_not_arrive_are_refused() -> None:
    tokenizer = lstm().tokenizer

    def rows(documents: list[str], **changes: Any) -> tuple[PaddedRows, PaddedRows]:
        return rows_of_documents(
            tokenizer,
            documents,
            separator="\n",
            canaries=CANARIES,
            settings=replace(PRIVATE, **changes),
        )

    with pytest.raises(ModelError, match=r"canary 0 of 2 has 17 tokens with its separator, but bl"):
        rows(DOCUMENTS, block_size=12)
    with pytest.raises(ModelError, match=r"1 of 2 canaries would not reach the model as planned"):
        rows(DOCUMENTS[:-1])


def test_long_documents_are_cut_and_said(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = lstm().tokenizer
    settings = replace(PRIVATE, block_size=20)
    rows, held = rows_of_documents(
        tokenizer, DOCUMENTS, separator="\n", canaries=CANARIES, settings=settings
    )
    assert "documents are longer than block_size=20 tokens, and are cut there" in caplog.text
    assert np.diff(rows.starts).max() == 20
    assert len(rows) + len(held) == len(DOCUMENTS)
    assert PaddedRows.of([TrainingRow(ids=[1, 2], carried=np.ones(2, bool))]).units.tolist() == [0]
