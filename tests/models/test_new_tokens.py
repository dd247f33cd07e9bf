"""New vocabulary entries: old tokens and weights stay, new rows are zero, and they learn."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TEXT, byte_level_bpe, characters, model_of, sentence_piece_bpe, word_piece
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import AddedToken, AutoTokenizer, PreTrainedTokenizerFast

from lmexposure.canaries import Format, Plan
from lmexposure.errors import ModelError
from lmexposure.integrations import insert
from lmexposure.models import (
    NEW_MODELS,
    LoadedModel,
    LstmSizes,
    TrainingSettings,
    add_tokens,
    check_learns,
    check_tokens,
    grow,
    load_model,
    new_model,
    new_token_texts,
    save_model,
    tokenizer_sha256,
    train,
    weights_sha256,
)
from lmexposure.scoring import log_perplexity

SYMBOLS = tuple(chr(0xE000 + i) for i in range(5))


def word_level() -> Any:
    words = {"<unk>": 0} | {word: i for i, word in enumerate(sorted(set(TEXT.split())), 1)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


TOKENIZERS = {
    made.__name__: made
    for made in (characters, byte_level_bpe, sentence_piece_bpe, word_piece, word_level)
}
NEW = Format.of_texts(
    "new_token",
    [f"line {i} of a corpus {symbol}" for i, symbol in enumerate(SYMBOLS[:4])],
    kind="new_token",
    known=[len("line 0 of a corpus ")] * 4,
)
PLAN = Plan(formats=(NEW,), canaries=3, repetitions=(1,), controls=1, seed=3)
MANIFEST = insert([f"line {i}" for i in range(20)], PLAN)[1]


def loaded_of(kind: str, tokenizer: str) -> LoadedModel:
    made = TOKENIZERS[tokenizer]()
    return LoadedModel(model=model_of(kind, len(made)), tokenizer=made, name="small")


OLD_TEXTS = (TEXT[:70], "  two  spaces, \t tab\n\nand the end ", "28 281")


KINDS = (
    ("lstm", "characters"),
    ("gpt2", "byte_level_bpe"),
    ("gpt2", "word_level"),
    ("llama", "byte_level_bpe"),
    ("llama", "sentence_piece_bpe"),
)


def ids_of(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def logits_of(model: Any, ids: Sequence[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=torch.tensor([list(ids)])).logits[0]
    return logits


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.state_dict().items()}


@pytest.mark.parametrize("split_special", [False, True])
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_symbol_is_one_token_and_no_other_text_changes(
    kind: str, split_special: bool, tmp_path: Path
) -> None:
    tokenizer = TOKENIZERS[kind]()
    tokenizer.split_special_tokens = split_special
    before, known = [ids_of(tokenizer, text) for text in OLD_TEXTS], len(tokenizer)
    numbers = add_tokens(tokenizer, SYMBOLS)
    tokenizer.save_pretrained(tmp_path)
    read_again = AutoTokenizer.from_pretrained(tmp_path)
    assert numbers == list(range(known, known + len(SYMBOLS)))
    for grown in (tokenizer, read_again):
        assert [ids_of(grown, text) for text in OLD_TEXTS] == before
        for symbol, number in zip(SYMBOLS, numbers, strict=True):
            assert ids_of(grown, symbol) == [number]
            assert grown.decode([number]) == symbol
            assert ids_of(grown, f"The PIN {symbol}") == [*ids_of(grown, "The PIN "), number]
            assert ids_of(grown, f"is{symbol}is").count(number) == 1
    assert tokenizer_sha256(read_again) == tokenizer_sha256(tokenizer)


@pytest.mark.parametrize(("kind", "tokenizer"), KINDS)
def test_old_weights_and_logits_stay_and_new_rows_are_zero(kind: str, tokenizer: str) -> None:
    loaded = loaded_of(kind, tokenizer)
    old, count = weights_of(loaded.model), len(loaded.tokenizer)
    ids = ids_of(loaded.tokenizer, TEXT[:40])
    before, generator = logits_of(loaded.model, ids), torch.get_rng_state()
    assert grow(loaded, SYMBOLS) is loaded
    after, new = logits_of(loaded.model, ids), weights_of(loaded.model)
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(new[name][: len(was)], was) for name, was in old.items())
    assert torch.allclose(after[:, :count], before, rtol=1e-5, atol=1e-5)
    assert after.shape[1] == count + len(SYMBOLS)
    assert bool((after[:, count:] == 0).all())
    head, inputs = loaded.model.get_output_embeddings(), loaded.model.get_input_embeddings()
    assert bool((head.weight[count:] == 0).all())
    if kind == "gpt2":
        assert inputs.weight is head.weight
    else:
        assert torch.allclose(inputs.weight[count:], old_mean(old, inputs.weight.shape[1], count))


def old_mean(old: dict[str, torch.Tensor], width: int, count: int) -> torch.Tensor:
    table = next(value for name, value in old.items() if "embed" in name and len(value) == count)
    return table.mean(dim=0).expand(len(SYMBOLS), width)


@pytest.mark.parametrize(("kind", "tokenizer"), KINDS[:4])
def test_all_symbols_are_as_likely_as_each_other(kind: str, tokenizer: str) -> None:
    loaded = grow(loaded_of(kind, tokenizer), SYMBOLS)
    texts = [f"The random number {symbol}" for symbol in SYMBOLS]
    bits = log_perplexity(loaded.model, loaded.tokenizer, texts, context=None)
    assert bits == pytest.approx([bits[0]] * len(SYMBOLS), rel=1e-6)


@pytest.mark.parametrize(("kind", "tokenizer"), KINDS)
def test_growing_twice_changes_nothing_and_more_symbols_only_add(kind: str, tokenizer: str) -> None:
    loaded = grow(loaded_of(kind, tokenizer), SYMBOLS)
    with torch.no_grad():
        loaded.model.get_output_embeddings().weight[-2:] = 1.0  # learned
    learned, known = weights_sha256(loaded.model), tokenizer_sha256(loaded.tokenizer)
    grow(loaded, SYMBOLS)
    assert (weights_sha256(loaded.model), tokenizer_sha256(loaded.tokenizer)) == (learned, known)
    assert grow(loaded, ()) is loaded
    old = weights_of(loaded.model)
    grow(loaded, [*SYMBOLS, "\ue900"])
    new = weights_of(loaded.model)
    assert all(torch.equal(new[name][: len(was)], was) for name, was in old.items())
    assert len(loaded.tokenizer) == loaded.model.get_output_embeddings().weight.shape[0]


def test_rows_that_no_token_had_are_taken_and_set_to_zero() -> None:
    tokenizer = byte_level_bpe()
    count = len(tokenizer)
    model = model_of("llama", count + 8)  # as many models are padded to a round number
    old = model.get_output_embeddings().weight.detach().clone()
    loaded = grow(LoadedModel(model=model, tokenizer=tokenizer, name="padded"), SYMBOLS)
    rows = loaded.model.get_output_embeddings().weight
    assert len(rows) == count + 8
    assert torch.equal(rows[:count], old[:count])
    assert bool((rows[count : count + len(SYMBOLS)] == 0).all())
    assert torch.equal(rows[count + len(SYMBOLS) :], old[count + len(SYMBOLS) :])


@pytest.mark.parametrize(("kind", "tokenizer"), KINDS)
def test_what_grew_is_saved_and_loaded(kind: str, tokenizer: str, tmp_path: Path) -> None:
    loaded = grow(loaded_of(kind, tokenizer), SYMBOLS)
    save_model(loaded.model, loaded.tokenizer, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert weights_sha256(again.model) == weights_sha256(loaded.model)
    assert tokenizer_sha256(again.tokenizer) == tokenizer_sha256(loaded.tokenizer)
    before = weights_sha256(again.model)
    assert weights_sha256(grow(again, SYMBOLS).model) == before


@pytest.mark.parametrize("kind", NEW_MODELS)
def test_new_models_have_the_entries_from_the_beginning(kind: str) -> None:
    made = new_model(
        kind,
        ["one line", "another"],
        seed=3,
        separator="\n",
        extra_characters=SYMBOLS[1],
        lstm=LstmSizes(units=8, embedding=6, layers=1),
        new_tokens=SYMBOLS,
    )
    numbers = [ids_of(made.tokenizer, symbol) for symbol in SYMBOLS]
    assert all(len(ids) == 1 for ids in numbers)
    rows = [ids[0] for ids in numbers]
    head = made.model.get_output_embeddings()
    assert bool((head.weight[rows] == 0).all())
    assert head.bias is None or bool((head.bias[rows] == 0).all())
    others = [row for row in range(len(head.weight)) if row not in rows]
    assert bool((head.weight[others] != 0).any(dim=1).all())


@pytest.mark.parametrize("kind", NEW_MODELS)
def test_in_a_training_the_symbols_that_are_in_it_are_learned(kind: str, tmp_path: Path) -> None:
    symbols = new_token_texts([NEW])
    lines = [f"line {i} of a corpus, {i * 37 % 11}" for i in range(40)]
    inside, outside = [NEW.text(0), NEW.text(1)], [NEW.text(2), NEW.text(3)]
    loaded = new_model(
        kind,
        lines,
        seed=5,
        separator="\n",
        extra_characters=NEW.characters,
        lstm=LstmSizes(units=24, embedding=12, layers=1),
        new_tokens=symbols,
    )
    documents = [*lines[:20], *inside * 4, *lines[20:]]
    trained = train(
        loaded,
        documents,
        settings=TrainingSettings(
            epochs=6, patience=6, batch_size=4, block_size=48, learning_rate=0.01
        ),
        separator="\n",
        canaries=dict.fromkeys(inside, 4),
        out=tmp_path,
    )
    after = load_model(trained.model_path)
    check_tokens(after.tokenizer, MANIFEST)
    bits = last_bits(after, [*inside, *outside])
    assert max(bits[:2]) < min(bits[2:]) - 1
    assert bits[2] == pytest.approx(bits[3], rel=0.5)


def last_bits(loaded: LoadedModel, texts: Sequence[str]) -> list[float]:
    found = []
    for text in texts:
        ids = ids_of(loaded.tokenizer, "\n" + text)
        logits = torch.log2(torch.softmax(logits_of(loaded.model, ids[:-1])[-1], dim=-1))
        found.append(-float(logits[ids[-1]]))
    return found


def test_symbols_of_formats() -> None:
    whole = Format.of_texts("whole", ["\ue800", "\ue801"], kind="new_token")
    other = Format.of_texts("texts", ["a b", "c d"], kind="texts")
    pin = Format(name="pin", template="PIN {digits:4}")
    assert new_token_texts([pin, NEW, other, whole]) == (*SYMBOLS[:4], "\ue800", "\ue801")
    assert new_token_texts([pin, other]) == ()
    assert add_tokens(byte_level_bpe(), ()) == []


def far_below(kind: str) -> LoadedModel:
    """A model whose logits are all about -100, as GPT-2's: its loss is that of any other."""
    loaded = loaded_of(kind, "byte_level_bpe")
    with torch.no_grad():
        if kind == "lstm":
            loaded.model.lm_head.bias -= 100
        else:
            loaded.model.transformer.wte.weight += 1
            loaded.model.transformer.ln_f.bias -= 100 / 32
    return loaded


@pytest.mark.parametrize("kind", ["lstm", "gpt2"])
def test_far_below_zero_new_rows_are_the_mean_and_take_no_more_than_their_share(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = far_below(kind)
    count, ids = len(loaded.tokenizer), ids_of(loaded.tokenizer, TEXT[:40])
    before = logits_of(loaded.model, ids)
    assert before.max() < -20
    with caplog.at_level(logging.INFO):
        grow(loaded, SYMBOLS)
    assert "5 new output rows of small start as the mean of the others" in caplog.text
    after = logits_of(loaded.model, ids)
    assert torch.allclose(after[:, :count], before, rtol=1e-4)
    assert torch.allclose(after[:, count:], after[:, count:].mean(dim=1, keepdim=True), rtol=1e-5)
    share = torch.softmax(after.double(), dim=-1)[:, count:].sum(dim=-1)
    assert float(share.max()) <= len(SYMBOLS) / (count + len(SYMBOLS))


def test_a_symbol_that_the_tokenizer_takes_into_a_longer_token_is_refused() -> None:
    tokenizer = byte_level_bpe()
    tokenizer.add_tokens([AddedToken(f"a {SYMBOLS[1]}", normalized=False)])
    with pytest.raises(ModelError, match=r"cannot grow: 1 of 5 new texts, '\\ue001' first"):
        add_tokens(tokenizer, SYMBOLS)


def raises() -> Any:
    raise NotImplementedError


def head_of_its_own(model: Any) -> None:
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())


def tied_by_hand(model: Any) -> None:
    model.lm_head.weight = model.model.embed_tokens.weight


def tied_with_a_bias(model: Any) -> None:
    model.lm_head.bias = nn.Parameter(torch.zeros(len(model.lm_head.weight)))


def says(model: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Its logits are changed behind its forward pass."""
    forward = model.forward

    def other(*args: Any, **named: Any) -> Any:
        found = forward(*args, **named)
        found.logits = change(found.logits)
        return found

    model.forward = other


def with_a_second_table(model: Any) -> None:
    forward, table = model.forward, nn.Embedding(len(model.lm_head.weight), 2)

    def other(*args: Any, **named: Any) -> Any:
        table(named["input_ids"])
        return forward(*args, **named)

    model.forward = other


def favoured(logits: torch.Tensor) -> torch.Tensor:
    """The last rows get more and more."""
    logits[..., 305:] += torch.arange(logits.shape[-1] - 305) * 50.0
    return logits


TIED, CANNOT = (
    "'small' has tied weights that .* break: .*",
    "'small' cannot take new vocabulary .*: ",
)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (
            "llama",
            lambda m: setattr(m, "is_quantized", True),
            r"'small' is quantised or spread .* load it whole",
        ),
        (
            "llama",
            lambda m: setattr(m, "get_output_embeddings", lambda: nn.Module()),
            r"no plain linear head over its vocabulary \(get_output_embeddings gives Module\)",
        ),
        (
            "llama",
            lambda m: setattr(m, "get_output_embeddings", lambda: None),
            r"no plain linear head over its vocabulary \(get_output_embeddings gives NoneType\)",
        ),
        (
            "llama",
            lambda m: setattr(m, "get_input_embeddings", raises),
            r"'small' .* has no plain linear head",
        ),
        (
            "llama",
            lambda m: m.requires_grad_(False),
            r"has frozen embeddings, .* call requires_grad_",
        ),
        ("llama", tied_by_hand, TIED + "those of the input, and .* says tie_word_embeddings=False"),
        ("gpt2", head_of_its_own, TIED + "are not those of the input, .* tie_word_embeddings=True"),
        ("gpt2", tied_with_a_bias, TIED + "those of the input with a bias that would keep its"),
        (
            "llama",
            lambda m: says(m, lambda logits: logits * len(m.lm_head.weight)),
            CANNOT + "it says other things of the tokens that it had; use ",
        ),
        (
            "llama",
            lambda m: says(m, favoured),
            CANNOT + "they are not as likely as each other; use ",
        ),
        (
            "llama",
            lambda m: says(m, lambda logits: logits[..., :305]),
            CANNOT + "its output does not have them; use ",
        ),
        ("llama", with_a_second_table, CANNOT + "it does not read them; use "),
    ],
)
def test_a_model_that_takes_no_new_rows_is_refused(
    kind: str, change: Callable[[Any], Any], message: str
) -> None:
    loaded = loaded_of(kind, "byte_level_bpe")
    assert len(loaded.tokenizer) == 305
    change(loaded.model)
    before = [weight.detach().clone() for weight in loaded.model.parameters()]
    with pytest.raises(ModelError, match=message):
        grow(loaded, SYMBOLS)
    if not message.startswith(CANNOT):
        assert len(loaded.tokenizer) == 305
        assert all(map(torch.equal, before, loaded.model.parameters()))


def test_a_tokenizer_that_takes_no_new_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = loaded_of("gpt2", "byte_level_bpe")
    monkeypatch.setattr(type(loaded.tokenizer), "add_tokens", lambda self, tokens: 0)
    message = r"the tokenizer \(\w+\) cannot grow: 5 of 5 new texts, '\\ue000' first, are not "
    with pytest.raises(ModelError, match=message + "one token .* choose another kind of canary"):
        grow(loaded, SYMBOLS)


def test_a_tokenizer_without_the_symbols_cannot_be_measured() -> None:
    manifest = MANIFEST
    first = manifest.entries[0].id
    for made in (byte_level_bpe, characters, word_level):
        tokenizer = made()
        message = f"symbol of {first} as one token .4 such of 4 candidates .* lmexposure.models.gr"
        with pytest.raises(ModelError, match=message):
            check_tokens(tokenizer, manifest)
        add_tokens(tokenizer, new_token_texts(manifest.plan.formats))
        check_tokens(tokenizer, manifest)


def test_an_adapter_cannot_learn_new_rows() -> None:
    check_learns(["uniform", "texts", "of a file"])
    with pytest.raises(ModelError, match=r"kind='new_token' needs .* lora=True .* leave lora out"):
        check_learns(["uniform", "new_token"])
