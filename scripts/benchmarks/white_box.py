"""Canaries in gradients: how often a promise is refuted, and what a step with them costs."""

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from harness import Claims, Namespace, in_turn, ratio, timed
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from scipy import stats
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import lmexposure as lx
from lmexposure.models.dp_accounting import epsilon_spent

ARGUMENTS = {"trainings": 2_000, "rounds": 12}
DELTA = 1e-5
_MOST = 1.1  # of a step without canaries


def optimizer(noise: float) -> Any:
    """Opacus' optimizer of 100 weights."""
    return DPOptimizer(
        torch.optim.SGD([nn.Parameter(torch.zeros(100))], lr=0.1),
        noise_multiplier=noise,
        max_grad_norm=1.0,
        expected_batch_size=1,
    )


def refuted(canaries: Any, sigma: float, added: float, rate: float, seed: int) -> bool:
    """Whether the promise is refuted of a training that adds other noise than it says."""
    steps, draws = 160, np.random.default_rng(seed)
    state = {"seed": seed, "steps": steps, "noises": [sigma]}
    nothing = {"scores": torch.zeros(canaries.count), "step_scores": torch.zeros(steps)}
    canaries.restore(state | nothing)  # its coins are of the seed
    joined = canaries.coins * draws.binomial(steps, rate, canaries.count)
    noise = added * math.sqrt(steps) * draws.normal(size=canaries.count)
    step_scores = canaries.step_coins + added * draws.normal(size=steps)
    found = {"scores": joined + noise, "step_scores": step_scores}
    canaries.restore(state | {name: torch.from_numpy(values) for name, values in found.items()})
    claim = epsilon_spent([(sigma, rate, steps)], delta=DELTA).epsilon
    bounds = canaries.audit(delta=DELTA).bounds
    return bool(bounds.refutes(epsilon=claim, noise_multiplier=sigma))


def claims(given: Namespace) -> Claims:
    """At 5 %, all bounds of a training together."""
    for sigma, rate in ((0.5, 0.1), (1.0, 0.0626)):
        canaries = lx.GradientCanaries(optimizer(sigma), sample_rate=rate, count=64, seed=0)
        alarms = sum(refuted(canaries, sigma, sigma, rate, seed) for seed in range(given.trainings))
        p = stats.binomtest(alarms, given.trainings, 0.05, alternative="greater").pvalue
        what = f"noise {sigma:g}, rate {rate:g}, 160 steps"
        yield (
            p >= 0.01,
            f"{what}: right trainings refuted {alarms} of {given.trainings:,} (p {p:.2g})",
        )
        few = max(1, given.trainings // 10)
        for share, planted in ((0.5, "half of the noise"), (1e-6, "no noise")):
            seen = sum(refuted(canaries, sigma, share * sigma, rate, seed) for seed in range(few))
            yield seen >= 0.95 * few, f"{what}: {planted}: refuted {seen} of {few:,}"


def private_gpt2() -> tuple[Any, Any, Any]:
    """10^6 weights, 16 documents of 128 tokens."""
    config = GPT2Config(vocab_size=1_000, n_positions=128, n_embd=128, n_layer=4, n_head=4)
    config.pad_token_id = None
    bare_model = GPT2LMHeadModel(config).train()
    model = GradSampleModule(bare_model, loss_reduction="sum")
    weights = list(model.parameters())
    made = DPOptimizer(
        torch.optim.SGD(weights, lr=0.0),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=16,
    )
    return model, made, torch.randint(0, 1_000, (16, 128))


def steps(model: Any, made: Any, ids: Any) -> Iterator[None]:
    """Steps of the training, one each time it is asked for."""
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    while True:
        loss = model(input_ids=ids, position_ids=positions, labels=ids).loss
        (loss * len(ids)).backward()
        made.step()
        made.zero_grad()
        yield


def cost(given: Namespace) -> Claims:
    """Steps with 1,000 canaries and without, in turn."""
    model, made, ids = private_gpt2()
    canaries = lx.GradientCanaries(made, sample_rate=0.1, count=1_000, seed=1)
    step = steps(model, made, ids)

    def without() -> None:
        canaries.detach()
        next(step)

    def inside() -> None:
        canaries.attach()
        next(step)

    sides = {
        name: timed(run, time.process_time)
        for name, run in (("without", without), ("with", inside))
    }
    in_turn(sides, 1)
    seconds = in_turn(sides, given.rounds)
    times = ratio(seconds["with"], seconds["without"])
    yield (
        times <= _MOST,
        f"a step of DP-SGD with 1,000 canaries, {canaries.dimension:,} weights: {times:.3f} of one "
        f"without (asked {_MOST})",
    )


PARTS = {"claims": claims, "cost": cost}
