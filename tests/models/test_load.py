"""Loading: what is refused and why, and that a directory causes no traffic."""

import json
import resource
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertLMHeadModel,
    GPT2LMHeadModel,
    GPT2Model,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.utils import logging as transformers_logging

from lmexposure.errors import FileError, ModelError, SettingsError
from lmexposure.models import LoadedModel, load_model, new_model, save_model, weights_sha256


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    loaded = new_model("gpt2-tiny", ["some text to read"] * 5, seed=1, separator="\n")
    save_model(loaded.model, loaded.tokenizer, path := tmp_path_factory.mktemp("made") / "model")
    return path


@pytest.fixture
def gpt2(made: Path) -> LoadedModel:
    return load_model(made)


@pytest.fixture
def directory(made: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return shutil.copytree(made, tmp_path / "model")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Collects what somebody tried to reach, since libraries swallow the error."""
    tried: list[object] = []

    def refuse(*target: object, **_: object) -> None:
        tried.append(target)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return tried


def test_a_directory_loads_bit_equal_and_without_the_network(
    gpt2: LoadedModel, directory: Path, no_network: list[object]
) -> None:
    loaded = load_model(directory)
    assert weights_sha256(loaded.model) == weights_sha256(gpt2.model)
    assert loaded.tokenizer.get_vocab() == gpt2.tokenizer.get_vocab()
    assert not loaded.model.training
    assert no_network == []
    with torch.no_grad():  # the hash sees a single bit
        loaded.model.transformer.ln_f.bias[3] += 1e-6
    assert weights_sha256(loaded.model) != weights_sha256(gpt2.model)


def test_a_dtype_that_this_cpu_only_imitates_is_warned_of(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    shown = transformers_logging.is_progress_bar_enabled()
    load_model(directory)
    assert not caplog.records
    assert load_model(directory, dtype="bfloat16").to_dict()["dtype"] == "bfloat16"
    assert "no instructions for bfloat16" in caplog.text
    assert transformers_logging.is_progress_bar_enabled() == shown


def test_what_is_no_directory_is_not_looked_up(directory: Path, no_network: list[object]) -> None:
    for name in ("./missing", "/no/such", "a/b/c", ""):
        with pytest.raises(ModelError, match=f"model '{name}': no such directory; check the path"):
            load_model(name)
    with pytest.raises(ModelError, match="is a file; give the directory that holds it"):
        load_model(directory / "model.safetensors")
    with pytest.raises(ModelError, match="model 'o/none' is not in the local cache; load it once"):
        load_model("o/none", offline=True)
    assert no_network == []


def test_a_mistyped_directory_may_be_a_hub_name(
    monkeypatch: pytest.MonkeyPatch, no_network: list[object]
) -> None:
    """It is asked for on the hub; what cannot be had there was most likely a path."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError) as refused:
        load_model("case/nothing")
    assert str(refused.value) == (
        "model 'case/nothing': no such directory, and it could not be found on the hub either; "
        "check the path or the hub name, and of a hub model the network"
    )
    assert no_network == []


@pytest.mark.parametrize("kind", [GatedRepoError, RepositoryNotFoundError])
def test_a_model_that_the_hub_guards_is_there(
    monkeypatch: pytest.MonkeyPatch, kind: type[RepositoryNotFoundError]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("as the hub says.") from kind.__new__(kind)

    monkeypatch.setattr("lmexposure._saved_models.hub_answers", lambda *_: True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # for all else
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", refuse)
    guarded = "cannot load model 'case/nothing': as the hub says; save"
    missing = "model 'case/nothing': no such directory, and it could"
    with pytest.raises(ModelError, match=guarded if kind is GatedRepoError else missing):
        load_model("case/nothing")


def test_offline_finds_a_cached_hub_model(
    directory: Path, tmp_path: Path, no_network: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "models--o--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    (repository / "snapshots").mkdir()
    directory.rename(repository / "snapshots" / ("0" * 40))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert load_model("o/tiny", offline=True).name == "o/tiny"
    assert no_network == []
    assert load_model("o/tiny").name == "o/tiny"  # the hub does not answer
    assert len(no_network) == 2  # with one more try


def test_a_full_disk_leaves_nothing_under_the_final_name(gpt2: LoadedModel, tmp_path: Path) -> None:
    assert isinstance(gpt2.model, GPT2LMHeadModel)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(FileError, match=r"cannot write .*model"):
            save_model(gpt2.model, gpt2.tokenizer, tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def changed_weights(directory: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    weights = load_file(directory / "model.safetensors")
    change(weights)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def changed_config(directory: Path, **values: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("layers", [1, -1])
def test_a_model_that_lost_layers_is_refused(
    gpt2: LoadedModel, directory: Path, layers: int
) -> None:
    lost = sum(
        int(name.split(".")[2]) >= layers
        for name, _ in gpt2.model.named_parameters()
        # GPT-2's class does not look at what ends in attn.bias.
        if name.startswith("transformer.h.") and not name.endswith("attn.bias")
    )
    changed_config(directory, n_layer=layers)
    first = rf"transformer\.h\.{max(0, layers)}\.attn"
    said = rf"without a part of it: {lost} weights \({first}.*, \.\.\.\) of its files found no "
    said += rf"place in a GPT2LMHeadModel of {layers} layers; check config\.json"
    with pytest.raises(ModelError, match=said):
        load_model(directory)


def without_layers(directory: Path) -> None:
    changed_config(directory, n_layer=-1)
    changed_weights(directory, lambda w: [w.pop(key) for key in list(w) if ".h." in key])


def with_another_head(directory: Path) -> None:
    changed_weights(directory, lambda w: w.update({"score.weight": torch.ones(2, 8)}))


def untied_with_another_head(directory: Path) -> None:
    with_another_head(directory)
    changed_config(directory, tie_word_embeddings=False)


def pickled(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: (d / "config.json").unlink(), r"has no config\.json; give a directory that sav"),
        (pickled, r"no \.safetensors .*found pytorch_model\.bin, which may"),
        (
            lambda d: (d / "model.safetensors").unlink(),
            r"no \.safetensors weights \(none\); save it again",
        ),
        (lambda d: (d / "model.safetensors").write_bytes(b"no tensor"), "cannot load model"),
        (
            lambda d: [path.unlink() for path in d.glob("tokenizer*")],
            r"tokenizer of .* is missing or empty; save it next to",
        ),
        (
            lambda d: (d / "tokenizer.json").write_text("{"),
            r"cannot load the tokenizer of .*; save it next to",
        ),
        (without_layers, r"has -1 layers by its config\.json; correct it there"),
        (with_another_head, r"1 weight \(score\.weight\) of its files found no place"),
        (
            untied_with_another_head,
            r"lacks 1 of its weights \(lm_head.*1 weight \(score\.weight\) of its files found no",
        ),
        (
            lambda d: changed_config(d, n_positions=8),
            r"transformer\.wpe\.weight has \(256, 128\) and would need \(8, 128\); give it the con",
        ),
    ],
)
def test_a_directory_that_is_not_whole_is_refused(
    directory: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    spoil(directory)
    with pytest.raises(ModelError, match=message):
        load_model(directory)


def test_no_name_of_a_weight_gets_to_the_terminal(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changed_weights(directory, lambda w: w.update({"\x1b[31mEVIL": torch.zeros(1)}))
    with pytest.raises(ModelError, match=r"EVIL\) of its files found no place"):
        load_model(directory)
    assert "EVIL" not in caplog.text


def sees_the_future(gpt2: LoadedModel) -> Any:
    torch.manual_seed(0)
    tokens, small = len(gpt2.tokenizer), {"num_hidden_layers": 1, "num_attention_heads": 2}
    sizes = {"hidden_size": 16, "intermediate_size": 16, "initializer_range": 0.2}
    return BertLMHeadModel(BertConfig(vocab_size=tokens, **small, **sizes))


def encoder_and_decoder(gpt2: LoadedModel) -> Any:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(vocab_size=len(gpt2.tokenizer), **sizes))


def without_head(gpt2: LoadedModel) -> Any:
    gpt2.model.config.tie_word_embeddings = False
    return GPT2Model(gpt2.model.config)


def with_too_few_rows(gpt2: LoadedModel) -> Any:
    gpt2.tokenizer.add_tokens(["extra"])
    return gpt2.model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (sees_the_future, r"\(bert\) is not a causal LM: its predictions depend"),
        (encoder_and_decoder, r"is an encoder-decoder without decoder_start_token_id, so that it"),
        (without_head, r"lacks 1 of its weights \(lm_head\.weight first\)"),
        (with_too_few_rows, r"has \d+ tokens, but the model only \d+"),
    ],
)
def test_a_model_of_another_kind_is_refused(
    gpt2: LoadedModel, tmp_path: Path, make: Callable[[LoadedModel], Any], message: str
) -> None:
    save_model(make(gpt2), gpt2.tokenizer, tmp_path / "m")
    with pytest.raises(ModelError, match=message):
        load_model(tmp_path / "m")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dtype": "int8"}, "dtype='int8' must be one of float32, bfloat16"),
        ({"device": "nonsense"}, "device='nonsense' is not available here; use 'cpu'"),
        ({"device": "cuda:99"}, "device='cuda:99' is not available here; use 'cpu'"),
        ({"load_in": "2bit"}, "load_in='2bit' must be one of 8bit, 4bit"),
        ({"device_map": "all"}, "device_map='all' must be one of auto"),
    ],
)
def test_settings_that_are_not_there_are_refused(
    directory: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        load_model(directory, **given)


def _old_buffers(weights: dict[str, torch.Tensor]) -> None:
    for layer in range(2):
        mask = {"bias": torch.ones(1, 1, 8, 8).tril(), "masked_bias": torch.tensor(-1e4)}
        weights.update({f"transformer.h.{layer}.attn.{key}": mask[key] for key in mask})


def _tied_twice(weights: dict[str, torch.Tensor]) -> None:
    weights["lm_head.weight"] = weights["transformer.wte.weight"].clone()


def _without_prefix(weights: dict[str, torch.Tensor]) -> None:
    """As the base model is saved; the head is tied to its embeddings."""
    for key in list(weights):
        weights[key.removeprefix("transformer.")] = weights.pop(key)


def test_the_same_weights_in_other_words_are_loaded(
    gpt2: LoadedModel, made: Path, tmp_path: Path
) -> None:
    for change in (_old_buffers, _tied_twice, _without_prefix):
        directory = shutil.copytree(made, tmp_path / change.__name__)
        changed_weights(directory, change)
        assert weights_sha256(load_model(directory).model) == weights_sha256(gpt2.model)


@pytest.fixture
def shards(gpt2: LoadedModel, directory: Path) -> tuple[Path, dict[str, str]]:
    """The same model in several files, and what is said to be in which."""
    (directory / "model.safetensors").unlink()
    gpt2.model.save_pretrained(directory, max_shard_size="1MB")
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    return directory, index["weight_map"]


def set_index(directory: Path, listed: dict[str, str]) -> None:
    index = {"metadata": {}, "weight_map": listed}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards_must_be_those_of_their_index(
    gpt2: LoadedModel, shards: tuple[Path, dict[str, str]]
) -> None:
    directory, listed = shards
    assert weights_sha256(load_model(directory).model) == weights_sha256(gpt2.model)
    last = max(listed.values())
    n = int(last[-17:-12])
    set_index(directory, {key: file for key, file in listed.items() if file != last})
    with pytest.raises(
        ModelError, match=rf"has {n - 1} files .*'model-00001-of-.*' is one of {n};"
    ):
        load_model(directory)
    set_index(directory, {**listed, "transformer.h.9.ln_1.bias": last})
    with pytest.raises(ModelError, match=rf"lost 1 weight \(.*h\.9.* of its index.*its {n} files"):
        load_model(directory)
    for broken in ({**listed, "more": "model-9.safetensors"}, [last], {"a": 1}):
        set_index(directory, broken)  # type: ignore[arg-type]
        with pytest.raises(ModelError, match=r"cannot read the weights .* by its model\.safetens"):
            load_model(directory)


@pytest.mark.parametrize(("key", "value"), [("n_embd", "big"), ("n_positions", "many")])
def test_words_for_sizes_in_a_config_are_refused(directory: Path, key: str, value: str) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {key: value}))
    with pytest.raises(ModelError, match="cannot "):
        load_model(directory)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"vocab_size": 400_000}, r"wte\.weight has .* and would need \(400000, "),
        ({"n_layer": 60}, "weights, and its files hold"),
    ],
)
def test_a_config_of_a_far_larger_model_is_refused_before_memory_is_taken(
    directory: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, int], named: str
) -> None:
    """By the shapes in the headers: a config alone asked for gigabytes, which were then taken."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("nothing is loaded")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", never)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | changed))
    with pytest.raises(ModelError, match=f"{named}.*; give it the config.json that it was saved"):
        load_model(directory)
