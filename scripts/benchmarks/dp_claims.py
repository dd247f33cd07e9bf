"""How often the audited bound of private trainings lies above their claim.

Each training has weights, coins, noise and canaries of its own. A bound at level .05 may be above
the claim in at most 16 of 200 right trainings (binomial, 3 standard deviations). Beside them are
trainings whose noise is a thousandth of what their claim says: there it has to be above in most.
"""

import argparse
import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from lmexposure.audit import epsilon
from lmexposure.cli.console import print_table, say
from lmexposure.models import LoadedModel, LstmSizes, epsilon_spent, new_model
from lmexposure.models.batches import Blocks
from lmexposure.models.document_rows import rows_of_documents
from lmexposure.models.dp_sgd import DpSgd
from lmexposure.models.methods import Setup
from lmexposure.models.padded_rows import PaddedRows
from lmexposure.records import TrainingSettings

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


def main() -> int:
    arguments = parse()
    right = [audited(seed, _NOISES[seed % len(_NOISES)]) for seed in range(arguments.seeds)]
    wrong = [
        audited(seed, _NOISES[seed % len(_NOISES)], _TOO_LITTLE)
        for seed in range(arguments.seeds, arguments.seeds + arguments.wrong)
    ]
    rows = []
    for what, found in (("right", right), (f"noise x {_TOO_LITTLE:g}", wrong)):
        for noise in _NOISES:
            some = [(bound, claim) for own, bound, claim in found if own == noise]
            bounds = np.array([bound for bound, _ in some])
            claim = float(np.median([claim for _, claim in some]))
            above = sum(bound > claim for bound, claim in some)
            shown = f"{np.median(bounds):.3f}", f"{bounds.max():.3f}", f"{above} of {len(some)}"
            rows.append([what, f"{noise:g}", f"{claim:.3f}", *shown])
    print_table(["training", "noise", "claim", "median bound", "largest", "above the claim"], rows)
    above = sum(bound > claim for _, bound, claim in right)
    n = len(right)
    allowed = math.floor(n * _LEVEL + 3 * math.sqrt(n * _LEVEL * (1 - _LEVEL))) if n < 200 else 16
    caught = sum(bound > claim for _, bound, claim in wrong)
    reached = above <= allowed and caught > len(wrong) / 2
    say(
        f"{'reached' if reached else 'MISSED'}: {above} of {n} right trainings are above their "
        f"claim, at most {allowed} allowed; {caught} of {len(wrong)} wrong ones are, more than "
        "half asked"
    )
    return int(not reached)


def audited(seed: int, noise: float, share: float = 1.0) -> tuple[float, float, float]:
    """The noise multiplier, the audited bound and the claim of one training, in nats.

    Args:
        seed: of everything.
        noise: multiplier that is claimed.
        share: of it that is really added.
    """
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
    return noise, 0.0 if bound is None else bound.value, claim


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


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--wrong", type=int, default=30, help="trainings with too little noise")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
