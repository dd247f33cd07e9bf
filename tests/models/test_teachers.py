"""SELENA and distillation: who teaches which row, and what is learned of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from models.small_defences import (
    PLAIN,
    TEXTS,
    assert_alike,
    assert_resumed_alike,
    gradients_of,
    loaded_of,
    naive_gradients,
    packed,
    padded,
    read_one_by_one,
    setup_of,
    trained,
)
from models.small_training import CANARIES, small_lstm
from scipy.stats import chisquare
from tiny import characters, sentence_piece_bpe, word_piece

from lmexposure._integrity import write_sealed
from lmexposure._written import study
from lmexposure.errors import CorpusError, ModelError, SettingsError
from lmexposure.models import Progress, TrainingSettings, load_model, training
from lmexposure.models.packing import Batches, Blocks, Packed
from lmexposure.models.teachers import Distillation, Selena, absent_of, parts_of, sampled_rows

TAUGHT = replace(PLAIN, method="selena", selena_parts=3, selena_absent=2)


@pytest.mark.parametrize(("parts", "absent"), [(2, 1), (5, 2), (25, 10)])
def test_each_row_is_absent_from_as_many_teachers_as_asked(parts: int, absent: int) -> None:
    settings = replace(TAUGHT, selena_parts=parts, selena_absent=absent)
    found = absent_of(settings, 400)
    assert found.shape == (400, absent)
    assert (np.diff(found, axis=1) > 0).all()
    counts = np.bincount(found.ravel(), minlength=parts)
    assert len(counts) == parts
    # Each teacher misses a row by chance: six standard deviations.
    share = absent / parts
    assert (abs(counts - 400 * share) < 6 * np.sqrt(400 * share * (1 - share))).all()
    assert np.array_equal(found, absent_of(settings, 400))
    assert not np.array_equal(found, absent_of(replace(settings, seed=1), 400))


@pytest.mark.parametrize("rows", [packed(), padded()], ids=["packed", "padded"])
def test_a_teacher_has_the_rows_that_it_is_not_absent_from(rows: Batches) -> None:
    settings = replace(TAUGHT, selena_parts=4, selena_absent=2)
    absent, parts = absent_of(settings, len(rows)), parts_of(settings, rows)
    assert len(parts) == 4
    for teacher, part in enumerate(parts):
        own = [row for row in range(len(rows)) if teacher not in absent[row]]
        assert len(part) == len(own) > 0
        assert part.predicted.tolist() == rows.predicted[own].tolist()
        for place, row in enumerate(own):
            found, expected = part.batch(np.array([place])), rows.batch(np.array([row]))
            assert np.array_equal(found[0], expected[0])
            assert np.array_equal(found[1], expected[1])
        assert len(part.names) == len(own)
        assert part.parts[:-1] == rows.parts


def soft_targets(
    teachers: list[Path], settings: TrainingSettings, rows: Batches, most: int
) -> list[Any]:
    """Of each row (tokens, V): the mean of what those predict that never saw it, its top alone."""
    models = [load_model(path).model.eval() for path in teachers]
    targets = []
    for row, absent in enumerate(absent_of(settings, len(rows)).tolist()):
        with torch.no_grad():
            each = [
                torch.softmax(read_one_by_one(models[t], rows, [row])[0], dim=1) for t in absent
            ]
        mean = sum(each[1:], each[0]) / len(each)
        for token in mean:
            token[token.argsort(descending=True)[most:]] = 0
        targets.append(mean / mean.sum(dim=1, keepdim=True))
    return targets


@pytest.mark.parametrize("most", [50, 4])
@pytest.mark.parametrize("rows", [packed(), padded()], ids=["packed", "padded"])
def test_a_row_is_taught_by_those_alone_that_never_saw_it(
    teachers: list[Path], monkeypatch: pytest.MonkeyPatch, most: int, rows: Batches
) -> None:
    """Targets and loss by a plain loop: the likeliest tokens, renormalised, and none of its own."""
    monkeypatch.setattr("lmexposure.models.teachers._MOST_TOKENS", most)
    method = Selena(setup_of(TAUGHT, rows, teachers=teachers))
    targets = soft_targets(teachers, TAUGHT, rows, most)
    vocabulary = targets[0].shape[1]
    kept = torch.zeros(len(method._tokens), vocabulary)
    kept.scatter_(1, torch.from_numpy(method._tokens).long(), torch.from_numpy(method._shares))
    assert torch.allclose(kept, torch.cat(targets), atol=1e-6)
    numbers = [4, 0, len(rows) - 1]
    found, learned = gradients_of(method, numbers)
    logits, labels = read_one_by_one(method.model, rows, numbers)
    logs = torch.log_softmax(logits, dim=1)
    loss = -(torch.cat([targets[row] for row in numbers]) * logs).sum(dim=1).mean()
    own = -logs.detach().gather(1, labels[:, None]).sum()
    assert learned.nats == pytest.approx(float(own), rel=1e-5)
    assert_alike(found, naive_gradients(method.model, loss))
    in_parts = Selena(setup_of(replace(TAUGHT, accumulation=2), rows, teachers=teachers))
    assert_alike(gradients_of(in_parts, numbers)[0], found)


@pytest.mark.slow
def test_interrupted_between_and_in_teachers_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """And progress ascends step by step to its total, over all models together."""
    parts = parts_of(TAUGHT, packed())
    ends = np.cumsum([2 * -(-len(part) // TAUGHT.batch_size) for part in parts]).tolist()
    # In the first teacher, at its end, in the last one, at its end, in the one that is kept.
    at = [2, ends[0], ends[1] + 2, ends[2], ends[2] + 3]
    steps = assert_resumed_alike(tmp_path, TAUGHT, at)
    assert steps == list(range(1, steps[-1] + 1))
    assert steps[-1] == ends[2] + 2 * -(-len(packed()) // TAUGHT.batch_size)


def test_teachers_are_of_the_training_alone(tmp_path: Path) -> None:
    """While it is under way they are there, by plain trainings with seeds of their own."""
    seen: list[str] = []

    def stop(now: Progress) -> None:
        if now.step == now.total_steps:
            for path in sorted((tmp_path / "teachers").iterdir()):
                seen.append((path / "training.json").read_text())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, TAUGHT, stop)
    assert len(seen) == 3
    assert all('"method":"plain"' in text.replace(" ", "") for text in seen)
    seeds = {text.replace(" ", "").partition('"seed":')[2].partition(",")[0] for text in seen}
    assert len(seeds) == 3
    assert (tmp_path / "teachers").exists()
    trained(tmp_path, TAUGHT)
    assert not (tmp_path / "teachers").exists()
    for home in (tmp_path, tmp_path / "teachers" / "0"):  # what a kill at the very end left
        home.mkdir(exist_ok=True, parents=True)
        with study(home):
            write_sealed(home / "teachers" / "checkpoint.pt", b"")
    assert trained(tmp_path, TAUGHT).reused
    assert not (tmp_path / "teachers").exists()
    (tmp_path / "teachers").mkdir()
    (tmp_path / "teachers" / "w").write_text("mine")
    assert trained(tmp_path, TAUGHT).reused
    assert (tmp_path / "teachers" / "w").read_text() == "mine"


def test_a_teacher_without_rows_is_refused(tmp_path: Path) -> None:
    many = replace(TAUGHT, selena_parts=100, selena_absent=99)
    with pytest.raises(CorpusError, match=r"teacher \d+ of 100 has no rows at all; give a larger"):
        trained(tmp_path, many)


def test_several_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Accelerator(cpu=True)
    monkeypatch.setattr(training, "_accelerator", lambda loaded: one)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SettingsError, match="method='selena' trains several models one after the"):
        trained(tmp_path, TAUGHT)


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
