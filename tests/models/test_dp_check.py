"""Right DP-SGD trainings pass the check, which leaves them as they were; and what it refuses."""

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from models.dp_trainings import (
    ARCHITECTURES,
    BATCH,
    DOCUMENTS,
    WIDTH,
    Training,
    documents,
    everything,
    loss_of_documents,
    model_of,
    one_turn,
    training_of,
)
from opacus.utils.batch_memory_manager import wrap_data_loader
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, default_collate

import lmexposure as lx
from lmexposure.errors import ModelError, SettingsError
from lmexposure.models import DpBatches, DpCheck, DpFinding

# Of torch, at a module whose inputs need no gradient, in loops as people write them.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
NAMES = [
    *("position ids", "gradients", "clipping", "noise", "accountant", "batch size", "rate"),
    *("sampling", "update", "weights", "accumulation", "empty batches"),
]


def check(training: Training, **more: Any) -> DpCheck:
    return lx.dp_check(*training.given(), **{"loss": loss_of_documents, **more})


def same(first: Any, second: Any) -> bool:
    if torch.is_tensor(first):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, np.ndarray):
        return np.array_equal(first, second)
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[k], second[k]) for k in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_right_trainings_pass_and_are_left_as_they_were(architecture: str) -> None:
    """Before their first step, and under way with moments, gradients and a history."""
    for seed, optimizer in enumerate((torch.optim.SGD, torch.optim.Adam)):
        training, more = training_of(architecture, seed, optimizer=optimizer), dict[str, Any]()
        if seed:
            more["step"] = one_turn(training)
            more["step"](training.loader.collate_fn(documents()[:5]))
            training.model.eval()
        before = everything(training)
        found = check(training, **more)
        assert found.passed, str(found)
        assert [finding.name for finding in found.findings] == NAMES
        assert found.sample_rate == BATCH / DOCUMENTS
        assert same(before, everything(training))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradients_are_those_of_a_model_without_hooks(architecture: str) -> None:
    from lmexposure.models.dp_gradients import check_gradients
    from lmexposure.models.dp_training import DpTraining, batches_of_loader, without_dropout

    training, bare = training_of(architecture), model_of(architecture)
    for model in (training.model, bare):
        without_dropout(model)
    taken = DpTraining(
        training.model,
        training.optimizer,
        batches_of_loader(training.loader),
        loss=loss_of_documents,
    )
    numbers = [3, 4, 50]
    finding, norms = check_gradients(taken, numbers)
    assert finding.passed
    for number, norm in zip(numbers, norms, strict=True):
        bare.zero_grad()
        loss_of_documents(bare, taken.batch([number])).backward()  # type: ignore[no-untyped-call]
        alone = sum(float(p.grad.square().sum()) for p in bare.parameters() if p.grad is not None)
        assert norm == pytest.approx(alone**0.5, rel=1e-4)


class Secure(torch.Generator):
    """As that of Opacus' secure mode, which reads the operating system's."""

    def get_state(self) -> torch.Tensor:
        raise RuntimeError("get_state is not implemented")


def through_accelerate() -> Training:
    training = training_of(wrap_model=False)
    training.model, training.optimizer, training.loader = Accelerator(cpu=True).prepare(
        training.bare, training.optimizer, training.loader
    )
    return training


@pytest.mark.filterwarnings("ignore:In CPU autocast:UserWarning")  # of functorch in Opacus
@pytest.mark.parametrize(
    "make",
    [
        lambda: training_of(clipping="per_layer", max_grad_norm=[0.2] * 28, lr=1e-5),
        lambda: training_of(data=documents(BATCH), lr=1e-5),  # in full batches
        lambda: training_of("lora", noise_generator=Secure()),
        through_accelerate,
    ],
)
def test_other_right_trainings_pass(make: Callable[[], Training]) -> None:
    found = check(make())
    assert found.passed, str(found)


def test_a_training_in_small_batches_at_a_time_passes() -> None:
    training = training_of()
    training.loader = wrap_data_loader(
        data_loader=training.loader, max_batch_size=3, optimizer=training.optimizer
    )
    found = check(training)
    assert found.passed, str(found)
    assert training.optimizer._step_skip_queue == []


def test_a_warm_up_that_begins_at_a_rate_of_0_passes() -> None:
    training = training_of("llama")
    schedule = torch.optim.lr_scheduler.LambdaLR(
        training.optimizer.original_optimizer, lambda step: min(1.0, step / 10)
    )
    found = check(training)
    assert found.passed, str(found)
    assert schedule.get_last_lr() == [0.0]
    training.optimizer.zero_grad()
    one_turn(training)(training.loader.collate_fn(documents()[:3]))
    schedule.step()  # warns where no step of the optimizer was counted before


def test_a_training_with_a_loop_of_its_own_passes() -> None:
    """Documents by number, losses of each document, and steps as the loop takes them."""
    training, rows = training_of("lstm"), documents(positions=False)
    generator = np.random.default_rng(1)

    def batch(numbers: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        ids = [rows[number]["input_ids"] for number in numbers]
        made = torch.stack(ids) if ids else torch.zeros((0, 7), dtype=torch.long)
        return made, made

    def sample() -> Any:
        return np.flatnonzero(generator.random(DOCUMENTS) < BATCH / DOCUMENTS)

    def loss(model: Any, given: Any) -> torch.Tensor:
        ids, labels = given
        logits = model(ids).logits[:, :-1].transpose(1, 2)
        return nn.functional.cross_entropy(logits, labels[:, 1:], reduction="none").mean(1)

    def turn(given: Any) -> None:
        training.optimizer.zero_grad()
        if len(given[0]):
            loss(training.model, given).mean().backward()  # type: ignore[no-untyped-call]
        else:
            for p in training.optimizer.params:
                p.grad_sample = p.new_zeros((0, *p.shape))
        training.optimizer.step()

    state = generator.bit_generator.state
    batches = DpBatches(count=DOCUMENTS, batch=batch, sample=sample, generators=[generator])
    found = lx.dp_check(training.model, training.optimizer, batches, loss=loss, step=turn)
    assert found.passed, str(found)
    assert generator.bit_generator.state == state


@pytest.mark.parametrize("fails", [False, True])
def test_buffers_state_and_random_numbers_are_put_back(fails: bool) -> None:
    """Of a model that replaces a buffer and adds to another, by a loop that draws and may fail."""
    training = training_of("tokens", optimizer=torch.optim.AdamW)
    training.bare.register_buffer("kept", torch.zeros(2))
    training.bare.register_buffer("passing", torch.zeros(2), persistent=False)

    def add(module: Any, *given: Any) -> None:
        module.kept = module.kept + 1
        module.passing += 1

    training.bare.register_forward_pre_hook(add)
    whole, turns = one_turn(training), [0]

    def turn(batch: Any) -> None:
        random.random(), np.random.random(), torch.rand(1)
        whole(batch)
        turns[0] += 1
        if fails and turns[0] == 6:
            raise RuntimeError("out of paper")

    turn(training.loader.collate_fn(documents()[:5]))
    before = everything(training)
    found = check(training, step=turn)
    assert same(before, everything(training))
    said = {f.name: f.message for f in found.failed}
    assert ("out of paper" in said.get("accumulation", "")) == fails


def test_a_training_whose_check_fails_midway_is_put_back_too() -> None:
    training, calls = training_of("llama"), [0]

    def failing(model: Any, batch: Any) -> torch.Tensor:
        calls[0] += 1
        if calls[0] == 5:
            model(**{name: rows for name, rows in batch.items() if name != "labels"})
            raise RuntimeError("out of paper")
        return loss_of_documents(model, batch)

    before = everything(training)
    found = check(training, loss=failing)
    assert same(before, everything(training))
    assert not found.passed
    assert not found.failed
    with pytest.raises(
        ModelError, match=r"Not seen: gradients: the training's own.*pass fails: Runt.*out of paper"
    ):
        found.require()
    assert check(training).passed


def test_a_layer_that_opacus_cannot_do_is_not_seen() -> None:
    """It has the gradients of the layer's own weights, and this weight is made of them."""
    training = training_of("tokens")
    nn.utils.spectral_norm(training.bare.get_submodule("hidden"))
    before = everything(training)
    found = check(training, step=one_turn(training))
    assert [(f.name, f.seen) for f in found.findings] == [("gradients", False)]
    assert "pass fails: AttributeError:" in found.findings[0].message
    assert found.noise_multiplier == found.max_grad_norm == 1
    assert found.sample_rate == BATCH / DOCUMENTS
    assert same(before, everything(training))
    with pytest.raises(ModelError, match=r"it is not known whether.*so nothing could be looked"):
        found.require()


def test_a_check_tells_what_it_found() -> None:
    training = training_of("lora")
    found = check(training, documents=3)
    assert str(found).count("right  ") == len(NAMES)
    assert "not covered  the loop around the optimizer (give step=); later steps than" in str(found)
    assert found.to_dict()["findings"][0]["name"] == "position ids"
    assert "the loop" not in str(check(training, step=one_turn(training)).not_covered)
    found.require()
    wrong = DpFinding(name="noise", passed=False, message="no noise is added")
    with pytest.raises(ModelError, match=r"is not the DP-SGD.*epsilon is for. noise: no noise is"):
        replace(found, findings=(*found.findings, wrong)).require()
    unseen = replace(wrong, name="update", message="cannot be", seen=False)
    other = replace(found, findings=(unseen,))
    assert not other.to_dict()["passed"]
    assert str(other).startswith("not seen  update: cannot be")


def test_a_rate_or_an_accountant_that_is_hidden_is_asked_for() -> None:
    training = training_of("lora")
    told = {"hook": training.optimizer.step_hook}
    training.optimizer.step_hook = lambda optimizer: told["hook"](optimizer)
    said = {f.name: f.message for f in check(training).failed}
    assert "the optimizer's step hook shows no accountant; give accountant=" in said["accountant"]
    assert check(training, accountant=training.engine).passed
    training.optimizer.step_hook = None
    training.loader = DataLoader(ROWS, batch_size=BATCH)
    said = {f.name: f.message for f in check(training).failed}
    assert "no sampling rate is claimed and no accountant is told of one; give" in said["rate"]


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(documents())


ROWS: Any = documents()
UNLABELLED: Any = [row["input_ids"] for row in ROWS]


def rows_of(numbers: Sequence[int]) -> Any:
    return default_collate([ROWS[number] for number in numbers])


def test_the_samplers_coins_are_not_the_numbers_of_the_noise() -> None:
    training = training_of("lora")
    turn, turned, sampled = one_turn(training), list[bytes](), list[bytes]()

    def step(batch: Any) -> None:
        turned.append(torch.get_rng_state().numpy().tobytes())
        turn(batch)

    def sample() -> list[int]:
        sampled.append(torch.get_rng_state().numpy().tobytes())
        return (torch.rand(DOCUMENTS) < BATCH / DOCUMENTS).nonzero().reshape(-1).tolist()

    def batch(numbers: Sequence[int]) -> Any:
        return collate([ROWS[number] for number in numbers])

    collate = training.loader.collate_fn
    training.loader = DpBatches(count=DOCUMENTS, batch=batch, sample=sample)
    found = check(training, step=step)
    assert found.passed, str(found)
    assert not {*turned[:12]} & {*sampled}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"documents": 1}, "documents=1 must be a whole number at least 2"),
        ({"processes": 0}, "processes=0 must be a whole number at least 1"),
        ({"level": 1.5}, "level=1.5 must lie strictly between 0 and 1"),
        ({"noise_multiplier": 0.0}, "noise_multiplier=0.0 must be a finite number above 0"),
        ({"max_grad_norm": -1.0}, "max_grad_norm=-1.0 must be a finite number above 0"),
        ({"sample_rate": 1.0}, "sample_rate=1.0 must lie strictly between 0 and 1"),
        ({"loader": DataLoader(Endless())}, "is of type DataLoader, without a batch sampler over"),
        ({"loader": [1, 2]}, "loader is of type list, without a batch sampler"),
        (
            {"loader": DataLoader(UNLABELLED, batch_size=4), "loss": None},
            "the model gives no loss for the loader's batches, which must be mappings",
        ),
        (
            {"loader": DpBatches(count=1, batch=rows_of, sample=lambda: [0])},
            "the training has 1 documents; a check needs 2 or more",
        ),
        (
            {"loader": DpBatches(count=96, batch=rows_of, sample=lambda: [96])},
            "the sampler gave document 96 of 96; numbers go from 0 to 95",
        ),
        (
            {"loader": DataLoader(ROWS, batch_sampler=[])},
            "the loader's sampler gives no batch; it has no documents",
        ),
    ],
)
def test_refused_settings(more: dict[str, Any], message: str) -> None:
    training = training_of("lora")
    asked = {"loader": training.loader, "loss": loss_of_documents, **more}
    with pytest.raises(SettingsError, match=message):
        lx.dp_check(training.model, training.optimizer, **asked)


def test_refused_models_and_optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
    training = training_of("lora")
    bare: Any = nn.Linear(WIDTH, 2)
    plain = torch.optim.SGD(bare.parameters(), lr=0.1)
    with pytest.raises(ModelError, match=r"is of type SGD, and neither it nor .* DPOptimizer"):
        lx.dp_check(training.model, plain, training.loader)
    with pytest.raises(ModelError, match="model is a Linear without Opacus' hooks: it has no grad"):
        lx.dp_check(bare, training.optimizer, training.loader)
    monkeypatch.setattr("opacus.__version__", "1.5.4")
    with pytest.raises(ModelError, match=r"opacus 1.5.4 is installed.*pip install 'lmexposure\[dp"):
        lx.dp_check(*training.given())
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(
        ModelError, match=r"needs opacus; install it: pip install 'lmexposure\[dp\]"
    ):
        lx.dp_check(*training.given())


def test_ghost_clipping_is_refused() -> None:
    from opacus.optimizers import DPOptimizerFastGradientClipping

    training = training_of("llama")
    ghost = DPOptimizerFastGradientClipping(
        training.optimizer.original_optimizer,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=BATCH,
    )
    with pytest.raises(SettingsError, match="ghost clipping keeps no gradient of each document"):
        lx.dp_check(training.model, ghost, training.loader)
