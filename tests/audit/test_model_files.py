"""Models in a single file: GGUF, and checkpoints whose code is their owner's."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audit.quick import QUICK
from audit.small import TOKENIZER, gpt2, pins
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
from transformers import LlamaConfig, LlamaForCausalLM

import lmexposure as lx
from lmexposure.audit import RunSettings, measure, read_scores, write_texts
from lmexposure.errors import LmexposureError, ModelError, SettingsError
from lmexposure.models import LoadedModel, built_model, load_model, save_model
from lmexposure.scoring import load_for_measuring

MANIFEST = pins(2)
SETTINGS = replace(QUICK, references=90)
HEADS = 2
# As llama.cpp calls them; {} is the number of the layer.
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
OUTSIDE = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}


def llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(TOKENIZER),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=160,
        bos_token_id=None,
        eos_token_id=TOKENIZER.eos_token_id,
    )
    torch.manual_seed(5)
    return LlamaForCausalLM(config).eval()


def named(name: str) -> str:
    parts = name.removeprefix("model.").removesuffix(".weight")
    if not parts.startswith("layers."):
        return f"{OUTSIDE[parts]}.weight"
    _, layer, rest = parts.split(".", 2)
    return f"blk.{layer}.{NAMES[rest]}.weight"


def interleaved(weight: np.ndarray) -> np.ndarray:
    """Queries and keys as llama.cpp rotates them."""
    halves = weight.reshape(HEADS, 2, len(weight) // HEADS // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path: Path, model: LlamaForCausalLM, *, architecture: str = "llama") -> Path:
    """As llama.cpp's converter writes a Llama in float32, with its byte-level tokenizer."""
    config, writer = model.config, GGUFWriter(path, architecture)
    writer.add_file_type(LlamaFileType.ALL_F32)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(config.vocab_size)
    spelled = sorted(TOKENIZER.get_vocab(), key=TOKENIZER.get_vocab().get)
    special = {TOKENIZER.eos_token}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(spelled)
    writer.add_token_types(
        [TokenType.CONTROL if token in special else TokenType.NORMAL for token in spelled]
    )
    merges = TOKENIZER.backend_tokenizer.model.__getstate__()
    writer.add_token_merges([" ".join(pair) for pair in merged(merges)])
    writer.add_eos_token_id(TOKENIZER.eos_token_id)
    writer.add_bos_token_id(TOKENIZER.eos_token_id)
    for name, tensor in model.state_dict().items():
        weight = tensor.numpy()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight = interleaved(weight)
        writer.add_tensor(named(name), weight, raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def merged(state: Any) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(state)["merges"]]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "small.gguf", llama())


def test_a_gguf_file_has_the_numbers_of_its_model(file: Path) -> None:
    model = llama()
    found = load_model(file)
    same = measure(model, MANIFEST, tokenizer=TOKENIZER, settings=SETTINGS)
    result = measure(found, MANIFEST, settings=SETTINGS)
    for column, off in (("log_perplexity_bits", 1e-4), ("exposure", 1e-3)):
        np.testing.assert_allclose(result.to_frame()[column], same.to_frame()[column], atol=off)
    assert any("keeps its tensors as F32 (21)" in note for note in result.warnings)


def scores_of(model: LlamaForCausalLM, texts: Path) -> str:
    """What a program without this package finds for texts, in the words of `read_scores`."""
    lines = []
    for row in map(json.loads, texts.read_text().splitlines()):
        before, whole = (
            [TOKENIZER.eos_token_id, *TOKENIZER(text)["input_ids"]]
            for text in (row["context"], row["context"] + row["text"])
        )
        with torch.inference_mode():
            logp = model(torch.tensor([whole])).logits[0].double().log_softmax(-1)
        places = range(len(before), len(whole))
        found = [logp[place - 1, whole[place]].item() for place in places]
        lines.append(json.dumps({"id": row["id"], "token_logprobs": found}))
    return "\n".join(lines)


def test_one_model_has_one_verdict_however_it_is_given(file: Path, tmp_path: Path) -> None:
    model = llama()
    save_model(model, TOKENIZER, tmp_path / "saved")
    write_texts(MANIFEST, tmp_path / "texts.jsonl", references=90)
    (tmp_path / "scores.jsonl").write_text(scores_of(model, tmp_path / "texts.jsonl"))
    function = lx.language_model(model, tokenizer=TOKENIZER, window=160)
    scores = read_scores(tmp_path / "scores.jsonl", MANIFEST, references=90)
    found = [
        lx.measure(given, MANIFEST, references=90, estimate="sampled", extraction=False)
        for given in (str(tmp_path / "saved"), function, str(file), scores)
    ]
    frames = [result.to_frame() for result in found]
    for other in frames:
        for column, off in (("log_perplexity_bits", 1e-3), ("exposure", 1e-3)):
            np.testing.assert_allclose(other[column], frames[0][column], atol=off)
    assert len({lx.check(result).outcome for result in found}) == 1


def test_what_is_wrong_with_a_gguf_file_is_said(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match=r"load_in='4bit' .* is a GGUF file; leave it out"):
        load_model(file, load_in="4bit")
    other = write_gguf(tmp_path / "o.gguf", llama(), architecture="nothing_like_it")
    with pytest.raises(ModelError, match="nothing_like_it"):
        load_model(other)
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(file.read_bytes()[:5_000])
    with pytest.raises(ModelError, match="cannot load model"):
        load_model(cut)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="needs gguf; install it: pip install"):
        load_model(file)


BUILDER = """
import torch, lmexposure as lx
from audit.small import TOKENIZER, gpt2

def build(held):
    model = gpt2()
    model.load_state_dict(held["model"])
    return lx.language_model(model, tokenizer=TOKENIZER, window=96)

def other(held):
    return held

def leaving(held):
    import os, sys
    os.chdir("/")
    print("a line of its own")
    sys.exit(0)

def failing(held):
    return held["nothing"]
"""


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "builders_of_a_test.py").write_text(BUILDER)
    torch.save({"model": gpt2().state_dict(), "iterations": 5}, tmp_path / "ckpt.pt")
    return tmp_path / "ckpt.pt"


def test_a_checkpoint_is_measured_by_the_function_that_builds_its_model(checkpoint: Path) -> None:
    built = load_for_measuring(checkpoint, RunSettings(builder="builders_of_a_test:build"))
    result = measure(built, MANIFEST, settings=SETTINGS)
    same = measure(gpt2(), MANIFEST, tokenizer=TOKENIZER, settings=SETTINGS)
    bits = "log_perplexity_bits"
    np.testing.assert_allclose(result.to_frame()[bits], same.to_frame()[bits], atol=1e-4)
    assert any("built by build of builders_of_a_test.py (SHA-256" in n for n in result.warnings)
    result.write(Path("m") / "result.json")
    page = lx.report("m", "page.md").read_text()
    assert "lmexposure measure MODEL --builder MODULE:FUNCTION MANIFEST --out m-again" in page


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        ("builders_of_a_test", "must be module:function, such as my_model:build"),
        ("no_such_module:build", "raised ModuleNotFoundError"),
        ("builders_of_a_test:nowhere", "raised AttributeError"),
        ("builders_of_a_test:failing", "raised KeyError"),
        ("builders_of_a_test:leaving", "raised SystemExit"),
        ("builders_of_a_test:other", "gave a dict; it must return lmexposure.language_model"),
    ],
)
def test_what_is_wrong_with_a_builder_is_said(checkpoint: Path, builder: str, message: str) -> None:
    with pytest.raises(LmexposureError, match=message):
        built_model(checkpoint, builder)


def test_no_code_of_a_checkpoint_runs(checkpoint: Path) -> None:
    class Pickled:
        def __reduce__(self) -> Any:
            return (Path.touch, (checkpoint.with_name("ran"),))

    torch.save({"model": Pickled()}, checkpoint)
    with pytest.raises(ModelError, match="cannot be read as a checkpoint of torch without running"):
        built_model(checkpoint, "builders_of_a_test:build")
    assert not checkpoint.with_name("ran").exists()


def test_an_empty_checkpoint_and_none_at_all(checkpoint: Path) -> None:
    checkpoint.write_bytes(b"")
    with pytest.raises(ModelError, match="cannot be read as a checkpoint of torch"):
        built_model(checkpoint, "builders_of_a_test:build")
    with pytest.raises(ModelError, match="no such file; check the path"):
        lx.measure("nosuch.pt", MANIFEST, builder="builders_of_a_test:build")


def test_a_file_or_a_builder_alone_is_refused_at_once(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the function that builds its model"):
        lx.measure(checkpoint, MANIFEST)
    (tmp_path / "d").mkdir()
    with pytest.raises(SettingsError, match=r"makes a model of a checkpoint file, and .* is none"):
        lx.measure(tmp_path / "d", MANIFEST, builder="builders_of_a_test:build")
    assert isinstance(built_model(checkpoint, "builders_of_a_test:build"), LoadedModel)
