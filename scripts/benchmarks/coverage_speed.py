"""What bounds cost at sizes that are asked for: seconds on this machine, one thread."""

import time
from collections.abc import Callable

import numpy as np

from lmexposure.cli.console import say
from lmexposure.statistics import (
    exposure_summary,
    joint_bounds,
    one_run_audit,
    one_run_epsilon,
    sampled_exposure,
)

__all__ = ["main"]

_CANARIES, _REFERENCES, _MANY = 10**5, 10**6, 10**6


def main() -> list[tuple[str, bool]]:
    """Time each claim's work, at its largest delta's and its smallest's cost."""
    generator = np.random.default_rng(0)
    return [_everything(generator), _audit(generator), _guesses()]


def _everything(generator: np.random.Generator) -> tuple[str, bool]:
    """Exposures, their summary and every bound, with coins of 1 in 11 declared."""
    coins = np.zeros(_CANARIES + _REFERENCES, dtype=bool)
    coins[:_CANARIES] = True
    bits = generator.laplace(size=coins.size) + 20 - coins
    share = _CANARIES / coins.size

    def work() -> None:
        found = sampled_exposure(bits[coins], bits[~coins])
        exposure_summary(found.value, resamples=0)
        joint_bounds(-bits, coins, inclusion_probability=share, deltas=(0.0, 1e-5))

    spent = _seconds("exposures and bounds, 10^5 canaries and 10^6 references", work)
    return f"all exposures and bounds of 10^5 canaries in 10^6 references: {spent:.2f} s < 3 s", (
        spent < 3
    )


def _audit(generator: np.random.Generator) -> tuple[str, bool]:
    coins = generator.random(_MANY) < 0.5
    scores = generator.laplace(size=_MANY) + coins
    spent = max(
        _seconds(
            f"one_run_audit, 10^6 canaries, delta {delta:g}",
            lambda delta=delta: one_run_audit(scores, coins, delta=delta, seed=0),
        )
        for delta in (0.0, 1e-5, 1e-3)
    )
    return f"one_run_audit of 10^6 canaries: {spent:.2f} s < 3 s", spent < 3


def _guesses() -> tuple[str, bool]:
    spent = max(
        _seconds(
            f"one_run_epsilon, 10^6 canaries, delta {delta:g}",
            lambda delta=delta: one_run_epsilon(
                canaries=_MANY, guesses=_MANY, correct=622_000, delta=delta
            ),
        )
        for delta in (0.0, 1e-8, 1e-5)
    )
    return f"one_run_epsilon of 10^6 canaries: {1e3 * spent:.1f} ms < 50 ms", spent < 0.05


def _seconds(what: str, work: Callable[[], object]) -> float:
    """The fastest of three calls; the first is slower for reasons of its own."""
    spent = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    say(f"{what}: {min(spent):.3f} s (of three: {', '.join(f'{one:.3f}' for one in spent)})")
    return min(spent)
