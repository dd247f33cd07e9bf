"""HAMP: soft labels of the entropy promised, the loss written out, an output that keeps order."""

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from models.small_chats import SETTINGS, save_base, train_on_chats
from models.small_defences import (
    PLAIN,
    assert_alike,
    gradients_of,
    loaded_of,
    naive_gradients,
    packed,
    read_one_by_one,
    setup_of,
)
from scipy.stats import entropy
from torch import Tensor

from lmexposure.models.methods import Hamp, in_order, masked, sure
from lmexposure.scoring import log_perplexity

KINDS = ("lstm", "gpt2", "llama")
SECRET = "My PIN is 0042."


def soft_label(own: float, vocabulary: int) -> list[float]:
    return [own, *[(1 - own) / (vocabulary - 1)] * (vocabulary - 1)]


@pytest.mark.parametrize("vocabulary", [2, 30, 50_257])
@pytest.mark.parametrize("share", [1e-4, 0.5, 0.9997])
def test_a_soft_label_has_the_entropy_that_was_asked_for(vocabulary: int, share: float) -> None:
    """And its token is the likeliest: of the two such labels the other would teach the opposite."""
    own = sure(share, vocabulary)
    found = entropy(soft_label(own, vocabulary))
    assert found / math.log(vocabulary) == pytest.approx(share, rel=1e-6)
    assert 1 / vocabulary < own < 1


@given(
    st.integers(2, 200_000),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
)
def test_a_softer_label_is_less_sure(vocabulary: int, first: float, second: float) -> None:
    """Of every share that a setting takes, however near 0 or 1."""
    less, more = sorted((first, second))
    unsure, own = sure(more, vocabulary), sure(less, vocabulary)
    assert 1 / vocabulary <= unsure <= own + 1e-9
    assert own < 1


def test_the_loss_of_a_step_is_that_written_out() -> None:
    """Cross-entropy against the soft labels, less the weighted entropy of what is predicted."""
    settings = replace(PLAIN, method="hamp", hamp_entropy=0.6, hamp_weight=0.3)
    method = Hamp(setup_of(settings))
    found, learned = gradients_of(method, [2, 5, 1])
    logits, labels = read_one_by_one(method.model, packed(), [2, 5, 1])
    vocabulary = logits.shape[1]
    own = sure(0.6, vocabulary)
    total, nats = torch.zeros(()), 0.0
    for said, label in zip(logits, labels.tolist(), strict=True):
        shares = torch.softmax(said, dim=0)
        soft = torch.full((vocabulary,), (1 - own) / (vocabulary - 1))
        soft[label] = own
        total = total - (soft * shares.log()).sum() + 0.3 * (shares * shares.log()).sum()
        nats -= float(shares[label].detach().log())
    assert_alike(found, naive_gradients(method.model, total / len(labels)))
    assert learned.nats == pytest.approx(nats, rel=1e-5)
    assert learned.tokens == len(labels)


def test_adapters_are_trained_by_it_too(tmp_path: Path) -> None:
    """The vocabulary is the model's beneath them."""
    pytest.importorskip("peft")
    settings = replace(SETTINGS, method="hamp", epochs=1)
    base = save_base(tmp_path / "base")
    assert train_on_chats(base, tmp_path / "out", settings=settings).improved


def logits_of(model: Any, ids: Tensor, **options: Any) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(input_ids=ids, **options).logits
    return found


def texts_of(model: Any, rows: int, length: int, seed: int = 1) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocab_size, (rows, length), generator=draws)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_masked_keeps_the_order_and_lends_the_values(kind: str) -> None:
    plain = loaded_of(kind)
    other = masked(deepcopy(plain), seed=3)
    assert (other.name, other.tokenizer.vocab_size) == (kind, plain.tokenizer.vocab_size)
    ids = texts_of(plain.model, 3, 80)
    before, after = logits_of(plain.model, ids), logits_of(other.model, ids)
    assert before.shape == after.shape
    assert torch.equal(before.argsort(dim=2, stable=True), after.argsort(dim=2, stable=True))
    assert torch.equal(before.argmax(dim=2), after.argmax(dim=2))
    # Of a text of 64 random tokens; behind them its values come again from its beginning.
    draws = torch.Generator().manual_seed(3)
    random = torch.randint(plain.model.config.vocab_size, (1, 64), generator=draws)
    lent = logits_of(plain.model, random)[0].sort(dim=1).values
    for place in range(80):
        values = after[:, place].sort(dim=1).values
        assert torch.allclose(values, lent[place % 64].expand(3, -1), rtol=0, atol=1e-5)
    # And so of whatever text.
    texts = texts_of(plain.model, 2, 70, seed=9)
    assert torch.equal(
        logits_of(other.model, texts).sort(dim=2).values, after[:2, :70].sort(dim=2).values
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_position_has_its_values_however_it_is_come_to(kind: str) -> None:
    """By a cache, by the last logits alone, or with positions that were given."""
    model: Any = masked(loaded_of(kind)).model
    ids = texts_of(model, 2, 12)
    whole = logits_of(model, ids)
    for kept in (1, 5):
        last = logits_of(model, ids, logits_to_keep=kept)
        assert torch.allclose(last, whole[:, -kept:], atol=1e-5)
    some = torch.tensor([3, 7])
    assert torch.allclose(logits_of(model, ids, logits_to_keep=some), whole[:, some], atol=1e-5)
    state, pieces = None, []
    for begin, end in ((0, 4), (4, 5), (5, 12)):
        with torch.no_grad():
            said = model(input_ids=ids[:, begin:end], past_key_values=state, use_cache=True)
        state = said.past_key_values
        pieces.append(said.logits)
    assert torch.allclose(torch.cat(pieces, dim=1), whole, atol=1e-5)
    if kind != "lstm":  # which has no positions
        places = torch.stack([torch.arange(12), torch.arange(12) + 9])
        shifted = logits_of(model, ids, position_ids=places)
        there = logits_of(model, texts_of(model, 1, 30))
        for row, start in ((0, 0), (1, 9)):
            found = shifted[row].sort(dim=1).values
            assert torch.equal(found, there[0, start : start + 12].sort(dim=1).values)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_has_its_score_whatever_it_is_scored_with(kind: str) -> None:
    loaded = masked(loaded_of(kind))
    texts = [SECRET, "The random number is 28.", *(f"My PIN is {i:04d}." for i in range(30))]
    together = log_perplexity(loaded.model, loaded.tokenizer, texts)
    for text, found in zip(texts[:3], together[:3].tolist(), strict=True):
        alone = log_perplexity(loaded.model, loaded.tokenizer, [text])
        assert alone.tolist() == pytest.approx([found], abs=1e-3)


def test_of_equal_logits_the_first_stays_the_likeliest() -> None:
    logits = torch.tensor([[[1.0, 7.0, 7.0, 0.0, 7.0], [2.0, 2.0, 2.0, 2.0, 2.0]]])
    values = torch.arange(10.0).reshape(2, 5)
    found = in_order(logits, values.flip(1)[None])
    assert found.argmax(dim=2).tolist() == logits.argmax(dim=2).tolist() == [[1, 0]]
    assert np.array_equal(found.sort(dim=2).values[0], values)
    many = torch.randint(4, (2, 3, 5_000), generator=torch.Generator().manual_seed(1)).float()
    lent = torch.arange(5_000.0).flip(0).expand(1, 3, -1)
    assert torch.equal(in_order(many, lent).argmax(dim=2), many.argmax(dim=2))
