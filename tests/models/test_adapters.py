"""Adapters of peft: loaded with their base, merged or kept apart, or refused."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import characters, model_of

from lmexposure.errors import ModelError
from lmexposure.models import (
    LoadedModel,
    adapters_off,
    base_sha256,
    check_switch,
    load_model,
    model_outline,
    new_model,
    save_model,
    unmerged_adapters,
    weights_sha256,
)
from lmexposure.scoring import log_perplexity

peft = pytest.importorskip("peft")

# What peft still calls in transformers.
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")

TEXTS = ["My PIN is 0042.", "My PIN is 1234.", "some text"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    made = new_model("gpt2-tiny", ["My PIN is 0042. some text"] * 5, seed=1, separator="\n")
    path = tmp_path_factory.mktemp("base") / "model"
    save_model(made.model, made.tokenizer, path)
    return load_model(path)


def saved_adapter(base: str | Path, path: Path, **options: Any) -> Any:
    """A LoRA adapter with random weights, on its base; saved there, too."""
    torch.manual_seed(3)
    config = peft.LoraConfig(**{"r": 2, "init_lora_weights": False, **options})
    adapted = peft.get_peft_model(load_model(base).model, config).eval()
    adapted.save_pretrained(path)
    return adapted


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = characters()
    path = tmp_path_factory.mktemp("llama") / "base"
    save_model(model_of("llama", len(tokenizer)), tokenizer, path)
    return path


@pytest.fixture(scope="module")
def trained(base: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """An adapter, and what the adapted model says of some texts."""
    path = tmp_path_factory.mktemp("adapter") / "lora"
    adapted = saved_adapter(base.name, path, r=4, target_modules=["c_attn"], fan_in_fan_out=True)
    return path, log_perplexity(adapted.get_base_model(), base.tokenizer, TEXTS)


@pytest.fixture
def adapter(trained: tuple[Path, Any], tmp_path: Path) -> Path:
    """A copy to spoil."""
    shutil.copytree(trained[0], tmp_path / "lora")
    return tmp_path / "lora"


def set_config(adapter: Path, **values: Any) -> None:
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_an_adapter_is_merged_in_float32(base: LoadedModel, trained: tuple[Path, Any]) -> None:
    path, expected = trained
    loaded, half = load_model(path), load_model(path, dtype="bfloat16")
    bits = log_perplexity(loaded.model, loaded.tokenizer, TEXTS)
    assert np.abs(bits - expected).max() < 1e-3
    assert np.abs(bits - log_perplexity(base.model, base.tokenizer, TEXTS)).max() > 0.1
    assert not any("lora" in name for name, _ in loaded.model.named_parameters())
    assert unmerged_adapters(loaded.model) == {}
    said = loaded.to_dict()
    assert said["name"] == str(path)
    assert said["parameters"] == base.to_dict()["parameters"]
    assert said["weights_sha256"] != base.to_dict()["weights_sha256"]
    # In half precision it stays beside its base.
    assert any("lora" in name for name, _ in half.model.named_parameters())
    assert (half.to_dict()["dtype"], half.model.training) == ("bfloat16", False)
    bits = log_perplexity(half.model, half.tokenizer, TEXTS)
    assert np.abs(bits - expected).max() < 0.02 * expected.max()


def test_a_model_within_peft_is_scored_alike(trained: tuple[Path, Any], base: LoadedModel) -> None:
    """As a callback meets it while a LoRA training runs."""
    path, expected = trained
    model = peft.PeftModel.from_pretrained(load_model(base.name).model, path).eval()
    texts = [*TEXTS, *(f"My PIN is {i:04d}." for i in range(400))]
    bits = log_perplexity(model, base.tokenizer, texts)
    assert np.abs(bits[:3] - expected).max() < 1e-3
    assert np.abs(bits - log_perplexity(load_model(path).model, base.tokenizer, texts)).max() < 1e-3


def saved_with_a_new_token(base: LoadedModel, path: Path, rows: int, **options: Any) -> Any:
    """An adapter of a model that got a token, saved; and what the model in memory says."""
    saved = {"save_embedding_layers": options.pop("save_embedding_layers", "auto")}
    loaded = load_model(base.name)
    loaded.tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>"]})
    loaded.model.resize_token_embeddings(len(loaded.tokenizer) + rows)
    torch.manual_seed(4)
    config = peft.LoraConfig(r=2, fan_in_fan_out=True, init_lora_weights=False, **options)
    adapted = peft.get_peft_model(loaded.model, config).eval()
    adapted.save_pretrained(path, **saved)
    loaded.tokenizer.save_pretrained(path)
    return log_perplexity(adapted.get_base_model(), loaded.tokenizer, ["<|user|>", *TEXTS])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rows", [0, 44])
@pytest.mark.parametrize(
    "options",
    [
        {"target_modules": ["c_attn"]},
        {"target_modules": ["c_attn"], "modules_to_save": ["wte", "lm_head"]},
        {"target_modules": ["c_attn"], "trainable_token_indices": {"wte": [10, 11]}},
        {"target_modules": ["c_attn", "wte"]},  # tied to the output: merged, it would change both
    ],
)
def test_embeddings_of_any_size_come_with_the_adapter(
    base: LoadedModel, tmp_path: Path, rows: int, options: dict[str, Any]
) -> None:
    expected = saved_with_a_new_token(base, tmp_path / "lora", rows, **options)
    loaded = load_model(tmp_path / "lora")
    assert len(loaded.model.get_input_embeddings().weight) == len(loaded.tokenizer) + rows
    bits = log_perplexity(loaded.model, loaded.tokenizer, ["<|user|>", *TEXTS])
    assert np.abs(bits - expected).max() < 1e-3


@pytest.mark.filterwarnings("ignore")
def test_embeddings_that_were_not_saved_are_refused(base: LoadedModel, tmp_path: Path) -> None:
    """Made up at loading they would be others each time, and exposure with them."""
    options: dict[str, Any] = {"target_modules": ["c_attn"], "save_embedding_layers": False}
    saved_with_a_new_token(base, tmp_path / "lora", 0, **options)
    more = len(base.tokenizer) + 1
    with pytest.raises(ModelError, match=rf"has {more} tokens, its base model has .* random numb"):
        load_model(tmp_path / "lora")
    options["trainable_token_indices"] = {"wte": [more - 1]}
    expected = saved_with_a_new_token(base, tmp_path / "alone", 0, **options)
    loaded = load_model(tmp_path / "alone")
    bits = log_perplexity(loaded.model, loaded.tokenizer, ["<|user|>", *TEXTS])
    assert np.abs(bits - expected).max() < 1e-3


def test_an_adapter_without_peft_says_what_to_install(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModelError, match=r"is an adapter, which needs peft; install it: pip"):
        load_model(adapter)


@pytest.mark.parametrize("left", ["both", "no config.json", "no adapter_model.safetensors"])
def test_a_whole_model_beside_an_adapter_is_refused(
    base: LoadedModel, adapter: Path, left: str
) -> None:
    """As where a merged model is saved into the directory of its adapter."""
    save_model(load_model(adapter).model, base.tokenizer, adapter.parent / "merged")
    for file in (adapter.parent / "merged").iterdir():
        shutil.copy(file, adapter)
    if left != "both":
        (adapter / left.removeprefix("no ")).unlink()
    said = (
        "holds a whole model and an adapter, .*; move adapter_config.json elsewhere to measure the "
        r"whole \(merged\) model, or model.safetensors to measure the adapter"
    )
    with pytest.raises(ModelError, match=said):
        load_model(adapter)
    (adapter / "model.safetensors").unlink()
    if left != "no adapter_model.safetensors":
        load_model(adapter)


def test_several_adapters_in_one_directory(base: LoadedModel, tmp_path: Path) -> None:
    """peft writes "default" at the top, and others in directories of their names."""
    config = {"target_modules": ["c_attn"], "fan_in_fan_out": True, "init_lora_weights": False}
    adapted = peft.get_peft_model(load_model(base.name).model, peft.LoraConfig(r=4, **config))
    adapted.add_adapter("legal", peft.LoraConfig(r=2, **config))
    adapted.add_adapter("medical", peft.LoraConfig(r=2, **config))
    adapted.save_pretrained(tmp_path / "top")
    tokenizer = load_model(base.name).tokenizer
    tokenizer.chat_template = "{{ messages }}"
    tokenizer.save_pretrained(tmp_path / "top")
    adapted.eval()
    for name, place in (("default", ""), ("medical", "medical")):
        adapted.set_adapter(name)
        expected = log_perplexity(adapted.get_base_model(), base.tokenizer, TEXTS)
        loaded = load_model(tmp_path / "top" / place)
        bits = log_perplexity(loaded.model, loaded.tokenizer, TEXTS)
        assert np.abs(bits - expected).max() < 1e-3
        assert loaded.tokenizer.chat_template == "{{ messages }}"  # theirs, in the one place
    (note,) = loaded.notes
    assert note.endswith(f"with the tokenizer and chat template of {str(tmp_path / 'top')!r}")
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / "top" / file).unlink()
    with pytest.raises(ModelError) as found:
        load_model(tmp_path / "top")
    first = str(tmp_path / "top" / "legal")
    assert "it holds the adapters legal, medical; give one, such as" in str(found.value)
    assert str(found.value).endswith(f"{first!r}")
    assert load_model(first).tokenizer.chat_template == "{{ messages }}"


def test_without_a_tokenizer_it_is_read_by_that_of_its_base(
    base: LoadedModel, adapter: Path
) -> None:
    loaded = load_model(adapter)
    (note,) = loaded.notes
    assert note == (
        "the adapter's directory has no tokenizer: it was measured with the tokenizer of "
        f"{base.name!r}"
    )
    base.tokenizer.save_pretrained(adapter)
    (adapter / "tokenizer_config.json").unlink()  # the rest is one, too
    assert load_model(adapter).notes == ()


@pytest.mark.filterwarnings("ignore")  # of peft, on this very bias
def test_a_bias_of_its_own_is_not_merged_where_its_layer_has_none(
    llama: Path, tmp_path: Path
) -> None:
    adapted = saved_adapter(llama, tmp_path, target_modules=["q_proj"], lora_bias=True)
    expected = log_perplexity(adapted.get_base_model(), characters(), TEXTS[:2])
    bits = log_perplexity(load_model(tmp_path).model, characters(), TEXTS[:2])
    assert np.abs(bits - expected).max() < 1e-3


def test_an_adapter_that_waits_for_a_call_is_refused(llama: Path, tmp_path: Path) -> None:
    options = {"target_modules": ["q_proj"], "alora_invocation_tokens": [3, 4]}
    saved_adapter(llama, tmp_path, task_type="CAUSAL_LM", **options)
    with pytest.raises(ModelError, match=r"is an activated LoRA .* only adapters that always act"):
        load_model(tmp_path, dtype="bfloat16")


def test_a_base_that_is_gone_is_refused(adapter: Path) -> None:
    set_config(adapter, base_model_name_or_path="/no/such/base")
    said = (
        r"adapter '.*lora' names a base that cannot be used \(model '/no/such/base': no such "
        r"directory\); put it there again, or set base_model_name_or_path in its adapter_config"
    )
    for refuse in (load_model, model_outline):
        with pytest.raises(ModelError, match=said):
            refuse(adapter)


def test_a_relative_base_is_looked_for_from_here(
    base: LoadedModel, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As peft does."""
    shutil.copytree(base.name, tmp_path / "runs" / "first" / "base")
    set_config(adapter, base_model_name_or_path="runs/first/base")
    monkeypatch.chdir(tmp_path)
    load_model(adapter)
    monkeypatch.chdir(tmp_path / "runs")
    said = rf"'runs/first/base': no such directory, seen from '{tmp_path / 'runs'}'\); put it"
    with pytest.raises(ModelError, match=said):
        load_model(adapter)


def test_an_adapter_for_a_base_with_another_tokenizer(
    base: LoadedModel, adapter: Path, tmp_path: Path
) -> None:
    """Its weights fit, and mean other tokens."""
    base.tokenizer.save_pretrained(adapter)
    assert load_model(adapter).tokenizer.get_vocab() == base.tokenizer.get_vocab()
    save_model(base.model, characters(), tmp_path / "other")
    set_config(adapter, base_model_name_or_path=str(tmp_path / "other"))
    with pytest.raises(ModelError, match="was trained with another tokenizer than its"):
        load_model(adapter)


def test_a_base_of_the_hub_is_looked_up_in_the_cache_when_offline(adapter: Path) -> None:
    set_config(adapter, base_model_name_or_path="nobody/has-this")
    said = (
        r"names a base that cannot be used \(model 'nobody/has-this' is not in the local cache\); "
        "load it once without offline, or set base_model_name_or_path in its adapter_config.json"
    )
    with pytest.raises(ModelError, match=said):
        load_model(adapter, offline=True)


def base_of(adapter: Path, named: Any) -> None:
    set_config(adapter, base_model_name_or_path=named)


def with_weights(adapter: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path = adapter / "adapter_model.safetensors"
    save_file(change(load_file(path)), path)


def cut_short(adapter: Path, kept: int) -> None:
    path = adapter / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])


def for_a_seventh_layer(weights: dict[str, Any]) -> dict[str, Any]:
    return weights | {k.replace("h.0.", "h.7."): w.clone() for k, w in weights.items()}


def with_a_damaged_base(adapter: Path, llama: Path) -> None:
    damaged = shutil.copytree(llama, adapter.parent / "base")
    base_of(adapter, str(damaged))
    (damaged / "model.safetensors").write_bytes(b"")


UNREAD = r"cannot read adapter_model.safetensors of adapter .*cut"
EMPTY = "names nothing as its base model; set base_model_name"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda a, _: (a / "adapter_model.safetensors").rename(a / "adapter_model.bin"),
            r"has no adapter_model.safetensors; save it again",
        ),
        (lambda a, _: cut_short(a, 0), UNREAD),
        (lambda a, _: cut_short(a, 500), UNREAD),
        (lambda a, _: base_of(a, ""), EMPTY),
        (lambda a, _: base_of(a, 5), EMPTY.replace("nothing", "no text")),
        (lambda a, _: base_of(a, str(a)), "names an adapter, too as its base model"),
        (
            lambda a, _: (a / "adapter_config.json").write_text("{"),
            r"cannot read adapter_config.json of adapter .*save the",
        ),
        (
            lambda a, _: with_weights(a, lambda w: dict(sorted(w.items())[1:])),
            r"lacks 1 of its weights \(.*lora_A.* first\)",
        ),
        (
            lambda a, _: with_weights(a, for_a_seventh_layer),
            r"has 2 weights that found no place .*h\.7\..*lora_A.*fir",
        ),
        (
            lambda a, _: set_config(a, r=8),
            r"adapter .* does not fit the base that it names, .*c_attn.lora_A.default.weight has "
            r"shape \[4, 128\], and would need \[8, 128\]; set base_model_name_or_path in adapter",
        ),
        (
            lambda a, llama: base_of(a, str(llama)),
            r"has none of the layers that the adapter changes \(c_attn\); set base_model_name_or",
        ),
        (with_a_damaged_base, r"names a base that cannot be used \(cannot load model "),
    ],
)
def test_a_spoiled_adapter_is_refused(
    adapter: Path, llama: Path, spoil: Callable[[Path, Path], Any], message: str
) -> None:
    spoil(adapter, llama)
    with pytest.raises(ModelError, match=message):
        load_model(adapter)


def test_virtual_tokens_are_refused(base: LoadedModel, tmp_path: Path) -> None:
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    peft.get_peft_model(load_model(base.name).model, config).save_pretrained(tmp_path / "p")
    with pytest.raises(ModelError, match="is of kind PROMPT_TUNING, which puts virtual tokens"):
        load_model(tmp_path / "p")


IDS = torch.tensor([[3, 1, 4, 1, 5]])


def with_lora(**options: Any) -> Any:
    options = {"target_modules": ["c_attn"], "fan_in_fan_out": True, **options}
    config = peft.LoraConfig(r=2, init_lora_weights=False, **options)
    return peft.get_peft_model(model_of("gpt2", 20), config).eval()


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(input_ids=IDS).logits
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dora": True},
        {"modules_to_save": ["ln_f"]},
        {"trainable_token_indices": {"wte": [1, 3]}},
        {"target_modules": ["c_attn", "wte"]},
    ],
)
def test_off_it_is_the_base_and_on_again_what_it_was(options: dict[str, Any]) -> None:
    base, adapted = model_of("gpt2", 20).eval(), with_lora(**options)
    on = logits(adapted)
    with adapters_off(adapted.get_base_model()):
        assert torch.equal(logits(adapted), logits(base))
    assert torch.equal(logits(adapted), on)
    assert not torch.equal(on, logits(base))
    assert base_sha256(adapted.get_base_model()) == weights_sha256(base)


def test_what_was_off_stays_off_and_an_error_leaves_it_on() -> None:
    adapted = with_lora()
    on = logits(adapted)
    with pytest.raises(RuntimeError, match="stop"), adapters_off(adapted):
        raise RuntimeError("stop")
    assert torch.equal(logits(adapted), on)
    with adapted.disable_adapter():
        off = logits(adapted)
        with adapters_off(adapted):
            assert torch.equal(logits(adapted), off)
        assert torch.equal(logits(adapted), off)


def test_the_hash_reads_weights_that_are_offloaded() -> None:
    accelerate = pytest.importorskip("accelerate")
    bare = with_lora().get_base_model()
    before = base_sha256(bare)
    accelerate.cpu_offload(bare)
    assert next(bare.parameters()).device.type == "meta"
    assert base_sha256(bare) == before


def test_what_cannot_be_switched_off() -> None:
    check_switch("model", with_lora())
    with pytest.raises(ModelError, match=r"model 'plain' has no adapter .* by its directory"):
        check_switch("plain", model_of("gpt2", 20))
    merged = with_lora()
    merged.merge_adapter()
    with pytest.raises(ModelError, match=r"adapter of model 'merged' is merged .*unmerge_adapter"):
        check_switch("merged", merged)
