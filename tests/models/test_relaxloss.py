"""RelaxLoss: its loss by the algorithm written out token by token, and a training that it holds."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from known import known
from models.small_defences import (
    PLAIN,
    assert_alike,
    assert_resumed_alike,
    gradients_of,
    naive_gradients,
    packed,
    read_one_by_one,
    setup_of,
    trained,
)
from models.small_training import small_documents, small_lstm
from torch import Tensor

from lmexposure.errors import SettingsError
from lmexposure.models import Progress, TrainingSettings
from lmexposure.models.methods import RelaxLoss, relaxed_loss
from lmexposure.models.packing import Read

RELAXED = replace(PLAIN, method="relaxloss", relax_level=2.0)


def naive(logits: Tensor, labels: Tensor, *, level: float, upper: float, even: bool) -> Tensor:
    """Algorithm 1 of Chen et al. 2022 in float64, with the soft labels of eq. 7 written out.

    As their own program has it, tokens that are right get no soft label, and -ln p of all is taken
    away; the label's own probability is a number here, not something to be learned.
    """
    tokens, vocabulary = logits.shape
    own = [-torch.log_softmax(logits[i], dim=0)[labels[i]] for i in range(tokens)]
    mean = sum(own[1:], own[0]) / tokens
    if even:
        return mean - level if mean > level else level - mean
    if mean > level:
        return mean
    total = torch.zeros((), dtype=logits.dtype)
    for i in range(tokens):
        shares = torch.softmax(logits[i], dim=0)
        kept = min(float(shares[labels[i]].detach()), upper)
        soft = torch.full((vocabulary,), (1 - kept) / (vocabulary - 1), dtype=logits.dtype)
        soft[labels[i]] = kept
        if int(shares.argmax()) != int(labels[i]):
            total = total - (soft * torch.log_softmax(logits[i], dim=0)).sum()
        total = total - own[i]
    return total / tokens


def read_of(logits: Tensor, labels: Tensor) -> Read:
    return Read(logits=logits, labels=labels)


def drawn(seed: int, sharp: float = 3.0) -> tuple[Tensor, Tensor]:
    """Logits (7, 5) of which some are right and some are wrong."""
    draws = torch.Generator().manual_seed(seed)
    logits = sharp * torch.randn(7, 5, generator=draws, dtype=torch.float64)
    labels = torch.randint(5, (7,), generator=draws)
    labels[:4] = logits[:4].argmax(dim=1)
    return logits, labels


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("level", [0.3, 50.0], ids=["above", "below"])
@pytest.mark.parametrize("upper", [1.0, 0.01])
@pytest.mark.parametrize("seed", range(2))
def test_the_loss_and_its_gradient_are_the_algorithms(
    even: bool, level: float, upper: float, seed: int
) -> None:
    logits, labels = drawn(seed)
    wrong = (logits.argmax(dim=1) != labels).tolist()
    assert any(wrong)
    assert not all(wrong)
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    loss, nats = relaxed_loss(read_of(ours, labels), level=level, upper=upper, even=even)
    expected = naive(theirs, labels, level=level, upper=upper, even=even)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    mean = torch.nn.functional.cross_entropy(logits, labels)
    assert nats == pytest.approx(7 * float(mean), rel=1e-12)
    assert (float(mean) > level) == (level == 0.3)
    loss.backward()  # type: ignore[no-untyped-call]
    expected.backward()  # type: ignore[no-untyped-call]
    assert torch.allclose(known(ours.grad), known(theirs.grad), rtol=1e-9, atol=1e-12)
    assert known(ours.grad).abs().max() > 1e-3


@pytest.mark.parametrize("even", [True, False])
def test_a_step_without_tokens_moves_nothing(even: bool) -> None:
    logits = torch.zeros(3, 5, requires_grad=True)
    nothing = read_of(logits[:0], torch.zeros(0, dtype=torch.long))
    loss, nats = relaxed_loss(nothing, level=1.0, upper=1.0, even=even)
    loss.backward()  # type: ignore[no-untyped-call]
    assert (float(loss.detach()), nats) == (0.0, 0.0)
    assert not known(logits.grad).any()


@pytest.mark.parametrize("level", [0.5, 9.0])
def test_a_step_has_the_loss_of_its_epoch(level: float) -> None:
    """Epochs are counted from 0, and change with the last step of one."""
    method = RelaxLoss(setup_of(replace(RELAXED, relax_level=level, relax_upper=0.7)))
    n = method.steps_per_epoch
    assert n > 1
    for step, even in ((0, True), (n - 1, True), (n, False), (2 * n - 1, False), (2 * n, True)):
        found, learned = gradients_of(method, [3, 0, 2], step)
        logits, labels = read_one_by_one(method.model, packed(), [3, 0, 2])
        loss = naive(logits, labels, level=level, upper=0.7, even=even)
        assert_alike(found, naive_gradients(method.model, loss))
        assert learned.tokens == len(labels)


def last_nats(out: Path, settings: TrainingSettings) -> float:
    """The mean training loss of the last two epochs, in nats a token."""
    told: list[Progress] = []
    texts = small_documents()
    few = {"documents": texts[:12], "validation": texts[12:16], "canaries": {}}
    trained(out, settings, told.append, loaded=small_lstm(dropout=0.0), **few)
    steps = told[-1].total_steps // settings.epochs
    return float(np.mean([now.train_bits for now in told[-2 * steps :]])) * math.log(2)


def test_the_training_loss_is_held_near_the_level(tmp_path: Path) -> None:
    longer = replace(PLAIN, epochs=40, evaluate_every=10**6, checkpoint_seconds=60.0)
    plain = last_nats(tmp_path / "plain", longer)
    assert plain < 0.9
    held = replace(longer, method="relaxloss", relax_level=1.5)
    assert 1.3 < last_nats(tmp_path / "held", held) < 1.7


def test_interrupted_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """In an odd epoch too: which one it is follows from the step."""
    steps = assert_resumed_alike(tmp_path, RELAXED, at=[3, 6])
    assert steps == list(range(1, len(steps) + 1))


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = setup_of(RELAXED)
    monkeypatch.setattr(Accelerator, "num_processes", 2)
    with pytest.raises(SettingsError, match=r"method='relaxloss' reads .* and 2 processes each"):
        RelaxLoss(setup)
