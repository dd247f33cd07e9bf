"""How often the audited bound of private trainings lies above their claim, right ones and wrong.

Each training has weights, coins, noise and canaries of its own. Wrong ones add a thousandth of the
noise that they claim.
"""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from harness import Claims, Namespace

from lmexposure.audit import epsilon
from lmexposure.cli.console import say
from lmexposure.models import LoadedModel, LstmSizes, epsilon_spent, new_model
from lmexposure.models.dp_sgd import DpSgd
from lmexposure.models.methods import Setup
from lmexposure.models.packing import Blocks
from lmexposure.models.padded_rows import PaddedRows, rows_of_documents
from lmexposure.studies import TrainingSettings

ARGUMENTS = {"seeds": 200, "wrong": 30}
_NOISES = (3.0, 4.0, 6.0)
_CANDIDATES, _OTHERS = 300, 60
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_TOO_LITTLE = 1 / 1000  # of the noise that is claimed
_LEVEL = 0.05
_SETTINGS = TrainingSettings(
    method="dp-sgd",
    noise_multiplier=1.0,
    delta=1e-3,
    clip=1.0,
    epochs=12,
    learning_rate=5e-2,
    expected_batch=100,
    batch_size=256,
    block_size=32,
    validation_fraction=0.01,
)


def claims(given: Namespace) -> Claims:
    """A bound at level .05 may be above the claim in at most 16 of 200 (2 standard deviations)."""
    right = [audited(seed) for seed in range(given.seeds)]
    wrong = [audited(seed, _TOO_LITTLE) for seed in range(given.seeds, given.seeds + given.wrong)]
    for what, found in (("right", right), (f"noise x {_TOO_LITTLE:g}", wrong)):
        bounds = [bound for bound, _ in found]
        say(f"{what}: bounds of {np.median(bounds):.3f} in the median, {max(bounds):.3f} at most")
    n, above = len(right), sum(bound > claim for bound, claim in right)
    allowed = round(n * _LEVEL + 2 * math.sqrt(n * _LEVEL))
    yield (
        above <= allowed,
        f"{above} of {n} right trainings are above their claim, {allowed} allowed",
    )
    caught = sum(bound > claim for bound, claim in wrong)
    yield caught > len(wrong) / 2, f"{caught} of {len(wrong)} wrong ones are, more than half asked"


def audited(seed: int, share: float = 1.0) -> tuple[float, float]:
    """The audited bound and the claim of a training that adds this share of its noise, in nats."""
    noise = _NOISES[seed % len(_NOISES)]
    draw = np.random.default_rng(seed)
    words = ["".join(draw.choice(list(_LETTERS), size=10)) for _ in range(_CANDIDATES)]
    inside = draw.random(_CANDIDATES) < 0.5
    others = [f"a line of the text, number {i}" for i in range(_OTHERS)]
    loaded = new_model(
        "lstm",
        [_LETTERS, *others],
        seed=seed,
        separator="\n",
        lstm=LstmSizes(units=48, embedding=24, layers=1),
    )
    settings = replace(_SETTINGS, noise_multiplier=noise * share, noise_seed=seed)
    kept = [*others, *(word for word, coin in zip(words, inside, strict=True) if coin)]
    training = _setup(loaded, kept, settings)
    every = training.blocks(_rows(loaded.tokenizer, words, settings))
    before = _nats(loaded.model, every)
    method = DpSgd(training)
    torch.manual_seed(seed)
    loaded.model.train()
    for epoch in range(settings.epochs):
        first = epoch * method.steps_per_epoch
        for step, numbers in enumerate(method.steps(epoch), first):
            method.learn(numbers, step=step, rate=settings.learning_rate)
    method.close()
    claim = _claim(noise, method.sample_rate, method.steps_per_epoch * settings.epochs)
    found = epsilon(
        before - _nats(loaded.model, every),
        inside,
        inclusion_probability=0.5,
        deltas=(settings.delta,),
        significance=_LEVEL,
        seed=seed,
    )
    bound = found.primary
    return 0.0 if bound is None else bound.value, claim


@cache
def _claim(noise: float, rate: float, steps: int) -> float:
    return epsilon_spent([(noise, rate, steps)], delta=_SETTINGS.delta).epsilon


def _setup(loaded: LoadedModel, texts: list[str], settings: TrainingSettings) -> Setup:
    return Setup(
        model=loaded.model,
        rows=_rows(loaded.tokenizer, texts, settings),
        settings=settings,
        accelerator=Accelerator(cpu=True),
    )


def _rows(tokenizer: Any, texts: list[str], settings: TrainingSettings) -> PaddedRows:
    rows, _ = rows_of_documents(
        tokenizer, texts, separator="\n", canaries={}, settings=settings, validation=texts[:1]
    )
    return rows


@torch.no_grad()
def _nats(model: Any, rows: Blocks) -> np.ndarray[Any, np.dtype[np.float64]]:
    model.eval()
    return rows.nats_of_each(model, np.arange(len(rows))).double().numpy()


PARTS = {"claims": claims}
