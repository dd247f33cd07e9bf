"""Plans and scores of sweeps that nobody trained: bell curves, higher where a text leaks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.studies import AuditedText, SweepModel, SweepPlan, SweepSettings, TrainingResult
from lmexposure.sweeps import Matrices

TOKENS, CONTEXTS, VALIDATION = 4, 2, 6
_NONE = "ab" * 32
ALL = ("log_perplexity", "secret_tokens", "min_k", "min_k_plus_plus", "zlib", "label_only")


def made_plan(
    models: int,
    canaries: int,
    population: int = 0,
    *,
    kinds: tuple[str, ...] = ("pin/x1",),
    included: NDArray[np.bool_] | None = None,  # the coins; None: tossed
    seed: int = 0,
    # The coins in further models, by the share of the canaries that can be in them.
    fewer: Mapping[float, NDArray[np.bool_]] | None = None,
    chosen: tuple[str, ...] = (),  # kinds beyond uniform fills
    **settings: Any,
) -> SweepPlan:
    """A plan with fair coins; canaries are of the kinds in turn."""
    fewer = {} if fewer is None else fewer
    if included is None:
        included = np.random.default_rng(seed).random((models, canaries + population)) < 0.5
    if fewer:
        settings["shares"] = (1.0, *fewer)
    asked = SweepSettings(models=models, **settings).override(
        {"canaries": max(canaries // len(kinds), 1), "kinds": ("uniform", *chosen)}
    )
    texts = [
        *(_canary(number, kinds[number % len(kinds)], len(kinds)) for number in range(canaries)),
        *(_document(number, "population") for number in range(population)),
        *(_document(population + number, "validation") for number in range(VALIDATION)),
    ]
    return SweepPlan(
        manifest_sha256=_NONE,
        settings=asked.resolved(),
        seed=seed,
        tokenizer_sha256=_NONE,
        texts=tuple(texts),
        varied=(),
        validation=tuple(range(population, population + VALIDATION)),
        contexts=(),
        shares=(*(1.0,) * models, *(s for s, rows in fewer.items() for _ in rows)),
        coins=tuple(
            "".join("01"[int(coin)] for coin in row)
            for rows in (included, *fewer.values())
            for row in rows
        ),
    )


def _canary(number: int, kind: str, kinds: int) -> AuditedText:
    name, _, copies = kind.partition("/x")
    return AuditedText(
        id=f"{kind}/{number // kinds:04d}",
        group="canaries",
        kind=kind,
        format=name,
        repetitions=int(copies),
        document=None,
    )


def _document(number: int, group: Any) -> AuditedText:
    return AuditedText(
        id=f"document/{number:06d}",
        group=group,
        kind=group,
        format=None,
        repetitions=int(group == "population"),
        document=number,
    )


def made_matrices(
    plan: SweepPlan,
    *,
    shift: float = 0.0,  # of a text's scores where it was in, in standard deviations
    leaking: tuple[int, ...] = (),  # texts that every model with them gives away
    kept: tuple[int, ...] | None = None,  # models that have scores; None: all
    names: tuple[str, ...] = ("secret_tokens",),
    seed: int = 0,
) -> Matrices:
    """Scores whose texts lie apart, as those of a model do."""
    rng = np.random.default_rng([seed, 1])
    numbers = np.arange(plan.models) if kept is None else np.array(kept)
    coins = plan.included()[numbers]
    shifts = np.full(coins.shape[1], shift)
    shifts[list(leaking)] = 20.0
    means = 3 * rng.normal(size=coins.shape[1])

    def score() -> NDArray[np.float64]:
        found: NDArray[np.float64] = means + rng.normal(size=coins.shape) + shifts * coins
        return found

    scores = {name: score() for name in names if name != "label_only"}
    canaries = len(plan.canaries)
    chance = 1 / (1 + np.exp(-shifts * (coins - 0.5)))
    matches = [
        rng.random((len(numbers), CONTEXTS * TOKENS if n < canaries else 0)) < chance[:, [n]]
        for n in range(coins.shape[1])
    ]
    if canaries and "label_only" in names:
        nothing = np.full(len(numbers), np.nan)
        shares = [found.mean(axis=1) if found.size else nothing for found in matches]
        scores["label_only"] = np.stack(shares, axis=1)
    whole = 100 - scores.get("log_perplexity", score())[:, :, None]
    parts = np.repeat(whole / TOKENS, TOKENS, axis=2) + rng.normal(size=(*coins.shape, TOKENS))
    return Matrices(
        numbers=numbers.astype(np.int64),
        included=coins,
        scores=scores,
        validation_bits=100 + rng.normal(size=(len(numbers), VALIDATION)),
        validation_tokens=np.full(VALIDATION, TOKENS),
        token_bits=tuple(parts[:, n] for n in range(coins.shape[1])),
        secret=(np.array([False] + [True] * (TOKENS - 1)),) * coins.shape[1],
        matches=tuple(matches),
    )


def made_models(matrices: Matrices, **training: Any) -> tuple[SweepModel, ...]:
    """The records of models that have scores."""
    values: dict[str, Any] = {
        "model_path": "model",
        "validation_bits": 2.0,
        "initial_validation_bits": 5.0,
        "best_step": 9,
        "best_epoch": 2.0,
        "steps": 9,
        "epochs": 2.0,
        "tokens": 1_000_000,
        "seconds": 1.0,
        "stopped": "epochs",
        "processes": 1,
        "threads": 1,
        "reused": False,
    }
    record = TrainingResult(**values | training)
    return tuple(
        SweepModel(
            number=number,
            plan_sha256=_NONE,
            seed=number,
            scores_sha256=_NONE,
            training=record,
            device="cpu",
            versions={},
            seconds=2.0,
        )
        for number in matrices.numbers.tolist()
    )
