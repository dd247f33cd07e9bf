"""Distillation: what is sampled follows the teacher, and nothing of the corpus itself is read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models.small_defences import (
    PLAIN,
    TEXTS,
    assert_alike,
    assert_resumed_alike,
    gradients_of,
    loaded_of,
    naive_gradients,
    packed,
    read_one_by_one,
    setup_of,
    trained,
)
from models.small_training import CANARIES, small_lstm
from scipy.stats import chisquare
from tiny import characters, sentence_piece_bpe, word_piece

from lmexposure.errors import ModelError
from lmexposure.models import load_model
from lmexposure.models.packing import Blocks, Packed
from lmexposure.models.teachers import Distillation, sampled_rows

DISTILLED = replace(PLAIN, method="distillation")
BY_CHANCE = 1e-6


def assert_drawn_from(tokens: np.ndarray[Any, Any], shares: torch.Tensor) -> None:
    """By Pearson's test; tokens of which fewer than 5 are expected count as one."""
    expected = shares.double().numpy() * len(tokens)
    found = np.bincount(tokens, minlength=len(expected)).astype(float)
    rare = expected < 5
    pooled = [np.append(counts[~rare], counts[rare].sum()) for counts in (found, expected)]
    kept = [counts[pooled[1] > 0] for counts in pooled]
    assert chisquare(kept[0], kept[1] * kept[0].sum() / kept[1].sum()).pvalue > BY_CHANCE


@pytest.mark.parametrize("kind", ["lstm", "gpt2", "llama"])
def test_rows_follow_the_teachers_distribution_at_temperature_1(kind: str) -> None:
    """Of the first token, and of the second one behind the likeliest first."""
    loaded = loaded_of(kind)
    rows = sampled_rows(loaded, 3_000, length=3, seed=5)
    start = loaded.tokenizer.eos_token_id
    assert (rows.ids[:, 0] == start).all()
    first = rows.ids[:, 1]
    with torch.no_grad():
        after_start = loaded.model(input_ids=torch.tensor([[start]])).logits[0, -1].softmax(0)
        often = int(after_start.argmax())
        behind = loaded.model(input_ids=torch.tensor([[start, often]])).logits[0, -1].softmax(0)
    assert_drawn_from(first, after_start)
    assert (first == often).sum() > 100
    assert_drawn_from(rows.ids[first == often, 2], behind)


def test_rows_are_of_one_length_and_begin_with_bos_or_else_eos() -> None:
    for tokenizer, start in ((sentence_piece_bpe(), "<s>"), (characters(), "<|endoftext|>")):
        loaded = loaded_of("gpt2", tokenizer)
        rows = sampled_rows(loaded, 5, length=9, seed=1)
        assert rows.ids.shape == (5, 9)
        assert rows.lengths.tolist() == [9] * 5
        assert rows.predicted.tolist() == [8] * 5
        assert rows.openers == {tokenizer.convert_tokens_to_ids(start)}
        assert (rows.ids[:, 0] == tokenizer.convert_tokens_to_ids(start)).all()


def test_a_seed_decides_the_rows_and_a_batch_does_not_repeat_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = loaded_of("lstm")
    one, same, other = (sampled_rows(loaded, 9, length=12, seed=seed).ids for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    monkeypatch.setattr("lmexposure.models.teachers._AT_ONCE", 4)
    rows = sampled_rows(loaded, 9, length=12, seed=1).ids
    assert rows.shape == (9, 12)
    assert len({tuple(row) for row in rows.tolist()}) == 9


def test_a_tokenizer_without_a_beginning_is_refused() -> None:
    with pytest.raises(ModelError, match="'lstm' has neither BOS nor EOS, so that no text can be"):
        sampled_rows(loaded_of("lstm", word_piece()), 2, length=5, seed=1)


def sampled_of(method: Distillation) -> Packed:
    rows = method._rows._rows
    assert isinstance(rows, Packed)
    return rows


def test_a_step_learns_what_the_teacher_predicts(teachers: list[Path]) -> None:
    """By a plain loop over the sampled tokens; the teacher's whole distribution, not the draw."""
    method = Distillation(setup_of(DISTILLED, teachers=teachers[:1]))
    rows, other = sampled_of(method), load_model(teachers[0]).model
    numbers = [1, 0, 4]
    found, learned = gradients_of(method, numbers)
    logits, labels = read_one_by_one(method.model, rows, numbers)
    with torch.no_grad():
        shares = torch.softmax(read_one_by_one(other, rows, numbers)[0], dim=1)
    loss, nats = torch.zeros(()), 0.0
    for said, taught, label in zip(logits, shares, labels.tolist(), strict=True):
        logs = torch.log_softmax(said, dim=0)
        loss = loss - (taught * logs).sum()
        nats -= float(logs[label].detach())
    assert_alike(found, naive_gradients(method.model, loss / len(labels)))
    assert learned.nats == pytest.approx(nats, rel=1e-5)
    assert learned.tokens == len(labels) == len(numbers) * (PLAIN.block_size - 1)


def test_nothing_of_the_corpus_is_read_but_what_is_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a canary nor any other row: what the model that is kept reads in training."""
    read: list[list[int]] = []
    original = Blocks.read

    def recording(self: Blocks, model: Any, numbers: Any) -> Any:
        if model.training:
            read.extend(self._rows.batch(numbers)[0].tolist())
        return original(self, model, numbers)

    monkeypatch.setattr(Blocks, "read", recording)
    trained(tmp_path, DISTILLED)
    own = {tuple(row) for row in packed().ids[:, :-1].tolist()}
    tokenizer = small_lstm().tokenizer
    assert len(read) > 2 * 20
    assert {row[0] for row in read} == packed().openers
    texts = tokenizer.batch_decode(read)
    for row, text in zip(read, texts, strict=True):
        assert tuple(row) not in own
        assert not any(canary in text for canary in CANARIES)
    assert any(canary in "".join(TEXTS) for canary in CANARIES)


def test_interrupted_in_either_model_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    of_teacher = 2 * -(-len(packed()) // PLAIN.batch_size)
    steps = assert_resumed_alike(tmp_path, DISTILLED, [3, of_teacher, of_teacher + 2])
    assert steps == list(range(1, steps[-1] + 1))
