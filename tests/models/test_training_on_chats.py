"""Training on chats, whole and by adapters: what is learned, kept, resumed and refused."""

import dataclasses
import json
import logging
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hashes import sha256_tree
from models.small_chats import CANARIES, SETTINGS, WRAPPING, chats, save_base, train_on_chats
from models.small_training import stops_at
from tokenizers.normalizers import Lowercase
from torch.nn.functional import cross_entropy

from lmexposure.errors import CorpusError, ModelError, ResultError, SettingsError
from lmexposure.models import (
    IGNORED,
    LstmSizes,
    byte_level_tokenizer,
    check_lora,
    load_model,
    new_model,
    training_rows,
    weights_sha256,
)
from lmexposure.models.packing import Blocks
from lmexposure.models.padded_rows import PaddedRows, rows_of_records


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def tokenizer(base: Path) -> Any:
    return load_model(base).tokenizer


def padded(tokenizer: Any, **changes: Any) -> tuple[PaddedRows, PaddedRows]:
    arguments: dict[str, Any] = {
        "wrapping": WRAPPING,
        "canaries": CANARIES,
        "settings": SETTINGS,
    } | changes
    return rows_of_records(tokenizer, arguments.pop("records", chats()), **arguments)


def map_records(texts: Any) -> list[dict[str, Any]]:
    return [WRAPPING.record(text) for text in texts]


def test_the_loss_of_a_batch_is_that_of_its_rows_one_by_one(base: Path, tokenizer: Any) -> None:
    model = load_model(base).model
    rows = list(training_rows(tokenizer, chats(), WRAPPING))[:6]
    blocks = Blocks(PaddedRows.of(rows), device=torch.device("cpu"), precision="float32")
    numbers = np.arange(6)
    expected = 0.0
    for row in rows:
        logits = model(input_ids=torch.tensor([row.ids])).logits[0, :-1].detach()
        labels = torch.tensor(row.ids[1:])
        labels[~torch.from_numpy(row.carried[1:])] = IGNORED
        expected += float(cross_entropy(logits, labels, reduction="sum"))
    with torch.no_grad():
        assert float(blocks.nats(model, numbers)) == pytest.approx(expected, rel=1e-5)
    assert blocks.tokens(numbers) == sum(int(row.carried[1:].sum()) for row in rows)


def test_no_canary_is_held_out_and_each_is_there_as_planned(tokenizer: Any) -> None:
    training, validation = padded(tokenizer)
    canaries = [tuple(row.ids) for row in training_rows(tokenizer, map_records(CANARIES), WRAPPING)]

    def counts(rows: PaddedRows) -> list[int]:
        found = Counter(
            tuple(rows.ids[a:b].tolist())
            for a, b in zip(rows.starts, rows.starts[1:], strict=False)
        )
        return [found[canary] for canary in canaries]

    assert counts(training) == list(CANARIES.values())
    assert counts(validation) == [0, 0]
    assert len(training) + len(validation) == len(chats())


def test_long_records_are_cut_at_their_end_and_counted(
    tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    long = {"messages": [{"role": "user", "content": "Why? " * 40}, *chats()[0]["messages"][1:]]}
    wordy = {
        "messages": [*chats()[0]["messages"][:1], {"role": "assistant", "content": "So. " * 40}]
    }
    with caplog.at_level(logging.WARNING):
        rows = padded(tokenizer, records=[long, *chats(), wordy])
    assert "2 of" in caplog.text
    assert "records are longer than block_size=64 tokens, and are cut there" in caplog.text
    # Of the first nothing with loss is left.
    assert "records carry no loss, and are left out" in caplog.text
    assert max(np.diff(part.starts).max() for part in rows) == 64
    assert sum(map(len, rows)) == len(chats()) + 1


@pytest.fixture(scope="module")
def learned(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """Where adapters were trained, the model in memory, and the result."""
    out, loaded = tmp_path_factory.mktemp("learned") / "out", load_model(base)
    return out, loaded, train_on_chats(loaded, out)


def test_adapters_learn_and_leave_the_base_as_it_was(base: Path, learned: Any) -> None:
    _, loaded, result = learned
    assert result.improved
    assert {name for name, w in loaded.model.named_parameters() if w.requires_grad} == {
        name for name, _ in loaded.model.named_parameters() if "lora_" in name
    }
    fresh = {name: weight.clone() for name, weight in load_model(base).model.named_parameters()}
    for name, weight in loaded.model.named_parameters():
        assert "lora_" in name or torch.equal(weight, fresh[name.replace("base_layer.", "")])
    files = {path.name for path in result.model_path.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "chat_template.jinja"} <= files
    assert "README.md" not in files
    config = json.loads((result.model_path / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (16, 32)
    assert config["base_model_name_or_path"] == str(base.resolve())
    assert config["target_modules"] == sorted(config["target_modules"])
    saved = load_model(result.model_path)
    assert saved.tokenizer.chat_template == loaded.tokenizer.chat_template
    assert weights_sha256(saved.model) != weights_sha256(load_model(base).model)
    with pytest.raises(ModelError, match="is itself an adapter, and an adapter on it could not be"):
        check_lora(str(result.model_path))


def test_interrupted_it_ends_with_the_same_bytes(base: Path, tmp_path: Path, learned: Any) -> None:
    out, _, whole = learned
    before = sha256_tree(base)
    with pytest.raises(KeyboardInterrupt):
        train_on_chats(base, tmp_path, progress=stops_at(13))
    held = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["model"]
    assert held
    assert all("lora_" in name for name in held)
    again = train_on_chats(base, tmp_path)
    assert sha256_tree(base) == before
    assert sha256_tree(again.model_path) == sha256_tree(whole.model_path)
    assert (again.validation_bits, again.steps) == (whole.validation_bits, whole.steps)
    assert train_on_chats(base, out).reused
    for other in (
        {"settings": dataclasses.replace(SETTINGS, lora_rank=4)},
        {"wrapping": dataclasses.replace(WRAPPING, loss="all")},
    ):
        with pytest.raises(ResultError, match="holds a finished training with other settings"):
            train_on_chats(base, out, **other)


def test_targets_are_the_layers_that_were_named(base: Path, tmp_path: Path) -> None:
    few = dataclasses.replace(SETTINGS, epochs=1, lora_targets=("q_proj", "v_proj"), lora_alpha=8)
    result = train_on_chats(base, tmp_path / "out", settings=few)
    config = json.loads((result.model_path / "adapter_config.json").read_text())
    assert (config["target_modules"], config["lora_alpha"]) == (["q_proj", "v_proj"], 8)
    wrong = dataclasses.replace(few, lora_targets=("attention",))
    with pytest.raises(ModelError, match=r"no adapter can be put into attention of .*k_proj") as e:
        train_on_chats(base, tmp_path / "wrong", settings=wrong)
    assert "lora_targets=[...]" in str(e.value)


def test_adapters_of_an_architecture_without_linear_modules(tmp_path: Path) -> None:
    """GPT-2 keeps its weights in Conv1D."""
    base = save_base(tmp_path / "gpt2", "gpt2")
    few = dataclasses.replace(SETTINGS, epochs=1)
    assert load_model(train_on_chats(base, tmp_path / "out", settings=few).model_path)


def test_no_adapter_for_a_new_model(tmp_path: Path) -> None:
    new = new_model("lstm", ["abc"], seed=1, separator=None, lstm=LstmSizes(units=4, embedding=4))
    with pytest.raises(
        SettingsError, match=r"lora=True is for a pretrained model.*'lstm' is a new"
    ):
        train_on_chats(new, tmp_path / "new")


def test_without_peft_it_is_asked_for(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModelError, match=r"lora=True needs peft; install it: pip install 'lmexpos"):
        check_lora(str(base))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"canaries": {**CANARIES, "My PIN is 1234.": 1}},
            "1 of 3 canaries would not reach the mo",
        ),
        ({"canaries": {**CANARIES, "My PIN is 0042.": 3}}, "is the row of 2 records instead of 3"),
        (
            {"wrapping": dataclasses.replace(WRAPPING, other="Q?")},
            "is the row of 0 records instead",
        ),
        (
            {"settings": dataclasses.replace(SETTINGS, block_size=8)},
            r"canary 0 of 2 has \d+ tokens in its row, but block_size=8; it must be there whole",
        ),
    ],
)
def test_canaries_that_do_not_arrive_are_refused(
    tokenizer: Any, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message) as e:
        padded(tokenizer, **change)
    assert "0042" not in str(e.value)


def test_two_canaries_of_the_same_tokens_are_refused(tokenizer: Any) -> None:
    same = byte_level_tokenizer(["my pin is a."])
    same.chat_template = tokenizer.chat_template
    same.backend_tokenizer.normalizer = Lowercase()
    texts = {"My PIN is A.": 1, "My PIN is a.": 1}
    with pytest.raises(ModelError, match="gives two different canaries the same tokens"):
        padded(same, records=[*chats(), *map_records(texts)], canaries=texts)


def test_validation_without_loss_is_refused(tokenizer: Any) -> None:
    questions = [{"messages": [{"role": "user", "content": f"q {i}"}]} for i in range(30)]
    with pytest.raises(CorpusError, match="held out for validation carries loss; raise block_size"):
        padded(tokenizer, records=[*questions, *map_records(CANARIES)], canaries={})
