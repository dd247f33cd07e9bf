"""What does not fit is refused by its shapes, before any of it is read."""

import json
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny import byte_level_bpe
from transformers import LlamaConfig, LlamaForCausalLM

from lmexposure.errors import ModelError
from lmexposure.models import load_model, memory, save_model
from lmexposure.models.memory import ModelShape, free_memory
from lmexposure.models.weights import _parts

# What peft still calls in transformers.
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")

TOKENIZER = byte_level_bpe()
LOCAL = {"local_files_only": True, "trust_remote_code": False}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
# Llama 3.1 8B and Llama 3.2 1B, as their config.json says.
EIGHT = {
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
ONE = {
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "head_dim": 64,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
}


def config(**sizes: Any) -> LlamaConfig:
    wide = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, **HEADS}
    return LlamaConfig(vocab_size=len(TOKENIZER), **{**wide, **sizes})


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "llama"
    save_model(LlamaForCausalLM(config()), TOKENIZER, path, max_shard_size="1MB")
    assert len(list(path.glob("*.safetensors"))) > 1
    return path


@pytest.fixture
def adapter(directory: Path, tmp_path: Path) -> Path:
    base = LlamaForCausalLM.from_pretrained(directory)
    adapted = get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"]))
    adapted.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What is free, by device; to be changed."""
    free = {"cpu": 0, "disk": 0}
    monkeypatch.setattr(memory, "free_memory", free.__getitem__)
    monkeypatch.setattr(memory, "_STATES", {"cpu": 0, "cuda": 0})
    monkeypatch.setattr(memory, "_PASS_TOKENS", {"cpu": 0, "cuda": 0})
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free["disk"]))
    return free


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("load_in", [None, "8bit", "4bit"])
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_the_weights_take_what_their_shapes_say(
    directory: Path, dtype: str, load_in: str | None
) -> None:
    shape = ModelShape.of_model(str(directory), LOCAL)
    model = load_model(directory, dtype=dtype, load_in=load_in).model
    parts = [each for name, weight in model.state_dict().items() for each in _parts(name, weight)]
    held = sum(part.nbytes for name, part in parts if not name.endswith(":kind"))
    assert shape.weights(dtype, load_in, "cpu") == pytest.approx(held, rel=0.02)


@pytest.mark.parametrize(
    ("sizes", "parameters", "gigabytes"),
    [(EIGHT, 8_030_261_248, (32.1, 16.1, 9.1, 6.0)), (ONE, 1_235_814_400, (4.9, 2.5, 1.5, 1.1))],
)
def test_shapes_of_a_hub_model_are_known_by_its_config_alone(
    sizes: dict[str, Any], parameters: int, gigabytes: tuple[float, ...], tmp_path: Path
) -> None:
    """The numbers of parameters are the published ones."""
    LlamaConfig(**sizes).save_pretrained(tmp_path)
    shape = ModelShape.of_model(str(tmp_path), LOCAL)
    assert shape.parameters == parameters
    ways = [("float32", None), ("bfloat16", None), ("bfloat16", "8bit"), ("bfloat16", "4bit")]
    for (dtype, load_in), said in zip(ways, gigabytes, strict=True):
        assert shape.weights(dtype, load_in, "cuda") / 1e9 == pytest.approx(said, abs=0.06)


def test_files_that_claim_400_gigabytes_are_refused_by_their_header(tmp_path: Path) -> None:
    save_model(LlamaForCausalLM(config()), TOKENIZER, tmp_path)
    rows = 400_000_000_000 // (4 * 256)
    size = 4 * 256 * rows
    weight = {"dtype": "F32", "shape": [rows, 256], "data_offsets": [0, size]}
    header = json.dumps({"model.embed_tokens.weight": weight}).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    begun = time.monotonic()
    with pytest.raises(ModelError) as refused:
        load_model(tmp_path)
    assert time.monotonic() - begun < 10
    said = str(refused.value)
    assert "does not fit: it takes 400 GB in float32 and 1.1" in said
    assert "are free on cpu; give " in said


def test_what_does_not_fit_names_what_would(directory: Path, little: dict[str, int]) -> None:
    needed = ModelShape.of_model(str(directory), LOCAL).weights("float32", None, "cpu")
    little["cpu"] = needed
    load_model(directory)
    little["cpu"] = needed - 1
    with pytest.raises(
        ModelError,
        match=r"does not fit: it takes .* GB in float32 and 0 GB more to be measured, and .* GB "
        r"are free on cpu; give dtype=bfloat16 \(.* GB\) or load_in=8bit \(.* GB\) or "
        r"load_in=4bit \(.* GB\)$",
    ):
        load_model(directory)
    little["cpu"] = 1000
    with pytest.raises(ModelError, match=r"in 8bit .*; give a device with more memory$"):
        load_model(directory, load_in="8bit")


def test_a_model_that_is_spread_may_fill_all_devices_and_the_disk(
    directory: Path, little: dict[str, int]
) -> None:
    with pytest.raises(ModelError, match="0 GB are free on all devices and the disk; give a"):
        load_model(directory, device_map="auto")
    little["disk"] = 1 << 30
    with pytest.raises(ModelError, match=r"on cpu; give device_map=auto \(.* GB\)$"):
        load_model(directory, load_in="8bit")
    little["cpu"] = 1 << 30
    load_model(directory, device_map="auto")


def test_the_base_of_an_adapter_has_to_fit_and_be_whole_before_it_is_spread(
    adapter: Path, little: dict[str, int]
) -> None:
    with pytest.raises(ModelError, match=r"names a base .*llama' does not fit: it takes"):
        load_model(adapter)
    little["disk"] = 1 << 30
    with pytest.raises(ModelError, match="0 GB are free in the memory of the CPU"):
        load_model(adapter, device_map="auto")


def test_what_arrives_on_a_gpu_was_in_the_memory_of_the_cpu(
    directory: Path, little: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = ModelShape.of_model(str(directory), LOCAL)
    little |= {"cuda:0": 1 << 30, "cpu": 1000}
    placement = memory.Placement(device="cuda:0", dtype="float32", load_in=None, device_map=None)
    assert min(placement._free()) == (1000, "in the memory of the CPU")
    assert not placement._fits(shape)
    by_bits = memory.Placement(device="cuda:0", dtype="float32", load_in="4bit", device_map=None)
    assert by_bits._fits(shape)


def test_a_control_group_around_this_process_leaves_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    inside = tmp_path / "outer" / "inner"
    inside.mkdir(parents=True)
    files = {"max": "5000000", "current": "4000000", "stat": "anon 1\ninactive_file 500000\n"}
    for name, text in files.items():
        (inside.parent / f"memory.{name}").write_text(text)
        (inside / f"memory.{name}").write_text("max" if name == "max" else text)
    read = Path.read_text
    own = Path("/proc/self/cgroup")
    monkeypatch.setattr(
        Path, "read_text", lambda path, *a, **k: "0::/outer/inner\n" if path == own else read(path)
    )
    assert free_memory("cpu") == 1_500_000


def test_memory_that_another_took_meanwhile_is_said(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee below")

    monkeypatch.setattr(LlamaForCausalLM, "to", full)
    with pytest.raises(
        ModelError,
        match=r"llama' does not fit on cpu: CUDA out of memory\. Tried to allocate 2\.00 GiB; give "
        "dtype=bfloat16, load_in=4bit, device_map=auto or another device$",
    ):
        load_model(directory)
