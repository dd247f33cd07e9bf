"""Private trainings: resumed to the byte, saved as ordinary models, the key of none kept."""

import json
import secrets
import stat
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hashes import sha256_tree
from known import known
from models.small_private import (
    CANARIES,
    DOCUMENTS,
    PRIVATE,
    base,
    interrupted_at,
    lstm,
    resumed_alike,
    trained,
)
from torch import nn

from lmexposure.errors import CorpusError, ResultError, SettingsError
from lmexposure.models import Progress, load_model
from lmexposure.scoring import log_perplexity
from lmexposure.studies import DocumentPrivacy, TrainingResult, WhiteBoxAudit

pytest.importorskip("peft")

# What peft still calls in transformers.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
    pytest.mark.usefixtures("accounted_once"),
]

KEY = 0x5EC2_E7F0_0D15_EA5E
LORA = replace(PRIVATE, lora=True, lora_rank=2, lora_targets=("c_attn",), epochs=1)


def bits_of(model: Any) -> Any:
    """What it says of the canaries, as its corpus has them."""
    return log_perplexity(model.eval(), lstm().tokenizer, list(CANARIES), context="\n")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the operating system gives as keys, one after the other."""
    given: list[int] = []
    monkeypatch.setattr(secrets, "randbits", lambda bits: given.pop(0))
    return given


@pytest.mark.slow
def test_interrupted_it_ends_with_the_same_bytes_and_promise(
    tmp_path: Path, keys: list[int]
) -> None:
    """By the key that it began with, whatever a later start would draw."""
    fresh = replace(PRIVATE, noise_seed=None)
    keys[:] = [KEY]
    whole = trained(tmp_path / "whole", settings=fresh)
    claim = known(whole.claim)
    assert claim.steps == whole.steps == 14
    assert (claim.unit, claim.largest_group) == ("document", 1)
    assert 0 < claim.epsilon < claim.epsilon_rdp
    assert not claim.noise_is_given
    # What is interrupted before its first checkpoint begins anew.
    keys[:] = [7, KEY, *range(100)]
    again = partial(trained, settings=fresh)
    interrupted_at((1, 2, 7, 8, 13), tmp_path / "stopped", again)
    resumed = trained(tmp_path / "stopped", settings=fresh)
    assert resumed.claim == claim
    assert resumed.tokens == whole.tokens
    assert sha256_tree(resumed.model_path) == sha256_tree(whole.model_path)
    finished = trained(tmp_path / "whole", settings=fresh)
    assert (finished.reused, finished.claim) == (True, claim)


@pytest.mark.slow
def test_each_document_is_measured_without_a_change_of_the_training(tmp_path: Path) -> None:
    plain = trained(tmp_path / "plain")
    again = partial(trained, settings=replace(PRIVATE, document_norms=True))
    # In an epoch, at its end, after it.
    whole, claim = resumed_alike(tmp_path, again, lambda n: (3, n // 2, n // 2 + 1))
    assert sha256_tree(whole.model_path) == sha256_tree(plain.model_path)
    assert known(plain.claim) == claim.model_copy(update={"ex_post": None})
    found = DocumentPrivacy.read(tmp_path / "stopped")
    own = tmp_path / "whole" / "dp_report.json"
    assert found.inputs_sha256 == DocumentPrivacy.read(own).inputs_sha256
    assert found.ex_post == claim.ex_post
    assert (found.moments, found.claimed) == (2, claim.epsilon)
    assert len(set(found.names)) == len(found.epsilons) == claim.units
    assert claim.epsilon >= max(found.epsilons) > min(found.epsilons) > 0
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    for name in found.names:  # one document a row: by its line in the corpus
        assert DOCUMENTS[int(name.removeprefix("document ")) - 1]
    assert not (tmp_path / "plain" / "dp_report.json").exists()
    with pytest.raises(ResultError, match="train again by DP-SGD with document norms"):
        DocumentPrivacy.read(tmp_path / "plain")
    own.write_bytes(own.read_bytes() + b" ")
    with pytest.raises(ResultError, match=r"dp_report\.json is not what the training wrote"):
        again(tmp_path / "whole")
    own.unlink()
    with pytest.raises(ResultError, match=r"dp_report\.json has gone since the training"):
        again(tmp_path / "whole")
    own.mkdir()
    with pytest.raises(ResultError, match=r"dp_report\.json is not what the training wrote"):
        again(tmp_path / "whole")


@pytest.mark.slow
def test_canaries_in_the_gradients_are_resumed_and_read_beside_the_promise(tmp_path: Path) -> None:
    again = partial(trained, settings=replace(PRIVATE, gradient_canaries=64))
    whole, claim = resumed_alike(tmp_path, again, lambda n: (n // 2 + 1,))
    found = WhiteBoxAudit.read(tmp_path / "whole")
    other = WhiteBoxAudit.read(tmp_path / "stopped" / "white_box.json")
    assert found.inputs_sha256 == other.inputs_sha256
    assert found.claimed_epsilon == claim.epsilon
    assert found.bounds == claim.white_box
    assert (found.bounds.steps, found.bounds.canaries) == (whole.steps, 64)
    assert found.bounds.sample_rate == claim.sample_rate
    assert found.bounds.largest < claim.epsilon
    noise = np.array(found.step_scores) - found.step_coins
    assert abs(noise.std() / 0.8 - 1) < 5 / np.sqrt(2 * noise.size)
    assert stat.S_IMODE((tmp_path / "whole" / "white_box.json").stat().st_mode) == 0o600


@pytest.mark.slow
def test_an_adapter_resumes_to_the_byte_and_is_saved_as_one(tmp_path: Path) -> None:
    base("gpt2", tmp_path / "base")

    def again(out: Path, progress: Callable[[Progress], None] | None = None) -> TrainingResult:
        return trained(out, load_model(tmp_path / "base"), progress, LORA)

    loaded = load_model(tmp_path / "base")
    before = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    whole = trained(tmp_path / "whole", loaded, settings=LORA)
    for name, weight in loaded.model.state_dict().items():
        if "lora" not in name:
            assert torch.equal(weight, before[name.replace("base_layer.", "")])
    interrupted_at((1, whole.steps - 1), tmp_path / "stopped", again)
    resumed = again(tmp_path / "stopped")
    assert sha256_tree(resumed.model_path) == sha256_tree(whole.model_path)
    assert resumed.claim == whole.claim
    assert (whole.model_path / "adapter_config.json").exists()
    kept = load_model(whole.model_path)
    assert bits_of(kept.model) == pytest.approx(bits_of(loaded.model), rel=1e-6)


@pytest.mark.slow
def test_two_trainings_differ_and_the_key_of_neither_is_kept(
    tmp_path: Path, keys: list[int]
) -> None:
    settings = replace(PRIVATE, noise_seed=None, epochs=1)
    keys[:] = [KEY, KEY + 1]
    modes: set[int] = set()

    def look(now: Progress) -> None:
        checkpoint = tmp_path / "0" / "checkpoint.pt"
        if checkpoint.exists():
            assert torch.load(checkpoint, weights_only=True)["optimizer"]["key"] == KEY
            modes.add(stat.S_IMODE(checkpoint.stat().st_mode))

    first, second = (
        trained(tmp_path / str(number), settings=settings, progress=(look, None)[number])
        for number in range(2)
    )
    assert modes == {0o600}
    assert sha256_tree(first.model_path) != sha256_tree(second.model_path)
    forms = [
        str(KEY).encode(),
        f"{KEY:x}".encode(),
        *(KEY.to_bytes(8, o) for o in ("big", "little")),
    ]
    files = [path for path in (tmp_path / "0").rglob("*") if path.is_file()]
    assert {"training.json", "metrics.jsonl", "model.safetensors"} <= {path.name for path in files}
    assert "checkpoint.pt" not in {path.name for path in files}
    for path in files:
        assert not any(form in path.read_bytes().lower() for form in forms), path
    record = json.loads((tmp_path / "0" / "training.json").read_text())
    assert record["settings"]["noise_seed"] is None


def test_what_is_saved_is_an_ordinary_lstm_that_scores_as_the_trained_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing is said on the way; here each warning would be an error."""
    promised: list[Any] = []
    loaded = lstm(0.2)
    capfd.readouterr()
    result = trained(tmp_path, loaded, settings=replace(PRIVATE, epochs=1), promise=promised.append)
    assert (*capfd.readouterr(), caplog.records) == ("", "", [])
    assert [result.claim] == promised
    assert known(result.claim).noise_is_given
    kept = load_model(result.model_path)
    assert type(kept.model.lstm) is type(loaded.model.lstm) is nn.LSTM
    assert np.array_equal(bits_of(kept.model), bits_of(loaded.model))
    assert not np.array_equal(bits_of(kept.model), bits_of(lstm().model))
    left = {path.name for path in tmp_path.glob("[!.]*")}
    assert left == {"metrics.jsonl", "model", "training.json"}


@pytest.mark.slow
def test_other_users_are_another_training(tmp_path: Path) -> None:
    settings = replace(PRIVATE, unit_field="user", epochs=1, document_norms=True, delta=0.01)
    owners = [None if i % 5 == 0 else f"user {i % 7}" for i in range(64)]
    first = trained(tmp_path, settings=settings, units=owners)
    found = DocumentPrivacy.read(tmp_path)
    claim = known(first.claim)
    assert (claim.unit, claim.units) == (found.unit, len(found.names))
    named = {name for name in found.names if name.startswith("user ")}
    assert (found.unit, named) == ("user", {f"user {i}" for i in range(7)})
    assert all(name.startswith("document ") for name in set(found.names) - named)
    assert trained(tmp_path, settings=settings, units=owners).reused
    with pytest.raises(ResultError, match="holds a finished training with other settings, data"):
        trained(tmp_path, settings=settings, units=[*owners[:-1], None])


@pytest.mark.parametrize(
    ("field", "units", "error", "message"),
    [
        ("user", None, SettingsError, "unit_field='user', and no units are given; give both"),
        (None, ["anne"] * 64, SettingsError, "unit_field=None, and units are given; give both, or"),
        ("user", ["anne"] * 63, CorpusError, "units says of 63 documents whose they are, and the"),
    ],
)
def test_units_and_what_they_are_go_together(
    field: str | None, units: list[str] | None, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        trained(tmp_path, settings=replace(PRIVATE, unit_field=field), units=units)
