"""The model before the fine-tuning on the same texts: what was likely, and what was added."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audit.quick import ALL_FILLS, SAMPLED
from audit.small import TOKENIZER, base_bits, bits, gpt2, loaded_of, pins, stopping, with_lora
from known import known
from tiny import byte_level_bpe, from_settings, model_of

from lmexposure.audit import measure
from lmexposure.canaries import Format
from lmexposure.errors import ModelError, NumericalError, ResultError
from lmexposure.models import LoadedModel, load_model, save_model, weights_sha256
from lmexposure.scoring import TorchModel, log_perplexity
from lmexposure.scoring import base_model as base_module
from lmexposure.studies import Result

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")

PIN = Format(name="pin", template="My PIN is {digits:3}")
MANIFEST = pins(3, canaries=3, controls=3)


def measured(model: Any, base: Any, **options: Any) -> Result:
    named = {} if isinstance(model, str | Path) else {"tokenizer": TOKENIZER}
    return measure(model, MANIFEST, base=base, **{**named, "settings": SAMPLED, **options})


def calibrated(result: Result) -> list[float | None]:
    return [canary.estimates["calibrated"].value for canary in result.canaries]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base, an adapter of it, and another model of the same shape."""
    path = tmp_path_factory.mktemp("models")
    save_model(gpt2(), TOKENIZER, path / "base")
    with_lora(load_model(path / "base").model).save_pretrained(path / "lora")
    other = gpt2()
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(torch.randn_like(weight) * 0.02)
    save_model(other, TOKENIZER, path / "other")
    return path


@pytest.fixture(scope="module")
def off(places: Path) -> Result:
    """The saved adapter beside the model without it."""
    return measured(places / "lora", "adapter-off")


def test_calibrated_exposures_are_ranks_of_differences(off: Result, places: Path) -> None:
    """Counted here fill by fill."""
    models = [load_model(places / name).model for name in ("lora", "base")]
    indices = MANIFEST.references("pin", 60)
    texts = [canary.text for canary in MANIFEST.entries] + [PIN.text(i) for i in indices]
    own, base = (
        log_perplexity(model, TOKENIZER, texts, context=MANIFEST.separator) for model in models
    )
    saved, under_base = base - own, base_bits(off)
    for i, canary in enumerate(off.canaries):
        rank = 1 + sum(other >= saved[i] for other in saved[len(MANIFEST.entries) :])
        assert canary.estimates["calibrated"].rank == rank
        assert canary.estimates["calibrated"].value == pytest.approx(math.log2(60 / rank))
        assert under_base[i] == pytest.approx(base[i], abs=1e-3)
    assert [row.key for row in known(off.base).classes] == [row.key for row in off.summary]
    assert off.summary[0].other_medians["calibrated"] == pytest.approx(
        known(off.base).classes[0].calibrated.value
    )


@pytest.mark.slow
def test_what_is_given_as_base_makes_no_difference(off: Result, places: Path) -> None:
    """The adapter switched off, saved or in memory, and its base, by path, loaded or in memory."""
    adapted = with_lora(load_model(places / "base").model)
    found = [
        measured(places / "lora", places / "base"),
        measured(places / "lora", load_model(places / "base")),
        measured(places / "lora", load_model(places / "base").model),
        measured(adapted, "adapter-off"),
        measured(adapted, places / "base"),
    ]
    for result in found:
        np.testing.assert_allclose(base_bits(result), base_bits(off), atol=1e-3)
        assert known(result.base).weights_sha256 == known(off.base).weights_sha256
        assert calibrated(result) == calibrated(off)
    assert [i for i, result in enumerate(found) if known(result.base).switched_off] == [3]
    plain = measured(places / "base", None)
    assert plain.base is None
    assert base_bits(off) == bits(plain)
    assert known(off.base).weights_sha256 == plain.model.weights_sha256


def test_nothing_else_moves_with_a_base(off: Result, places: Path) -> None:
    plain = measured(places / "lora", None)
    assert plain.inputs_sha256 != off.inputs_sha256
    for canary, alone in zip(off.canaries, plain.canaries, strict=True):
        others = {name: e for name, e in canary.estimates.items() if name != "calibrated"}
        assert (canary.exposure, others) == (alone.exposure, alone.estimates)
    frame = off.to_frame()
    assert list(frame["calibrated_exposure"]) == calibrated(off)
    assert list(frame["base_log_perplexity_bits"]) == base_bits(off)
    assert "base_exposure" in frame
    assert "base_exposure" not in plain.to_frame()


@pytest.mark.filterwarnings("ignore:.*tie:UserWarning")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"modules_to_save": ["ln_f"]},
        {"trainable_token_indices": {"wte": [1, 2, 3]}},
        {"target_modules": ["c_attn", "wte"]},
    ],
)
def test_an_adapter_in_memory_is_as_it_was(options: dict[str, Any]) -> None:
    adapted = with_lora(gpt2().bfloat16(), **options).train()
    before = [(name, w.requires_grad, w.clone()) for name, w in adapted.named_parameters()]
    result = measured(adapted, "adapter-off")
    assert known(result.base).weights_sha256 == weights_sha256(gpt2().bfloat16())
    after = adapted.named_parameters()
    for (name, trains, weight), (same, now) in zip(before, after, strict=True):
        assert (name, trains) == (same, now.requires_grad)
        assert torch.equal(weight, now)
    assert adapted.training
    assert measured(adapted, "adapter-off") == result  # it was switched on again


def test_where_all_fills_are_scored_the_controls_belong_to_the_null(places: Path) -> None:
    result = measure(
        places / "lora",
        pins(1, repetitions=(4,)),
        base="adapter-off",
        settings=replace(ALL_FILLS, estimate="sampled", extraction=False),
    )
    for canary in result.canaries:
        found = canary.estimates["calibrated"]
        of = 10 if canary.role == "canary" else 6
        assert found.value == pytest.approx(math.log2(of / (found.rank or 0)))
        assert (found.low == found.value == found.high) == (canary.role == "canary")


def test_a_kept_part_is_not_scored_again(places: Path, tmp_path: Path, off: Result) -> None:
    given: dict[str, Any] = {"base": "adapter-off", "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        measured(places / "lora", **given, progress=stopping("estimating"))
    assert list((tmp_path / "run").glob(".work/pin.base.json-*"))
    seen: list[str] = []
    result = measured(places / "lora", **given, progress=lambda what, *_: seen.append(what))
    assert result == off.model_copy(update={"scores_sha256": result.scores_sha256})
    assert "scoring pin under the base" not in seen
    assert Result.read(tmp_path / "run" / "result.json") == result
    scores = known(Result.read(tmp_path / "run" / "result.json").scores)
    drawn = np.isin(scores.roles, ("canary", "control"))
    assert known(scores.base_log_perplexity_bits)[drawn].tolist() == base_bits(off)
    with pytest.raises(ResultError, match="holds the result of another model"):
        measured(places / "lora", None, out=tmp_path / "run")


# -- what is refused


def cutting_otherwise() -> LoadedModel:
    """A base whose tokenizer has the same tokens, and merges none."""
    values = json.loads(TOKENIZER.backend_tokenizer.to_str())
    values["model"]["merges"] = []
    return LoadedModel(model=gpt2(), tokenizer=from_settings(values), name="cut")


def with_its_adapter_merged() -> Any:
    adapted = with_lora(gpt2())
    adapted.merge_adapter()
    return adapted


def short() -> Any:
    model = gpt2()
    model.config.n_positions = 3
    return model


ANOTHER = "not what the adapter of .* was trained on.*or base='adapter-off'"
NO_ADAPTER = r"no adapter that could be switched off"


@pytest.mark.parametrize(
    ("model", "base", "match"),
    [
        ("base", "base", r"the very weights of the measured model.*give the model"),
        ("lora", "other", ANOTHER),
        (lambda: with_lora(gpt2()), "other", ANOTHER),
        ("base", lambda: loaded_of("gpt2"), r"another tokenizer .* tokens are others by their num"),
        ("lora", cutting_otherwise, "cuts the canaries into other tokens"),
        (lambda: with_lora(gpt2()).merge_and_unload(), None, f"{NO_ADAPTER}: it was merged"),
        ("base", None, NO_ADAPTER),
        (with_its_adapter_merged, None, r"is merged into its weights.*call unmerge_adapter\(\)"),
        ("other", short, r"reads 3 tokens, and a text has \d+ .*context window"),
        ("base", lambda: "./nowhere", r"no base: model './nowhere': no such directory"),
    ],
)
def test_what_is_no_base_is_refused(places: Path, model: Any, base: Any, match: str) -> None:
    """What lies in a place, or is made; a base None: the adapter switched off."""
    given = places / model if isinstance(model, str) else model()
    before = "adapter-off" if base is None else places / base if isinstance(base, str) else base()
    with pytest.raises(ModelError, match=match):
        measured(given, before)


def test_after_a_full_fine_tuning_all_weights_differ(places: Path) -> None:
    assert known(measured(places / "base", places / "other").base).path.endswith("other")


def test_tokens_that_the_base_does_not_have() -> None:
    large, more = model_of("gpt2", len(TOKENIZER) + 3), byte_level_bpe()
    more.add_special_tokens({"bos_token": "<s>"})  # before each text
    with pytest.raises(ModelError, match=r"hold tokens that base model .* does not have .*without"):
        measured(large, _loaded(gpt2()), tokenizer=more)


def test_a_broken_base_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with broken weights is refused before it scores; here it is not looked at."""
    broken = gpt2()
    with torch.no_grad():
        broken.transformer.ln_f.weight.fill_(float("nan"))
    monkeypatch.setattr(
        base_module, "model_in_memory", lambda model, tokenizer: TorchModel.of(_loaded(model))
    )
    with pytest.raises(NumericalError, match="base model 'GPT2LMHeadModel': "):
        measured(gpt2(), broken)


def _loaded(model: Any) -> Any:
    return LoadedModel(model=model.eval(), tokenizer=TOKENIZER, name=type(model).__name__)
