"""Results made by hand for the gate: ranks drawn by chance, or secrets memorised on purpose."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import gammaincc

from lmexposure.results import CanaryResult, Result

__all__ = [
    "RANDOM_NUMBER",
    "REFERENCES",
    "by_chance",
    "canary",
    "class_row",
    "clean",
    "exact",
    "made",
    "sampled",
]

RANDOM_NUMBER = 10**9
REFERENCES = 10_000
_PERMUTATIONS = 9_999


def by_chance(rng: np.random.Generator, n: int, size: int = RANDOM_NUMBER) -> list[float]:
    """Exposures in bits of n secrets that a model knows nothing of: ranks are uniform."""
    return [math.log2(size) - math.log2(rank) for rank in rng.integers(1, size + 1, n)]


def exact(value: float | None) -> dict[str, Any]:
    return {
        "method": "exact",
        "value": value,
        "low": value,
        "high": value,
        "level": 1.0,
        "capped": False,
    }


def sampled(value: float, low: float, high: float, *, capped: bool = False) -> dict[str, Any]:
    return {
        "method": "sampled",
        "value": value,
        "low": low,
        "high": high,
        "level": 0.95,
        "capped": capped,
    }


def canary(
    number: int,
    exposure: dict[str, Any],
    *,
    repetitions: int = 1,
    name: str = "random_number",
    place: int | None = None,
    guesses: int | None = 1000,
) -> CanaryResult:
    """One canary, or a control where `repetitions` is 0; `guesses` None: nobody searched for it."""
    searched = {"method": "best_first", "revealed": 0, "width": guesses, "proven": guesses}
    found = {"found": place is not None, "place": place}
    return CanaryResult(
        id=f"{name}/x{repetitions}/{number:04d}",
        format=name,
        role="canary" if repetitions else "control",
        repetitions=repetitions,
        log_perplexity_bits=30.0,
        exposure=exposure,
        estimates={},
        extraction=[] if guesses is None else [searched | found],
    )


def class_row(
    values: Sequence[float | None],
    *,
    repetitions: int = 1,
    name: str = "random_number",
    p_value: float | None = None,
    references: int = REFERENCES,
) -> dict[str, Any]:
    """A summary row. The mean exposure of n clean canaries is gamma distributed."""
    n = len(values)
    if p_value is None and values:
        total = math.log(2) * sum(value or 0.0 for value in values)
        p_value = max(1 / (1 + _PERMUTATIONS), float(gammaincc(n, total)))
    test = {
        "p_value": p_value,
        "n": n,
        "references": references,
        "alternative": "memorised" if repetitions else "different",
        "permutations": _PERMUTATIONS,
    }
    role = "canary" if repetitions else "control"
    return {
        "format": name,
        "role": role,
        "repetitions": repetitions,
        "n": n,
        "guessing_test": test,
    }


def made(
    canaries: Sequence[CanaryResult],
    *,
    size: int = RANDOM_NUMBER,
    name: str = "random_number",
    controls: float | None = 0.5,
    summary: list[dict[str, Any]] | None = None,
    improved: bool | None = True,
    **parts: Any,
) -> Result:
    """A result of one format; `controls` is the p-value of 16 of them, None: there are none."""
    references = min(REFERENCES, size - 1)
    null = [canary(i, exact(1.0), repetitions=0, name=name, guesses=None) for i in range(16)]
    canaries = [*canaries, *([] if controls is None or summary is not None else null)]
    classes: dict[int, list[float | None]] = {}
    for one in canaries:
        classes.setdefault(one.repetitions, []).append(one.exposure["value"])
    rows = [
        class_row(
            values,
            repetitions=r,
            name=name,
            p_value=None if r else controls,
            references=references,
        )
        for r, values in classes.items()
    ]
    loss = {"improved": improved, "validation_bits": 1.5, "initial_validation_bits": 6.5}
    values: dict[str, Any] = {
        "inputs_sha256": "1" * 64,
        "manifest_sha256": "2" * 64,
        "model": {"weights_sha256": "3" * 64, "validation": None if improved is None else loss},
        "settings": {},
        "formats": [
            {
                "name": name,
                "space_size": str(size),
                "bits": math.log2(size),
                "references": references,
            }
        ],
        "canaries": list(canaries),
        "summary": rows if summary is None else summary,
        "warnings": [],
    }
    return Result(**(values | parts))


def clean(seed: int = 0, *, n: int = 32, classes: Sequence[int] = (1, 4), **parts: Any) -> Result:
    """A result without memorisation, exact ranks."""
    rng = np.random.default_rng(seed)
    drawn = [
        canary(i, exact(value), repetitions=r)
        for r in classes
        for i, value in enumerate(by_chance(rng, n))
    ]
    return made(drawn, **parts)
