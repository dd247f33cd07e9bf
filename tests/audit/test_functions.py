"""A function of token ids is measured as the model behind it."""

import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audit.quick import ALL_FILLS, QUICK
from audit.small import TOKENIZER, gpt2, pins
from numpy.typing import NDArray
from scoring.families import family
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedTokenizerBase

from lmexposure.audit import measure
from lmexposure.errors import ModelError
from lmexposure.models import LoadedModel, functions, language_model
from lmexposure.models.other_tokenizers import as_tokenizer
from lmexposure.scoring import TorchModel, step_pace

MANIFEST = pins(2)
SETTINGS = replace(QUICK, references=90)
MODEL = gpt2().eval()
WINDOW = int(MODEL.config.n_positions)
EXAMPLE = Path(__file__).parents[2] / "scripts" / "examples" / "any_model.py"
V = int(MODEL.config.vocab_size)
Ids = NDArray[np.int64]


def function(logits: Callable[[Any], Any], **given: Any) -> LoadedModel:
    return language_model(logits, **{"tokenizer": TOKENIZER, "window": WINDOW, **given})


def whole(ids: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = MODEL(torch.as_tensor(ids)).logits
    return found


@pytest.fixture(scope="module")
def local() -> Any:
    return measure(MODEL, MANIFEST, tokenizer=TOKENIZER, settings=SETTINGS)


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "a module": (MODEL, {}),
    "tensors, as a nanoGPT with targets": (lambda ids: (MODEL(ids).logits, None), {}),
    "arrays": (lambda ids: whole(ids).detach().numpy(), {}),
    "log-probabilities": (lambda ids: whole(ids).log_softmax(-1), {}),
    "the last place alone": (lambda ids: whole(ids)[:, -1], {"last_only": True}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_numbers_of_the_model_behind_it(name: str, local: Any) -> None:
    logits, given = FUNCTIONS[name]
    size = sum(weight.numel() for weight in MODEL.parameters())
    found = measure(function(logits, parameters=size, **given), MANIFEST, settings=SETTINGS)
    ours, theirs = found.to_frame(), local.to_frame()
    bits = "log_perplexity_bits"
    np.testing.assert_allclose(ours[bits], theirs[bits], atol=1e-4)
    for column in ("exposure", "rank"):
        np.testing.assert_allclose(ours[column], theirs[column], atol=1e-3)
    assert found.model.type == "function"
    assert local.model.weights_sha256 != found.model.weights_sha256


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen2", "gpt_neox", "mamba", "lstm"])
def test_ranks_are_those_of_every_architecture(name: str) -> None:
    model = family(name, len(TOKENIZER))
    reading = function(lambda ids: model(torch.as_tensor(ids)).logits)
    found = measure(reading, MANIFEST, settings=SETTINGS).to_frame()
    local = measure(model, MANIFEST, tokenizer=TOKENIZER, settings=SETTINGS).to_frame()
    assert found["method"].str.startswith("exact").all()
    assert list(found["rank"]) == list(local["rank"])
    bits = "log_perplexity_bits"
    np.testing.assert_allclose(found[bits], local[bits], atol=1e-4)


def test_few_tokens_are_asked_at_once_and_no_prefix_twice(
    local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(functions._BLOCK_TOKENS, "cpu", 128)
    asked: list[Ids] = []

    def last(ids: Ids) -> torch.Tensor:
        asked.append(ids.copy())
        return whole(torch.as_tensor(ids))[:, -1]

    model = function(last, last_only=True)
    asked.clear()
    found = measure(model, MANIFEST, settings=SETTINGS)
    bits = "log_perplexity_bits"
    np.testing.assert_allclose(found.to_frame()[bits], local.to_frame()[bits], atol=1e-4)
    assert max(ids.size for ids in asked) <= 128
    assert all(len(np.unique(ids, axis=0)) == len(ids) for ids in asked)


def test_the_pace_of_a_step_is_of_steps_that_were_not_asked_before() -> None:
    rows: list[int] = []

    def counted(ids: Ids) -> torch.Tensor:
        rows.append(len(ids))
        return whole(torch.as_tensor(ids))

    model = TorchModel.of(function(counted))
    rows.clear()
    step_pace(model, TOKENIZER(MANIFEST.canaries[0].text)["input_ids"])
    assert sum(rows) >= 1 + 16 + 16 + 256


class Dropping(nn.Module):
    """A module with dropout, which is measured without."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.drop = MODEL, nn.Dropout(0.5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        dropped: torch.Tensor = self.drop(self.model(ids).logits)
        return dropped


def test_a_module_is_asked_without_dropout_and_left_as_it_was() -> None:
    module = Dropping().train()
    module.model.eval()
    loaded = function(module)
    measure(loaded, MANIFEST, settings=replace(ALL_FILLS, references=20, estimate="sampled"))
    assert module.training
    assert not module.model.training


class Counting:
    """A function that adds what it was asked before."""

    calls = 0

    def __call__(self, ids: Ids) -> torch.Tensor:
        self.calls += 1
        return whole(torch.as_tensor(ids)) + self.calls * torch.arange(V) / V


def looking_ahead(ids: Ids) -> torch.Tensor:
    return whole(torch.as_tensor(ids).flip(1)).flip(1)


def by_the_batch(ids: Ids) -> torch.Tensor:
    found = whole(torch.as_tensor(ids))
    return found - found.mean(0, keepdim=True) * (len(ids) > 1)


def failing(ids: Ids) -> None:
    raise RuntimeError("no such layer")


def forgetful(ids: Ids) -> torch.Tensor:
    """Of a context window of 9, which is said to be larger: the beginning is cut off."""
    found = whole(torch.as_tensor(ids)[:, -9:])
    missing = max(0, ids.shape[1] - found.shape[1])
    return torch.cat([found[:, :1].expand(-1, missing, -1), found], dim=1)


def of_many(ids: Ids) -> torch.Tensor:
    found = whole(torch.as_tensor(ids))
    return found - found.mean(0, keepdim=True) * (len(ids) > 3)


def late(ids: Ids) -> torch.Tensor:
    """It looks ahead where the row is longer than a first trial."""
    return looking_ahead(ids) if ids.shape[1] > 8 else whole(torch.as_tensor(ids))


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "surprisals": (lambda ids: -whole(ids).log_softmax(-1), "gives surprisals"),
    "base 2": (lambda ids: whole(ids).log_softmax(-1) / np.log(2), "of base 2; return natural"),
    "base 10": (lambda ids: whole(ids).log_softmax(-1) / np.log(10), "of base 10; return natural"),
    "percent": (lambda ids: 100 * whole(ids).softmax(-1), "gives probabilities"),
    "whole numbers": (lambda ids: (100 * whole(ids)).long(), "gives torch.int64"),
    "cropped": (forgetful, "reads fewer tokens than it says"),
    "many rows": (of_many, "beside other rows"),
    "late": (late, "looks ahead"),
    "last": (lambda ids: whole(ids)[:, -1:], "the last place alone; return the logits of every"),
    "flat": (lambda ids: whole(ids)[0], "gives shape .* return logits of shape .rows, tokens"),
    "few": (lambda ids: whole(ids)[..., :5], "the tokenizer has .* tokens; give the tokenizer"),
    "probabilities": (lambda ids: whole(ids).softmax(-1), "gives probabilities; return logits"),
    "nan": (lambda ids: whole(ids) * float("nan"), "NaN"),
    "dropout": (lambda ids: nn.functional.dropout(whole(ids), 0.5), "by chance; switch dropout"),
    "state": (Counting(), "when it is asked again; let it begin anew"),
    "ahead": (looking_ahead, "looks ahead, or reads fewer tokens than it says"),
    "batch": (by_the_batch, "beside other rows; let no number depend on the rest"),
    "failing": (failing, "raised RuntimeError on token ids of shape .* .no such layer"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_function_is_named(name: str) -> None:
    logits, message = WRONG[name]
    with pytest.raises(ModelError, match=message):
        function(logits)


def test_memory_that_is_given_again_is_copied(local: Any) -> None:
    kept: dict[Any, torch.Tensor] = {}

    def again(ids: Ids) -> torch.Tensor:
        found = whole(torch.as_tensor(ids))[:, -1]
        ids[:] = 0  # what it gets is its own, too
        return kept.setdefault(found.shape, torch.empty_like(found)).copy_(found)

    found = measure(function(again, last_only=True), MANIFEST, settings=SETTINGS)
    bits = "log_perplexity_bits"
    np.testing.assert_allclose(found.to_frame()[bits], local.to_frame()[bits], atol=1e-4)


def test_what_goes_wrong_only_later_is_said() -> None:
    calls = iter(range(10**6))

    def failing_late(ids: Ids) -> torch.Tensor:
        if next(calls) > 20:
            raise KeyError("boom")
        return whole(torch.as_tensor(ids))

    def shorter_late(ids: Ids) -> torch.Tensor:
        return whole(torch.as_tensor(ids))[:, : 100 if next(calls) < 30 else -1]

    for logits, message in (
        (failing_late, "raised KeyError on token ids of shape .*must take any number of rows"),
        (shorter_late, "gave shape .* was asked for"),
    ):
        model = function(logits)
        with pytest.raises(ModelError, match=message):
            measure(model, MANIFEST, settings=SETTINGS)


def test_the_last_place_of_a_nanogpt_is_taken_where_it_is_said() -> None:
    with pytest.raises(ModelError, match=r"return logits of shape \(rows, vocabulary\)"):
        function(lambda ids: whole(ids)[:, -1:], last_only=True)
    with pytest.raises(ModelError, match="the same whatever the last token is"):
        function(lambda ids: whole(ids)[:, 0], last_only=True)
    with pytest.raises(ModelError, match="give a function from token ids"):
        language_model("gpt2", tokenizer=TOKENIZER, window=8)  # type: ignore[arg-type]


CHARACTERS = sorted({*"The PIN is 0123456789.\n", *map(chr, range(32, 127))})


def of_characters(text: str) -> list[int]:
    return [CHARACTERS.index(character) for character in text]


def spelled(ids: Any) -> str:
    return "".join(CHARACTERS[i] for i in ids)


def test_an_n_gram_of_numpy_knows_what_it_counted() -> None:
    """Bigrams of characters: a text and its bits by hand."""
    counts = np.ones((len(CHARACTERS), len(CHARACTERS)))
    canary = MANIFEST.canaries[0].text
    for first, second in zip(of_characters(canary), of_characters(canary)[1:], strict=False):
        counts[first, second] += 50
    table = np.log(counts / counts.sum(1, keepdims=True))
    model = language_model(
        lambda ids: table[ids],
        tokenizer=(of_characters, spelled, CHARACTERS),
        window=None,
        name="bigrams",
        parameters=table.size,
    )
    result = measure(model, MANIFEST, settings=SETTINGS)
    ids = np.array(of_characters(canary))
    by_hand = -table[ids[:-1], ids[1:]].sum() / np.log(2)
    row = result.to_frame().set_index("id").loc[MANIFEST.canaries[0].id]
    assert row["log_perplexity_bits"] == pytest.approx(by_hand, abs=1e-4)
    assert result.model.path == "bigrams"


def test_tokenizers_of_other_libraries_give_the_same_ids() -> None:
    backend: Tokenizer = TOKENIZER.backend_tokenizer
    text = MANIFEST.canaries[0].text
    same = as_tokenizer(backend)(text, add_special_tokens=False)["input_ids"]
    assert same == backend.encode(text, add_special_tokens=False).ids
    by_character = as_tokenizer((of_characters, spelled, CHARACTERS))
    assert by_character.is_fast
    pieces = [*CHARACTERS, "PIN"]

    def in_pieces(text: str) -> list[int]:
        parts = text.split("PIN")
        found = [[*of_characters(part), len(CHARACTERS)] for part in parts]
        return [i for part in found for i in part][:-1]

    def joined(ids: Any) -> str:
        return "".join(pieces[i] for i in ids)

    made: PreTrainedTokenizerBase = as_tokenizer((in_pieces, joined, pieces))
    assert made(text, add_special_tokens=False)["input_ids"] == in_pieces(text)
    assert made.decode(in_pieces(text)) == text
    shifted = [*CHARACTERS[1:], CHARACTERS[0]]
    ended = lambda text: [*of_characters(text), 0]  # noqa: E731
    for encode, texts in ((of_characters, shifted), (ended, CHARACTERS)):
        with pytest.raises(ModelError, match="without a start or an end token"):
            as_tokenizer((encode, spelled, texts))
    for broken in (
        (lambda text: text.index("§"), spelled),
        (of_characters, lambda ids: ids[-(10**6)]),
    ):
        with pytest.raises(
            ModelError, match=r"the tokenizer raised \w+ \(.*\) on .*; encode and decode"
        ):
            as_tokenizer((*broken, CHARACTERS))
    unknown = "My PIN is §"
    with pytest.raises(ModelError, match=r"the tokenizer raised ValueError .'§' is not in"):
        made(unknown)
    with pytest.raises(ModelError, match="type dict, which is not known here"):
        as_tokenizer({"a": 1})
    with pytest.raises(ModelError, match="a list of different texts"):
        as_tokenizer((of_characters, spelled, ["a", "a"]))


def test_the_example_measures_models_that_saw_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    nano, bigrams = capsys.readouterr().out.splitlines()
    for line, name in ((nano, "nano"), (bigrams, "bigrams")):
        assert line.startswith(f"{name} Inconclusive: nothing shows that this model saw")
