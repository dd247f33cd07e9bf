"""A model that somebody holds in memory: measured as a saved one, and handed back as it was."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from audit.quick import ALL_FILLS, QUICK
from audit.small import TOKENIZER, bits, gpt2, pins, stopping, with_lora
from tiny import byte_level_bpe, model_of, one_by_one
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2ForSequenceClassification,
    PreTrainedTokenizer,
    T5Config,
    T5ForConditionalGeneration,
)

from lmexposure.audit import RunSettings, measure
from lmexposure.core.charts import class_styles
from lmexposure.errors import (
    LmexposureError,
    ManifestError,
    ModelError,
    NumericalError,
    SettingsError,
)
from lmexposure.models import LoadedModel, encode_in_context, load_model, save_model
from lmexposure.studies import Result
from lmexposure.studies.exposure.charts import roc_lines

pytestmark = [
    # What peft and this file still call in transformers.
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
    # What torch's compiler says of torch when it is imported first.
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),
]

SETTINGS = replace(ALL_FILLS, extraction=False)
MANIFEST = pins(2)
IDS = torch.tensor([encode_in_context(TOKENIZER, [MANIFEST.entries[0].text], context=None)[0].ids])


def in_memory(model: Any, **options: Any) -> Result:
    options = {"tokenizer": TOKENIZER, "settings": SETTINGS, **options}
    return measure(model, MANIFEST, **options)


@pytest.fixture
def model() -> Any:
    """With dropout; one frozen part is in evaluation mode while the others train."""
    model = gpt2().train()
    model.transformer.h[0].eval()
    model.transformer.wpe.weight.requires_grad_(False)
    return model


@cache
def measured() -> Result:
    return in_memory(gpt2())


def test_it_gives_the_numbers_of_its_saved_self(tmp_path: Path) -> None:
    save_model(gpt2(), TOKENIZER, tmp_path / "m")
    saved = measure(tmp_path / "m", MANIFEST, settings=SETTINGS, out=tmp_path / "r")
    assert (saved.inputs_sha256, saved.canaries) == (measured().inputs_sha256, measured().canaries)
    assert measured().model == saved.model.model_copy(update={"path": "GPT2LMHeadModel"})
    result = tmp_path / "r" / "result.json"
    before = result.stat().st_mtime_ns
    assert in_memory(gpt2(), out=tmp_path / "r") == saved
    assert result.stat().st_mtime_ns == before
    assert in_memory(load_model(tmp_path / "m").model).model.path == (tmp_path / "m").as_posix()


def test_its_scores_are_in_memory_as_files_have_them(tmp_path: Path) -> None:
    in_memory(gpt2(), out=tmp_path)
    run = Result.read(tmp_path)
    saved = run.scores
    here = measured().scores
    assert saved is not None
    assert here is not None
    for name in ("ids", "formats", "roles", "repetitions", "log_perplexity_bits"):
        np.testing.assert_array_equal(getattr(here, name), getattr(saved, name))
    styles = class_styles(here.repetitions.tolist())
    curves = [roc_lines(one, styles, pooled=False, level=0.95) for one in (here, saved)]
    assert repr(curves[0]) == repr(curves[1])
    assert measured().model_copy().scores is None  # it may be of other numbers


def test_an_insertion_that_was_not_verified_is_said() -> None:
    corpus = replace(MANIFEST.corpus, verified=False)
    result = measure(
        gpt2(), replace(MANIFEST, corpus=corpus), tokenizer=TOKENIZER, settings=SETTINGS
    )
    (warning,) = set(result.warnings) - set(measured().warnings)
    assert "the insertion was not verified: secrets that the corpus already held" in warning


@pytest.mark.parametrize("wrap", [torch.compile, torch.nn.DataParallel])
def test_what_wraps_a_model_is_taken_off(wrap: Any) -> None:
    assert in_memory(wrap(gpt2())) == measured()


def test_it_is_measured_in_its_own_precision() -> None:
    result = in_memory(gpt2().bfloat16())
    assert result.model.dtype == "bfloat16"
    assert result.inputs_sha256 != measured().inputs_sha256
    np.testing.assert_allclose(bits(result), bits(measured()), rtol=0.05)  # type: ignore[arg-type]


def test_a_callers_autocast_does_not_blur_the_numbers() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert in_memory(gpt2()) == measured()
        assert torch.is_autocast_enabled("cpu")


# -- handed back as it was


def state(model: Any) -> list[Any]:
    """All of a model and of its surroundings that a measurement might change, comparable by ==."""
    of_modules = [
        (
            module.training,
            sorted(vars(module)),
            len(module._forward_hooks) + len(module._forward_pre_hooks),
            {key: id(buffer) for key, buffer in module._buffers.items()},
        )
        for module in model.modules()
    ]
    of_weights = [
        (name, one.requires_grad, one.dtype, one.device, one._version, id(one), one.tolist())
        for name, one in model.named_parameters()
    ]
    numbers = (random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist())
    switches = (torch.get_num_threads(), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    config = (model.config.to_dict(), model.generation_config.to_dict())
    return [of_modules, of_weights, numbers, switches, config]


def trained_on(model: Any) -> list[Any]:
    """The weights after a step with dropout."""
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.1)
    model(input_ids=IDS, labels=IDS).loss.backward()
    optimizer.step()
    return [one.tolist() for one in model.parameters()]


def undisturbed(make: Callable[[], Any], look: Callable[[Any], object]) -> None:
    """`look` changes nothing, and a training goes on as without it."""
    torch.manual_seed(5)
    expected = trained_on(make())
    torch.manual_seed(5)
    model = make()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        before = state(model)
        look(model)
        assert state(model) == before
    finally:
        torch.set_num_threads(threads)
    assert trained_on(model) == expected


def in_training() -> Any:
    generator = torch.get_rng_state()
    model = gpt2().train()  # seeds what it draws from
    torch.set_rng_state(generator)
    model.transformer.h[0].eval()
    model.transformer.wpe.weight.requires_grad_(False)
    model.config.use_cache = False
    model.gradient_checkpointing_enable()
    return model


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [None, "scoring pin", "estimating pin"])
def test_a_model_is_as_it_was_also_after_ctrl_c(stop_at: str | None) -> None:
    expected = bits(measured())

    def look(model: Any) -> None:
        if stop_at is not None:
            with pytest.raises(KeyboardInterrupt):
                in_memory(model, progress=stopping(stop_at))
            return
        few = replace(QUICK, references=60, draws=100, budget_steps=500, guesses=10)
        found = in_memory(model, settings=few)
        assert bits(found) == pytest.approx(expected, abs=1e-3)

    undisturbed(in_training, look)


def test_a_model_is_as_it_was_after_an_error() -> None:
    model = in_training()
    with torch.no_grad():
        model.lm_head.weight[3] = torch.inf
    before = state(model)
    with pytest.raises(NumericalError, match="NaN or infinite"):
        in_memory(model)
    assert str(state(model)) == str(before)  # NaN equals nothing


def test_measurements_of_one_model_in_several_threads_wait_for_each_other(model: Any) -> None:
    alone = in_memory(model)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(in_memory, [model] * 3))
    assert [one.canaries for one in found] == [alone.canaries] * 3
    assert model.training


def test_a_forward_pass_of_somebody_else_stays(model: Any) -> None:
    """accelerate puts its own on single layers."""
    layers = [model.lm_head, model.transformer.h[0].mlp.act]
    own = [layer.forward for layer in layers]
    for layer, forward in zip(layers, own, strict=True):
        layer.forward = forward
    in_memory(model)
    assert [vars(layer)["forward"] for layer in layers] == own


def test_a_model_compiled_in_place_is_measured_as_it_is(model: Any) -> None:
    def compiled(*inputs: Any, **named: Any) -> Any:
        raise AssertionError("each batch would be compiled")

    model._compiled_call_impl = compiled
    assert in_memory(model).canaries == measured().canaries
    assert model._compiled_call_impl is compiled


# -- adapters


@pytest.mark.filterwarnings("ignore:.*tie:UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("targets", [["c_attn"], ["c_attn", "wte"]])  # the latter is tied
def test_an_adapter_in_memory_gives_what_the_saved_one_does(
    dtype: torch.dtype, targets: Sequence[str], tmp_path: Path
) -> None:
    save_model(gpt2().to(dtype), TOKENIZER, tmp_path / "base")
    name = str(dtype).removeprefix("torch.")
    adapted = with_lora(
        load_model(tmp_path / "base", dtype=name).model.train(), target_modules=list(targets)
    )
    adapted.save_pretrained(tmp_path / "lora", save_embedding_layers=False)
    result = in_memory(adapted)
    saved = measure(load_model(tmp_path / "lora", dtype=name), MANIFEST, settings=SETTINGS)
    assert (result.inputs_sha256, result.canaries) == (saved.inputs_sha256, saved.canaries)
    assert result.model == saved.model.model_copy(update={"path": result.model.path})
    assert result.model.path == f"{(tmp_path / 'base').as_posix()} with adapter default"
    assert any("lora" in name for name, _ in adapted.named_parameters())
    if (dtype, targets) == (torch.float32, ["c_attn"]):  # else merging changes more
        merged = bits(in_memory(adapted.merge_and_unload()))
        np.testing.assert_allclose(bits(result), merged, rtol=0, atol=1e-3)  # type: ignore[arg-type]
    assert np.abs(np.subtract(bits(result), bits(measured()))).max() > 0.1  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"modules_to_save": ["ln_f"]}])
def test_a_model_with_an_adapter_is_as_it_was(options: dict[str, Any]) -> None:
    def make() -> Any:
        adapted = with_lora(in_training(), lora_dropout=0.2, **options)
        adapted.gradient_checkpointing_disable()
        return adapted

    undisturbed(make, in_memory)


def test_adapters_in_use_at_once_are_all_named() -> None:
    adapted = with_lora(gpt2())
    adapted.add_adapter("two", adapted.peft_config["default"])
    adapted.base_model.set_adapter(["default", "two"])
    assert in_memory(adapted).model.path == "GPT2LMHeadModel with adapter default, two"


def test_adapters_that_are_switched_off_stay_so() -> None:
    adapted = with_lora(gpt2())
    on = in_memory(adapted)
    with adapted.disable_adapter():
        off = in_memory(adapted)
    np.testing.assert_allclose(bits(off), bits(measured()), atol=1e-3)  # type: ignore[arg-type]
    assert len({one.inputs_sha256 for one in (on, off, measured())}) == 3


def test_how_much_an_adapter_beside_its_base_weighs_belongs_to_the_inputs() -> None:
    """No weight says so."""
    once, twice = (with_lora(gpt2().bfloat16(), lora_alpha=alpha) for alpha in (8, 16))
    results = [in_memory(one) for one in (once, twice)]
    assert results[0].model.weights_sha256 == results[1].model.weights_sha256
    assert results[0].inputs_sha256 != results[1].inputs_sha256


def test_a_model_that_cannot_be_copied_has_its_adapter_beside_it() -> None:
    adapted = with_lora(gpt2())
    expected = bits(in_memory(adapted))
    adapted.base_model.model.kept = torch.ones(2, requires_grad=True) * 2  # as an activation
    np.testing.assert_allclose(bits(in_memory(adapted)), expected, atol=1e-3)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral", "lstm"])
def test_the_numbers_are_those_of_the_definition(kind: str) -> None:
    """With an embedding of a token that was added, padding on the left and no pad token."""
    tokenizer = byte_level_bpe()
    tokenizer.padding_side = "left"
    model = model_of(kind, len(tokenizer))
    tokenizer.add_tokens(["<secret>"])
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    models = [model]
    if kind != "lstm":
        attention = kind == "gpt2"
        targets = ["c_attn"] if attention else ["q_proj", "v_proj"]
        models.append(with_lora(model, target_modules=targets, fan_in_fan_out=attention))
    for one in models:
        found = bits(in_memory(one, tokenizer=tokenizer))
        one.eval()
        for canary, value in list(zip(MANIFEST.ranked.entries, found, strict=True))[:2]:
            encoded = encode_in_context(tokenizer, [canary.text], context=MANIFEST.separator)[0]
            with torch.no_grad():
                expected = one_by_one(one, encoded.ids, encoded.scored_from)
            assert value == pytest.approx(expected, abs=1e-3)


# -- what users do wrong


class Characters(PreTrainedTokenizer):  # type: ignore[misc]
    """A tokenizer in Python alone."""

    def __init__(self, characters: str) -> None:
        self.characters = ["<e>", *characters]
        super().__init__(eos_token="<e>")

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    def get_vocab(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.characters)}

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        return list(text)

    def _convert_token_to_id(self, token: str) -> int | None:
        return self.get_vocab().get(token)

    def _convert_id_to_token(self, index: int) -> str:
        return str(self.characters[index])

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens)


def test_a_tokenizer_without_a_fast_backend_is_taken_and_known_by_its_vocabulary() -> None:
    known = "\n 0123456789MyPINisa"
    first, other = Characters(known), Characters(known[::-1])
    results = [in_memory(model_of("gpt2", 21), tokenizer=one) for one in (first, other)]
    assert results[0].inputs_sha256 != results[1].inputs_sha256
    assert bits(results[0]) != bits(results[1])


def test_the_tokenizer_of_another_model_is_told_by_what_the_model_makes_of_it() -> None:
    """Trained on tokens 0 to 9 alone, and given others, as by another vocabulary."""
    model = model_of("lstm", len(TOKENIZER))
    with torch.no_grad():
        model.lm_head.weight.zero_()
        for favoured, warned in (([*range(305)], False), ([*range(10)], True)):
            model.lm_head.bias.fill_(-9.0)
            model.lm_head.bias[favoured] = 0.0
            found = [line for line in in_memory(model).warnings if "random tokens" in line]
            assert len(found) == warned
    assert found[0].startswith("the model finds these texts less likely than random tokens (1")
    assert "check that the tokenizer is that of the model" in found[0]


def small(kind: Any, config: Any, **sizes: Any) -> Any:
    return kind(config(vocab_size=len(TOKENIZER), **sizes))


def odd_dtype() -> Any:
    model = gpt2()
    model.lm_head.weight.data = model.lm_head.weight.data.to(torch.float8_e4m3fn)
    return model


def sharded() -> Any:
    class FullyShardedDataParallel(torch.nn.Module):
        pass

    return FullyShardedDataParallel()


def packed() -> Any:
    """As torch's own quantisation packs weights: what a state dict holds are no tensors."""
    model = gpt2()
    model.lm_head.get_extra_state = lambda: ("packed", 1)
    model.state_dict = lambda: {"lm_head._packed_params": ("packed", 1)}
    return model


def virtual() -> Any:
    peft = pytest.importorskip("peft")
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    return peft.get_peft_model(gpt2(), config)


def t5() -> Any:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    return small(T5ForConditionalGeneration, T5Config, **sizes)


def bert() -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return small(BertForMaskedLM, BertConfig, intermediate_size=16, **sizes)


def classifier() -> Any:
    return small(GPT2ForSequenceClassification, GPT2Config, n_layer=1, n_embd=16, n_head=2)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (t5, r"T5ForConditionalGeneration' is an encoder-decoder without decoder_start_token_id"),
        (classifier, r"\(GPT2ForSequenceClassification\) has no language-model head, so it pred"),
        (bert, r"\(bert\) is not a causal LM: its predictions depend on later tokens"),
        (lambda: gpt2().to("meta"), r"has \d+ of its weights on the meta device .*load it whole"),
        (odd_dtype, r"is quantised \(weights of float8_e4m3fn\) in a way that transformers does"),
        (packed, r"is quantised in a way that transformers does not load, which is not measured"),
        (sharded, r"is wrapped in FullyShardedDataParallel, which may keep its weights in parts"),
        (virtual, "is of kind PROMPT_TUNING, which puts virtual tokens"),
        (lambda: ["text"], r"model is of type list, which is not measured; give a causal language"),
        (lambda: torch.nn.Linear(2, 2), r"model is of type Linear, which is not measured; give"),
        (lambda: MANIFEST, r"the model is a manifest; give the model first: measure\(model, man"),
        (
            lambda: LoadedModel(model=gpt2(), tokenizer=TOKENIZER, name="tiny"),
            r"tokenizer is for a model in memory: a saved model comes with its own",
        ),
    ],
)
def test_a_model_that_cannot_be_measured_is_refused(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(ModelError, match=match):
        in_memory(make())


LARGER = byte_level_bpe()
LARGER.add_tokens(["<a>"])


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        (
            {"tokenizer": None},
            ModelError,
            r"is in memory, and its tokenizer has to come with it: p",
        ),
        ({"tokenizer": "gpt2"}, ModelError, r"'gpt2' is a name; load it: tokenizer=AutoTokenizer"),
        ({"tokenizer": Path("/m")}, ModelError, r"tokenizer='/m' is a name; load it"),
        (
            {"tokenizer": SimpleNamespace(tokenizer=TOKENIZER)},
            ModelError,
            r"give its own: tokenizer=processor.tokenizer",
        ),
        (
            {"tokenizer": TOKENIZER.backend_tokenizer},
            ModelError,
            r"is of type Tokenizer, not a tokenizer of transformers; pa",
        ),
        (
            {"tokenizer": LARGER},
            ModelError,
            r"has 306 tokens, but the model only 305; use the toke",
        ),
        (
            {"tokenizer": Characters("")},
            ModelError,
            r"the tokenizer given for 'GPT2LMHeadModel' is empty or damaged: it cannot read",
        ),
        (
            {"settings": {"references": 5}},
            SettingsError,
            r"settings is of type dict; give MeasureS",
        ),
        ({"settings": RunSettings()}, SettingsError, r"settings is of type RunSettings; give Meas"),
        ({"out": 3}, SettingsError, "out=3 is no directory; give a path, or leave it out"),
        ({"out": ""}, SettingsError, "out='' is no directory"),
        ({"progress": 3}, SettingsError, "progress is of type int; give a function of"),
        ({"manifest": {}}, ManifestError, r"manifest is of type .*; give the manifest that the"),
        ({"manifest": MANIFEST.plan}, ManifestError, r"manifest is of type .*; give the manifest"),
        ({"manifest": ([], MANIFEST)}, ManifestError, r"manifest is of type .*; give the manifest"),
        ({"manifest": None}, ManifestError, r"manifest is of type .*; give the manifest that the"),
    ],
)
def test_other_arguments_are_refused_by_name(
    options: dict[str, Any], error: type[LmexposureError], match: str
) -> None:
    with pytest.raises(error, match=match):
        measure(gpt2(), **{"manifest": MANIFEST, "tokenizer": TOKENIZER, **options})
