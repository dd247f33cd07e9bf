"""What canaries in gradients show where the noise is known: scripts/benchmark_white_box.

Parts: `figures`: medians of 20 repetitions of the bounds of a whole training and of single steps;
`coverage`: how often a bound lies above the truth, in five settings, 400 seeds each; `half`: real
steps of Opacus' optimizer that add half of the noise they claim; `cost`: a step with 1,000 canaries
beside one without, of 10^6 weights; `claims`: of 2,000 trainings by simulated scores, how many
promises are refuted: right ones, and where the noise is half of what is promised, or missing.
"""

import argparse
import math
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from scipy import stats
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import lmexposure as lx
from lmexposure.models.dp_accounting import epsilon_at_least, epsilon_spent
from lmexposure.statistics import (
    gaussian_dp_epsilon,
    one_run_audit,
    one_run_epsilon,
    one_run_gaussian_audit,
    step_guesses_epsilon,
    step_noise_epsilon,
    step_rates_epsilon,
)

DELTA = 1e-5
Floats = np.ndarray[Any, Any]


def say(ok: bool, line: str) -> None:
    """A claim and whether it holds."""
    print(f"{'reached' if ok else 'MISSED '}  {line}", flush=True)


def whole(m: int, sigma: float, steps: int, rate: float, seed: int) -> tuple[Floats, Floats]:
    """Scores and coins of a whole training."""
    draws = np.random.default_rng(seed)
    coins = draws.random(m) < 0.5
    joined = draws.binomial(steps, rate, m) * coins
    return joined + draws.normal(size=m) * sigma * math.sqrt(steps), coins


def single(n: int, sigma: float, seed: int, *, equal: bool = False) -> tuple[Floats, Floats]:
    """Scores and coins of single steps; with `equal`, as many in as not."""
    draws = np.random.default_rng(seed)
    coins = np.arange(n) % 2 == 0 if equal else draws.random(n) < 0.5
    return coins + draws.normal(size=n) * sigma, coins


def of_ends(scores: Floats, coins: Floats, guesses: int) -> float:
    """The bound by a number of guesses that is fixed beforehand, half at each end."""
    order, half = np.argsort(scores), guesses // 2
    right = int((~coins[order[:half]]).sum() + coins[order[-half:]].sum())
    found = one_run_epsilon(canaries=scores.size, guesses=guesses, correct=right, delta=DELTA)
    return float(found.value)


def figures() -> None:
    """Medians of 20 repetitions."""
    for sigma, steps, rate, known in (
        (4.0, 16, 1.0, 1.5),
        (1.0, 1, 1.0, 1.5),
        (2.0, 100, 0.1, 0.62),
        (1.0, 100, 0.05, 0.61),
    ):
        rows = []
        for seed in range(20):
            scores, coins = whole(1_000, sigma, steps, rate, seed)
            rows.append(
                [
                    of_ends(scores, coins, 250),
                    one_run_audit(scores, coins, delta=DELTA, seed=seed).value,
                    one_run_gaussian_audit(scores, coins, delta=DELTA, seed=seed).value,
                ]
            )
        ends, ours, gaussian = np.median(rows, axis=0)
        truth = epsilon_spent([(sigma, rate, steps)], delta=DELTA).epsilon
        say(
            abs(ends / known - 1) < 0.1,
            f"whole training, m 1,000, noise {sigma:g}, {steps} steps, rate {rate:g} (epsilon "
            f"{truth:.3f}): 250 guesses {ends:.3f} (asked about {known}), one_run_audit "
            f"{ours:.3f}, Gaussian {gaussian:.3f}",
        )
    for mu, n, known in ((1.0, 1_000, 0.74), (1.0, 10_000, 0.926), (0.5, 10_000, 0.432)):
        found = {
            name: float(
                np.median([bound(*single(n, 1 / mu, s), delta=DELTA).mu for s in range(20)])
            )
            for name, bound in (
                ("rates", step_rates_epsilon),
                ("guesses", step_guesses_epsilon),
                ("noise", step_noise_epsilon),
            )
        }
        say(
            abs(found["rates"] / known - 1) < 0.05,
            f"single steps, mu {mu:g}, n {n:,}: rates {found['rates']:.3f} (asked {known}), "
            f"guesses {found['guesses']:.3f}, spread {found['noise']:.3f}",
        )
    for n, known in ((500, 0.874), (5_000, 0.955)):
        ranks = []
        for seed in range(100):
            scores, coins = single(2 * n, 1.0, seed, equal=True)
            bound = gaussian_dp_epsilon(scores[coins], scores[~coins], delta=DELTA)
            ranks.append(bound.mu)
        say(
            float(np.median(ranks)) >= 0.98 * known,
            f"ranks, {n:,} in and as many not: {np.median(ranks):.3f} (simulated before: {known})",
        )
    for sigma, known in ((1.0, 1.828), (1.047, 1.666), (1.144, 1.411)):
        low = epsilon_at_least([(sigma, 0.01, 1_000)], delta=DELTA)
        high = epsilon_spent([(sigma, 0.01, 1_000)], delta=DELTA).epsilon
        say(low <= known <= high, f"noise {sigma:g} composed: {low:.3f} .. {high:.3f}, {known}")


def coverage() -> None:
    """Of 400 seeds at .05 at most 40 above the truth, 20 expected at most."""
    for sigma, steps, rate in (
        (1.0, 1, 1.0),
        (4.0, 16, 1.0),
        (2.0, 100, 0.1),
        (1.0, 300, 0.05),
        (0.6, 400, 0.02),
    ):
        truth = epsilon_spent([(sigma, rate, steps)], delta=DELTA).epsilon
        above = dict.fromkeys(("one run", "one run, Gaussian", "guesses", "rates", "spread"), 0)
        for seed in range(400):
            scores, coins = whole(300, sigma, steps, rate, seed)
            above["one run"] += one_run_audit(scores, coins, delta=DELTA, seed=seed).value > truth
            found = one_run_gaussian_audit(scores, coins, delta=DELTA, seed=seed)
            above["one run, Gaussian"] += found.value > truth
            own = single(max(steps, 100), sigma, 10_000 + seed)
            for name, bound in (
                ("guesses", step_guesses_epsilon),
                ("rates", step_rates_epsilon),
                ("spread", step_noise_epsilon),
            ):
                above[name] += bound(*own, delta=DELTA).mu > 1 / sigma
        told = ", ".join(f"{name} {count}" for name, count in above.items())
        say(
            max(above.values()) <= 40,
            f"noise {sigma:g}, {steps} steps, rate {rate:g}: above the truth in 400: {told}",
        )


def bare(claimed: float, added: float, seed: int) -> Any:
    """Opacus' optimizer of 100 weights, which adds other noise than it says."""
    weight = nn.Parameter(torch.zeros(100))
    made = DPOptimizer(
        torch.optim.SGD([weight], lr=0.1),
        noise_multiplier=claimed,
        max_grad_norm=1.0,
        expected_batch_size=1,
        generator=torch.Generator().manual_seed(seed),
    )
    original = made.add_noise

    def other() -> None:
        made.noise_multiplier = added
        original()
        made.noise_multiplier = claimed

    made.add_noise = other
    return made


def half() -> None:
    """Trainings of 10,000 steps whose noise is half of what is claimed."""
    refuted, begun = 0, time.process_time()
    rate, steps = 0.01, 10_000
    claim = epsilon_spent([(1.0, rate, steps)], delta=DELTA).epsilon
    longest = 0.0
    for seed in range(100):
        one = time.process_time()
        made = bare(1.0, 0.5, seed)
        canaries = lx.GradientCanaries(made, sample_rate=rate, count=0, seed=seed)
        (weight,) = made.params
        for _ in range(steps):
            weight.grad_sample = torch.randn(2, 100) * 0.1
            made.step()
            made.zero_grad()
        refuted += canaries.audit(delta=DELTA).bounds.largest > claim
        longest = max(longest, time.process_time() - one)
    say(
        refuted >= 95 and longest < 120,
        f"half of the noise, {steps:,} steps: refuted {refuted} of 100 (asked 95), at most "
        f"{longest:.1f} CPU s each (asked 120), {time.process_time() - begun:.0f} s in all",
    )


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


def turns(model: Any, made: Any, ids: Any) -> Iterator[None]:
    """Steps of the training, one each time it is asked for."""
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    while True:
        loss = model(input_ids=ids, position_ids=positions, labels=ids).loss
        (loss * len(ids)).backward()
        made.step()
        made.zero_grad()
        yield


def cost() -> None:
    """Steps with and without, in turns."""
    torch.set_num_threads(1)
    model, made, ids = private_gpt2()
    canaries = lx.GradientCanaries(made, sample_rate=0.1, count=1_000, seed=1)
    turn, seconds = turns(model, made, ids), {"without": 0.0, "with": 0.0}
    for number in range(26):
        (canaries.attach if number % 2 else canaries.detach)()
        begun = time.process_time()
        next(turn)
        if number >= 2:
            seconds["with" if number % 2 else "without"] += time.process_time() - begun
    ratio = seconds["with"] / seconds["without"]
    say(
        ratio <= 1.1,
        f"a step of DP-SGD with 1,000 canaries and one of the step, {canaries.dimension:,} "
        f"weights: {ratio:.3f} of one without (asked 1.1; {seconds['without'] / 12:.2f} CPU s)",
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


def claims(trainings: int = 2_000) -> None:
    """At 5 %, all bounds of a training together."""
    for sigma, rate in ((0.5, 0.1), (1.0, 0.0626)):
        canaries = lx.GradientCanaries(bare(sigma, sigma, 0), sample_rate=rate, count=64, seed=0)
        alarms = sum(refuted(canaries, sigma, sigma, rate, seed) for seed in range(trainings))
        p = stats.binomtest(alarms, trainings, 0.05, alternative="greater").pvalue
        what = f"noise {sigma:g}, rate {rate:g}, 160 steps"
        say(p >= 0.01, f"{what}: right trainings refuted {alarms} of {trainings:,} (p {p:.2g})")
        few = trainings // 10
        for share, planted in ((0.5, "half of the noise"), (1e-6, "no noise")):
            seen = sum(refuted(canaries, sigma, share * sigma, rate, seed) for seed in range(few))
            say(seen >= 0.95 * few, f"{what}: {planted}: refuted {seen} of {few:,}")


PARTS = {"figures": figures, "coverage": coverage, "half": half, "cost": cost, "claims": claims}

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=[*PARTS, "all"])
    chosen = parser.parse_args().part
    for name, part in PARTS.items():
        if chosen in (name, "all"):
            part()
