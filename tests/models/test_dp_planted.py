"""Trainings with one thing wrong each, as such trainings are wrong in the wild: all are caught."""

import re
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from models.dp_trainings import (
    BATCH,
    DOCUMENTS,
    Training,
    documents,
    loss_of_documents,
    training_of,
)
from opacus.data_loader import DPDataLoader
from torch.utils.data import DataLoader, WeightedRandomSampler

import lmexposure as lx
from lmexposure.models import DpBatches

RATE = BATCH / DOCUMENTS
# Of torch, at a module whose inputs need no gradient, in loops as people write them.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
Planted = tuple[Training, dict[str, Any]]


def weighted() -> Planted:
    training = training_of("tokens")
    sampler = WeightedRandomSampler(torch.ones(DOCUMENTS).tolist(), DOCUMENTS)
    training.loader = DataLoader(documents(), batch_size=BATCH, sampler=sampler)  # type: ignore[arg-type]
    return training, {}


def wrong_rate() -> Planted:
    training = training_of("tokens")
    training.loader = DPDataLoader(documents(), sample_rate=2 * RATE)
    return training, {}


def wrong_rate_of_a_sampler() -> Planted:
    training, rows = training_of("tokens"), documents()
    collate, generator = training.loader.collate_fn, np.random.default_rng(1)

    def batch(numbers: Sequence[int]) -> Any:
        return collate([rows[number] for number in numbers])

    def sample() -> Any:
        return np.flatnonzero(generator.random(DOCUMENTS) < 1.6 * RATE)

    training.loader = DpBatches(count=DOCUMENTS, batch=batch, sample=sample, generators=[generator])
    return training, {}


def noise_off() -> Planted:
    training = training_of("tokens")

    def no_noise(self: Any) -> None:
        for p in self.params:
            p.grad = p.summed_grad.clone()

    training.optimizer.add_noise = types.MethodType(no_noise, training.optimizer)
    return training, {}


def noise_less_than_claimed() -> Planted:
    return training_of("llama", noise_multiplier=0.5), {"noise_multiplier": 1.0}


def clipped_to_more() -> Planted:
    return training_of("lstm", max_grad_norm=10.0), {"max_grad_norm": 1.0}


def frozen() -> Planted:
    def freeze(model: Any) -> None:
        model.transformer.h[0].mlp.requires_grad_(False)

    return training_of(change=freeze), {}


def adapters_left_behind() -> Planted:
    training = training_of("lora")
    training.model = training_of("lora", seed=1).model
    return training, {}


def no_learning_rate() -> Planted:
    return training_of("llama", lr=0.0), {}


def no_position_ids(clipping: str) -> Planted:
    weights = 28
    bound: Any = [1.0 / weights**0.5] * weights if clipping == "per_layer" else 1.0
    data = documents(positions=False)
    return training_of(data=data, clipping=clipping, max_grad_norm=bound), {}


def double_batch() -> Planted:
    return training_of("tokens"), {"processes": 2}


def accumulation_allowed() -> Planted:
    training = training_of("tokens")
    training.model.allow_grad_accumulation()
    return training, {}


def accumulation_by_accelerate() -> Planted:
    training = training_of("tokens")
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    training.model, training.optimizer, training.loader = accelerator.prepare(
        training.model, training.optimizer, training.loader
    )
    return training, {}


def no_accountant() -> Planted:
    training = training_of("tokens")
    training.optimizer.step_hook = None
    return training, {"sample_rate": RATE}


def accountant_not_told() -> Planted:
    training = training_of("lora")
    training.optimizer.step_hook = lambda optimizer: None
    return training, {"accountant": training.engine, "sample_rate": RATE}


def no_noise_claimed() -> Planted:
    return training_of("tokens", noise_multiplier=0.0), {}


def never_stepping() -> Planted:
    training = training_of("lora")
    training.optimizer.pre_step = lambda closure=None: False
    return training, {}


def divided_by_another_size() -> Planted:
    training = training_of("lora")
    training.optimizer.expected_batch_size = 3 * BATCH
    return training, {}


def mean_over_tokens() -> Planted:
    return training_of("llama"), {"loss": None}


def summed_loss() -> Planted:
    def summed(model: Any, batch: Any) -> torch.Tensor:
        return loss_of_documents(model, batch) * len(batch["input_ids"])

    return training_of("tokens"), {"loss": summed}


def empty_refused() -> Planted:
    return training_of(), {"loss": None}


def random_for_empty() -> Planted:
    return training_of("tokens", rand_on_empty=True), {}


@pytest.mark.parametrize(
    ("plant", "name", "message"),
    [
        (weighted, "sampling", "batches hold a document twice and sizes are constant"),
        (
            wrong_rate,
            "rate",
            "takes documents at rate 0.166667, accounted are 0.0833333; 1000 batch",
        ),
        (wrong_rate_of_a_sampler, "rate", r"expected at rate 0.08\d+, p = .*rate is about 0.13"),
        (noise_off, "noise", "standard deviation 0 in .* coo.*claimed 1 = 1 x 1: no noise is ad"),
        (noise_less_than_claimed, "noise", r"claimed 1 = 1 x 1: it is 0.\d+ times what is claimed"),
        (noise_less_than_claimed, "accountant", "told noise_multiplier 0.5, claimed 1"),
        (clipped_to_more, "clipping", "documents are not clipped to 1, and the noise hides less"),
        (frozen, "weights", r"4 of 28 weights .*: transformer.h.0.mlp.*bias are frozen \(requires"),
        (
            adapters_left_behind,
            "gradients",
            "no document has a gradient in the optimizer's weights",
        ),
        (adapters_left_behind, "weights", r"are not in the optimizer.*optimizer holds \d+ weights"),
        (no_learning_rate, "weights", "21 of 21 .*and 17 more stay where they are; is their learn"),
        (
            lambda: no_position_ids("per_layer"),
            "position ids",
            "transformer.wpe.weight has gradients of 1 documents in a batch of 8: .*give position_",
        ),
        (lambda: no_position_ids("flat"), "position ids", "give position_ids of shape"),
        (lambda: no_position_ids("flat"), "clipping", "since the optimizer's step fails: stack"),
        (double_batch, "batch size", "each of 2 processes draws from all documents.* 8 are accoun"),
        (accumulation_allowed, "accumulation", "several backward passes before a step without a w"),
        (accumulation_by_accelerate, "accumulation", "accelerate gathers 2 batches for a step"),
        (no_accountant, "accountant", "no accountant is told of steps: attach one with optimizer"),
        (accountant_not_told, "accountant", "the accountant was not told of a step: attach acc"),
        (no_noise_claimed, "noise", "the claim is a noise multiplier of 0: no epsilon is"),
        (never_stepping, "clipping", "the optimizer took no step after a batch: it waits for mor"),
        (never_stepping, "empty batches", "no step is taken for it"),
        (never_stepping, "weights", "4 of 4 weights that are to learn did not move"),
        (divided_by_another_size, "batch size", "is divided by 24: expected_batch_size must be 8"),
        (mean_over_tokens, "gradients", "document .* times its norm alone.* must not depend on th"),
        (summed_loss, "gradients", "of 8 times its norm alone.*the loss is a sum over documents"),
        (empty_refused, "empty batches", "probability 2.4e-04 a step, and it fails: .*grad_sample"),
        (random_for_empty, "empty batches", "its sum has norm .* and must be 0: what is read in"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_bug_is_caught_and_named(
    plant: Callable[[], Planted], name: str, message: str
) -> None:
    training, more = plant()
    found = lx.dp_check(*training.given(), **{"loss": loss_of_documents, **more})
    assert not found.passed
    said = {finding.name: finding.message for finding in found.failed}
    assert name in said, str(found)
    assert re.search(message, said[name]), said[name]
