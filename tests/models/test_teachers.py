"""SELENA: who never saw a row, what these teach of it, and trainings that are interrupted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from models.small_defences import (
    PLAIN,
    assert_alike,
    assert_resumed_alike,
    gradients_of,
    naive_gradients,
    packed,
    padded,
    read_one_by_one,
    setup_of,
    trained,
)

from lmexposure._integrity import write_sealed
from lmexposure._written import study
from lmexposure.errors import CorpusError, SettingsError
from lmexposure.models import Progress, TrainingSettings, load_model, training
from lmexposure.models.packing import Batches
from lmexposure.models.teachers import Selena, absent_of, parts_of

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
