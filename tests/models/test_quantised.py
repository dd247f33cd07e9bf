"""Models of 8 and 4 bits and models that are spread over devices: their numbers, and refusals."""

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny import byte_level_bpe, model_of
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

from lmexposure._style import percent
from lmexposure.errors import ModelError
from lmexposure.models import (
    LoadedModel,
    is_quantised,
    load_model,
    new_model,
    precision_notes,
    save_model,
    weights_away,
    weights_sha256,
)
from lmexposure.models import quantised as module
from lmexposure.models.quantised import quantised_share
from lmexposure.scoring import log_perplexity

torchao = pytest.importorskip("torchao")

TOKENIZER = byte_level_bpe()
TEXTS = ["My PIN is 0042", "My PIN is 1234", "The random number is 281265017"]
SPREAD = {
    **dict.fromkeys(("model.embed_tokens", "model.norm", "model.rotary_emb"), "cpu"),
    "model.layers.0": "cpu",
    "model.layers.1": "disk",
    "lm_head": "disk",
}

pytestmark = [
    # What peft still calls in transformers.
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),
]


def llama() -> Any:
    torch.manual_seed(3)
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes = {"hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 128, **heads}
    config = LlamaConfig(vocab_size=len(TOKENIZER), initializer_range=0.2, **sizes)
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "llama"
    save_model(llama(), TOKENIZER, path)
    return path


def bits(loaded: LoadedModel) -> Any:
    return log_perplexity(loaded.model, loaded.tokenizer, TEXTS, context=None)


def dequantised(loaded: LoadedModel) -> Any:
    """A plain model whose weights are the numbers that the quantised ones are used as."""
    plain = llama()
    weights = {
        name: weight.dequantize() if hasattr(weight, "dequantize") and is_kept(weight) else weight
        for name, weight in loaded.model.state_dict().items()
    }
    plain.load_state_dict(weights)
    return plain


def is_kept(weight: Any) -> bool:
    return hasattr(weight, "__tensor_flatten__")


@pytest.mark.parametrize("width", ["8bit", "4bit"])
def test_a_quantised_model_is_scored_as_its_rounded_weights_say(
    directory: Path, width: str
) -> None:
    loaded = load_model(directory, load_in=width)
    plain = load_model(directory)
    assert is_quantised(loaded.model)
    assert not is_quantised(plain.model)
    naive = log_perplexity(dequantised(loaded), TOKENIZER, TEXTS, context=None)
    np.testing.assert_allclose(bits(loaded), naive, atol=1e-3)
    gap = float(np.abs(bits(loaded) - bits(plain)).max())
    assert gap > 1e-3  # rounding of the weights is no rounding of the sums
    linear = [m.weight.numel() for m in plain.model.modules() if type(m) is torch.nn.Linear]
    linear.remove(plain.model.lm_head.weight.numel())  # the head stays as it is
    share = sum(linear) / plain.model.num_parameters()
    assert quantised_share(loaded.model) == pytest.approx(share)
    assert len(loaded.notes) == 1
    assert loaded.notes[0].startswith(
        f"{percent(share)} of the model's weights are quantised (torchao, "
    )
    assert (quantised_share(plain.model), plain.notes) == (0, ())


@pytest.mark.parametrize("width", ["8bit", "4bit"])
def test_a_model_of_which_nothing_is_quantised_is_refused(tmp_path: Path, width: str) -> None:
    """torchao knows neither GPT-2's Conv1D nor an LSTM, and transformers calls them quantised."""
    save_model(model_of("gpt2", len(TOKENIZER)), TOKENIZER, tmp_path / "gpt2")
    with pytest.raises(
        ModelError,
        match=rf"load_in='{width}' quantises none .*/gpt2' \(gpt2\): torchao leaves layers of type "
        "Conv1D as they are; load it without load_in, or on a GPU, where bitsandbytes knows Conv1D",
    ):
        load_model(tmp_path / "gpt2", load_in=width)
    lstm = new_model("lstm", TEXTS, seed=1, separator="\n")
    save_model(lstm.model, lstm.tokenizer, tmp_path / "lstm")
    with pytest.raises(ModelError, match=r"torchao leaves layers of type LSTM as they .*load_in$"):
        load_model(tmp_path / "lstm", load_in=width)


def test_a_saved_model_is_not_called_quantised_by_its_config_alone(tmp_path: Path) -> None:
    wanted = module.quantisation("8bit", "cpu")
    save_model(model_of("gpt2", len(TOKENIZER)), TOKENIZER, tmp_path / "plain")
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path / "plain", quantization_config=wanted, dtype=torch.float32
    ).eval()
    assert model.is_quantized
    assert not is_quantised(model)
    (note,) = precision_notes("saved", model)
    assert note.endswith(
        "(torchao), and none of them is: all numbers are of the model in full precision"
    )


class Params4bit(torch.nn.Parameter):
    """As bitsandbytes keeps weights: two in a byte, with their shape beside them."""

    quant_state: Any = None


class Int8Params(torch.nn.Parameter):
    """As bitsandbytes keeps weights, once they are on a GPU."""


def test_weights_of_bitsandbytes_are_counted_where_they_are_rounded() -> None:
    layer = torch.nn.Linear(8, 6, bias=False)
    waits = Params4bit(layer.weight.data)
    rounded = Params4bit(torch.zeros(24, 1, dtype=torch.uint8), requires_grad=False)
    rounded.quant_state = SimpleNamespace(shape=(6, 8))
    bytes_ = Int8Params(torch.zeros(6, 8, dtype=torch.int8), requires_grad=False)
    model = torch.nn.Module()
    model.one, model.two = layer, torch.nn.Linear(4, 4, bias=False)
    shares = []
    for weight in (waits, rounded, bytes_, Int8Params(layer.weight.data)):
        layer.weight = weight
        shares.append(quantised_share(model))
    assert shares == [0, 48 / 64, 48 / 64, 0]


@pytest.mark.parametrize("width", ["8bit", "4bit"])
def test_a_saved_quantised_model_is_the_model_that_was_saved(
    directory: Path, tmp_path: Path, width: str
) -> None:
    loaded = load_model(directory, load_in=width)
    save_model(loaded.model, TOKENIZER, tmp_path / "saved")
    again = load_model(tmp_path / "saved")
    assert is_quantised(again.model)
    assert again.notes == loaded.notes
    assert again.to_dict()["weights_sha256"] == loaded.to_dict()["weights_sha256"]
    assert again.to_dict()["parameters"] == load_model(directory).to_dict()["parameters"]
    np.testing.assert_array_equal(bits(again), bits(loaded))
    if width == "4bit":  # the hash sees a single changed weight
        kept: Any = again.model.model.layers[1].mlp.up_proj.weight
        kept.qdata[0, 0] += 1
        assert weights_sha256(again.model) != loaded.to_dict()["weights_sha256"]


def test_a_saved_quantised_model_says_in_which_dtype_it_computes(
    directory: Path, tmp_path: Path
) -> None:
    loaded = load_model(directory, load_in="4bit", dtype="bfloat16")
    save_model(loaded.model, TOKENIZER, tmp_path / "saved")
    with pytest.raises(ModelError, match=r"does not compute in float32 .*in the dtype that it was"):
        load_model(tmp_path / "saved")
    assert load_model(tmp_path / "saved", dtype="bfloat16").model.dtype == torch.bfloat16


def save_adapter(directory: Path, path: Path) -> Any:
    """Of random weights; returns peft."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["q_proj", "up_proj"], init_lora_weights=False, r=4)
    torch.manual_seed(1)
    peft.get_peft_model(load_model(directory).model, config).save_pretrained(path)
    return peft


@pytest.mark.parametrize("width", ["8bit", "4bit"])
def test_an_adapter_on_quantised_weights_stays_apart(
    directory: Path, tmp_path: Path, width: str
) -> None:
    peft = save_adapter(directory, tmp_path / "adapter")
    loaded = load_model(tmp_path / "adapter", load_in=width)
    base = load_model(directory, load_in=width)
    assert is_quantised(loaded.model)
    assert hasattr(loaded.model, "peft_config")
    with_it, without = bits(loaded), bits(base)
    assert float(np.abs(with_it - without).min()) > 0.01
    # Merged into the rounded weights in full precision, it gives the same numbers.
    plain = peft.PeftModel.from_pretrained(dequantised(base), tmp_path / "adapter")
    merged = log_perplexity(plain.merge_and_unload(), TOKENIZER, TEXTS, context=None)
    np.testing.assert_allclose(with_it, merged, atol=1e-3)


_UNTIL_ASKED = """
import sys
from pathlib import Path

import lmexposure.cli.entry
from lmexposure.audit import measure
from lmexposure.models import load_model, save_model
from lmexposure.models.new_models import with_new_adapter
from lmexposure.scoring import model_in_memory
from lmexposure.studies import TrainingSettings

whole, adapter, quantised = map(Path, sys.argv[1:])
load_model(adapter)
loaded = load_model(whole)
model_in_memory(with_new_adapter(loaded, TrainingSettings()), loaded.tokenizer)
assert not [name for name in sys.modules if name.startswith("torchao")]
save_model(load_model(whole, load_in="8bit").model, loaded.tokenizer, quantised)
assert "torchao.quantization" in sys.modules
from torchao.prototype.safetensors.safetensors_utils import is_metadata_torchao
from transformers.quantizers import quantizer_torchao
weights = load_model(quantised).model.state_dict()
flat, metadata = quantizer_torchao.flatten_tensor_state_dict(weights)
assert is_metadata_torchao(metadata) and len(flat) > len(weights)
"""


_AMONG_OTHERS = """
import sys

import lmexposure.models
from transformers.quantizers import quantizer_torchao

import torchao
assert quantizer_torchao.flatten_tensor_state_dict.__module__.startswith("torchao.")
assert all(type(each).__name__ == "module" for n, each in sys.modules.items() if "torchao" in n)
"""


def test_in_a_process_of_others_torchao_is_its_own_and_silent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _AMONG_OTHERS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Failed to load" not in done.stderr


def test_torchao_is_imported_to_quantise_and_its_advice_unsaid(
    directory: Path, tmp_path: Path
) -> None:
    """transformers takes from it what saves a quantised model, peft what it asks of each weight."""
    save_adapter(directory, tmp_path / "adapter")
    done = subprocess.run(
        [sys.executable, "-c", _UNTIL_ASKED, directory, tmp_path / "adapter", tmp_path / "saved"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert (done.returncode, done.stdout) == (0, "")


def test_a_missing_library_is_named_with_the_way_to_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(
        ModelError, match=r"load_in='8bit' needs torchao .*'lmexposure\[quantised\]'"
    ):
        load_model(directory, load_in="8bit")
    with pytest.raises(ModelError, match=r"load_in='4bit' needs bitsandbytes .*pip install bitsan"):
        module.quantisation("4bit", "cuda")


def test_bitsandbytes_is_asked_as_its_documentation_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: name)
    assert module.quantisation("8bit", "cuda:1").load_in_8bit
    assert module.quantisation("4bit", "cuda").load_in_4bit


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (BitsAndBytesConfig(load_in_4bit=True), r"\(bitsandbytes, 4bit\)"),
        ({"quant_method": "gptq", "bits": 3}, r"\(gptq, 3 bits\)"),
        (None, r"\(unknown method\)"),
    ],
)
def test_the_note_names_the_method(directory: Path, config: Any, said: str) -> None:
    model = load_model(directory).model
    model.is_quantized = True
    model.config.quantization_config = config
    assert re.search(said, precision_notes("tiny", model)[0])


def test_a_model_that_computes_otherwise_in_a_batch_says_so(directory: Path) -> None:
    """Or is refused, where it fails in one, or gives no numbers."""
    loaded = load_model(directory, load_in="8bit")
    layer: Any = loaded.model.model.layers[0].mlp
    plain = layer.forward
    layer.forward = lambda x: plain(x) * (1 + 0.01 * len(x))
    notes = precision_notes("tiny", loaded.model)
    assert len(notes) == 2
    assert "differently beside other texts" in notes[1]

    def fails(x: Any) -> Any:
        raise RuntimeError("no kernel for this machine")

    layer.forward = fails
    with pytest.raises(ModelError, match=r"does not compute in float32 \(no kernel for this mach"):
        precision_notes("tiny", loaded.model)
    layer.forward = plain
    loaded.model.lm_head.weight.data[0, 0] = float("nan")
    with pytest.raises(
        ModelError, match="'tiny' gives NaN or infinite log-probabilities in float32"
    ):
        precision_notes("tiny", loaded.model)


@pytest.mark.parametrize("mapping", [SPREAD, "auto"])
def test_a_spread_model_gives_the_numbers_of_the_whole(
    directory: Path, mapping: str | dict[str, int | str]
) -> None:
    spread, whole = load_model(directory, device_map=mapping), load_model(directory)
    np.testing.assert_array_equal(bits(spread), bits(whole))
    assert spread.to_dict() == whole.to_dict()
    assert weights_away(spread.model) == []


def test_an_adapter_on_a_spread_base_stays_apart(directory: Path, tmp_path: Path) -> None:
    save_adapter(directory, tmp_path / "adapter")
    spread = load_model(tmp_path / "adapter", device_map=SPREAD)
    np.testing.assert_allclose(bits(spread), bits(load_model(tmp_path / "adapter")), atol=1e-3)


def test_offloaded_embeddings_are_refused(directory: Path) -> None:
    with pytest.raises(ModelError, match="has its embeddings offloaded, so that inputs have no"):
        load_model(directory, device_map={**SPREAD, "model.embed_tokens": "disk"})


@pytest.fixture(autouse=True)
def levels_stay() -> Iterator[None]:
    """Loading makes libraries quiet, and then as they were."""
    before = logging.getLogger("torchao").level
    yield
    assert logging.getLogger("torchao").level == before
