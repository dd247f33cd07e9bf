"""Every implementation of what a measurement asks of a model has every member of the protocols."""

import json
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import byte_level_bpe, characters, model_of, one_by_one

from lmexposure.core import LanguageModel, Stepping, TokenModel
from lmexposure.errors import InputError, ModelError
from lmexposure.models import weights_sha256
from lmexposure.scoring import BaseModel, TorchModel, WholeSteps

TEXTS = ["My PIN is 0042", "281265017", "The random number is 28"]
NOTES = ("of a test",)
ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"


def _made(kind: str, cls: type[TorchModel] = TorchModel, **values: Any) -> TorchModel:
    tokenizer = characters() if kind == "lstm" else byte_level_bpe()
    return cls(
        model=model_of(kind, len(tokenizer)),
        tokenizer=tokenizer,
        name="tiny",
        notes=NOTES,
        **values,
    )


def _in_half() -> TorchModel:
    made = _made("gpt2")
    made.model.to(torch.bfloat16)
    return made


def _adapted() -> TorchModel:
    from peft import LoraConfig, get_peft_model

    made = _made("llama", BaseModel, switched_off=True, adapters=True)
    plan = LoraConfig(target_modules=["q_proj"], init_lora_weights=False)
    get_peft_model(made.model, plan)
    return made


MAKERS: dict[str, Callable[[], TorchModel]] = {
    "lstm": lambda: _made("lstm"),
    "gpt2": lambda: _made("gpt2"),
    "half": _in_half,
    "base": lambda: _made("mistral", BaseModel),
    "switched off": _adapted,
}
# The same weights without what the implementation adds to them.
PLAIN = {"switched off": lambda: model_of("llama", len(byte_level_bpe()))}


@cache
def made(name: str) -> Stepping[WholeSteps]:
    return MAKERS[name]()  # a type checker sees that all is there


@cache
def plain(name: str) -> Any:
    return PLAIN[name]() if name in PLAIN else deepcopy(MAKERS[name]().model)


def _encoded(lm: Any) -> Any:
    return lm.encode(TEXTS, "\n")


def _slack(lm: TokenModel) -> float:
    return lm.rounding * max(len(text.ids) for text in _encoded(lm))


def check_name(lm: LanguageModel, model: Any) -> None:
    assert lm.name == "tiny"


def check_identity(lm: LanguageModel, model: Any) -> None:
    assert lm.identity == weights_sha256(model)


def check_notes(lm: LanguageModel, model: Any) -> None:
    assert lm.notes == NOTES


def check_rounding(lm: LanguageModel, model: Any) -> None:
    assert lm.rounding == (0.25 if model.dtype == torch.bfloat16 else 1e-3)


@torch.no_grad()
def check_bits(lm: TokenModel, model: Any) -> None:
    slow = [one_by_one(model, text.ids, text.scored_from) for text in _encoded(lm)]
    np.testing.assert_allclose(lm.bits(TEXTS, "\n"), slow, rtol=0, atol=_slack(lm))
    with pytest.raises(InputError, match="texts is one string"):
        lm.bits("a text")


def check_window(lm: TokenModel, model: Any) -> None:
    assert lm.window == (None if "Lstm" in type(model).__name__ else 96)


def check_vocabulary(lm: TokenModel, model: Any) -> None:
    assert lm.vocabulary == model(input_ids=torch.tensor([[1, 2]])).logits.shape[-1]


def check_token_bits(lm: TokenModel, model: Any) -> None:
    """What several texts share is computed once, and the order is that of the texts."""
    many, told = _encoded(lm) * 8, list[tuple[int, int]]()
    scores = lm.token_bits(many, batch_size=5, progress=lambda *done: told.append(done))
    assert scores.tokens.tolist() == [len(text.ids) - text.scored_from for text in many]
    np.testing.assert_allclose(scores.totals[:3], lm.bits(TEXTS, "\n"), rtol=0, atol=_slack(lm))
    np.testing.assert_array_equal(scores.bits_from(0), scores.totals)
    assert told[-1] == (24, 24)


def check_size(lm: Stepping[WholeSteps], model: Any) -> None:
    whole = lm.model if isinstance(lm, TorchModel) else model  # with an adapter that is off
    assert lm.size == sum(weight.numel() for weight in whole.parameters())


def check_steps(lm: Stepping[WholeSteps], model: Any) -> None:
    text = _encoded(lm)[0]
    if isinstance(lm, BaseModel) and lm.adapters:
        with pytest.raises(ModelError, match="gives bits and no steps; load the base by its own"):
            lm.steps(text.ids)
        return
    steps = lm.steps(text.ids)
    state, bits = steps.start(text.ids[:-2], np.array(text.ids[-2:-1]))
    nowhere = np.zeros(1, dtype=np.int64)
    walked = steps.advance(
        state, nowhere, np.array(text.ids[-2:-1]), nowhere, np.array(text.ids[-1:])
    )
    last = lm.token_bits([text]).bits[0][-2:]
    np.testing.assert_allclose([*bits, *walked[1]], last, rtol=0, atol=lm.rounding)


CHECKS: dict[str, Callable[[Any, Any], None]] = {
    "name": check_name,
    "identity": check_identity,
    "notes": check_notes,
    "rounding": check_rounding,
    "bits": check_bits,
    "window": check_window,
    "vocabulary": check_vocabulary,
    "token_bits": check_token_bits,
    "size": check_size,
    "steps": check_steps,
}


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("member", CHECKS)
@pytest.mark.parametrize("name", MAKERS)
def test_every_implementation_has_every_member(name: str, member: str) -> None:
    CHECKS[member](made(name), plain(name))


def test_there_are_ten_members_and_the_documentation_names_them() -> None:
    protocols = (LanguageModel, TokenModel, Stepping)
    members = {name for each in protocols for name in vars(each) if not name.startswith("_")}
    assert members == set(CHECKS)
    assert len(members) <= 10
    rows = [line for line in ARCHITECTURE.read_text(encoding="utf-8").splitlines() if "|" in line]
    for each in protocols:
        (row,) = (row for row in rows if row.startswith(f"| `{each.__name__}`"))
        assert all(f"`{name}`" in row for name in vars(each) if not name.startswith("_"))


def test_a_model_that_was_trained_on_has_another_identity() -> None:
    before = _made("gpt2")
    identity = before.identity
    with torch.no_grad():
        before.model.lm_head.weight[0, 0] += 1
    assert before.identity == identity  # computed once
    assert TorchModel.of(before).identity == weights_sha256(before.model) != identity


def test_what_decides_the_numbers_is_plain_and_says_nothing_of_the_place() -> None:
    here, there = _made("gpt2"), _made("gpt2")
    there.model.config._name_or_path = "/elsewhere"
    assert json.dumps(here.decisive()) == json.dumps(there.decisive())
    there.tokenizer.add_tokens(["<new>"])
    assert here.decisive() != there.decisive()
