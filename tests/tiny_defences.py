"""The tiniest comparison of defences that is one, and a record of one that nobody trained."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tiny_sweeps import corpus_at

from lmexposure.defences import DefencesSettings
from lmexposure.studies import (
    DefenceAttack,
    DefenceExposure,
    DefenceRow,
    Defences,
    DefenceSearch,
    DefenceTry,
    RunSettings,
    SweepSettings,
)

MODELS, CANARIES = 6, 200


def tiny_comparison(*methods: str, **changes: Any) -> DefencesSettings:
    """Six LSTMs of eight units each, whose canaries are many, since the models are few."""
    run = RunSettings(
        formats=("random_number",),
        canaries=CANARIES,
        repetitions=(1,),
        controls=0,
        layers=1,
        units=8,
        seed=7,
        device="cpu",
        training={"epochs": 2, "learning_rate": 0.02},
    )
    sweep = SweepSettings(models=MODELS, shares=(1.0,), population=5, contexts=1, inclusion_seed=1)
    own: dict[str, Any] = {"methods": methods or ("early-stop",), "target": 1.3}
    own |= {"repeated": 0, "tries": 3}
    return DefencesSettings(**own | changes, sweep=replace(sweep, run=run))


def text_at(directory: Path) -> Path:
    """A corpus of sixty lines."""
    directory.mkdir(parents=True, exist_ok=True)
    return corpus_at(directory)


def made_row(name: str, tpr: float | None = 0.5, **changes: Any) -> DefenceRow:
    """A method at its target, whose strongest attack has a TPR."""
    attack = DefenceAttack(
        kind="pin/x1",
        score="secret_tokens",
        attack="lira",
        among=3,
        tpr=tpr,
        low=None if tpr is None else max(0.0, tpr - 0.1),
        high=None if tpr is None else min(1.0, tpr + 0.1),
    )
    tried = DefenceTry(value=0.5, bits=2.1, ratio=1.05, seconds=3.0)
    values: dict[str, Any] = {
        "name": name,
        "meaning": f"what {name} does",
        "promises_not": "anything",
        "search": DefenceSearch(knob="knob", value=0.5, tries=(tried,), reached=True, why=None),
        "training": {"method": name, "knob": 0.5},
        "strongest": None if tpr is None else attack,
        "attacks": (attack,),
        "exposure": DefenceExposure(
            repetitions=10, canaries=10, median=4.5, low=2.0, high=7.0, found=3, by="beam"
        ),
    }
    values |= {"models": 16, "bits": 2.1, "sd": 0.01, "ratio": 1.05, "target": 1.05, "seconds": 4.0}
    values |= {"population": 0.02, "population_low": 0.01, "population_high": 0.04}
    values |= {"worst": "pin/x1/0003", "worst_p": 0.01, "ranked": True}
    values |= dict.fromkeys(("why", "above_p", "epsilon", "delta"))
    return DefenceRow(**values | changes)


def made_record(*rows: DefenceRow, **changes: Any) -> Defences:
    """A comparison of these, the undefended training first."""
    values: dict[str, Any] = {
        "settings": DefencesSettings(),
        "documents": 60,
        "characters": 2_000,
        "corpus_sha256": "0" * 64,
        "canaries": 48,
        "rows": rows,
        "failed": {},
        "forecast_seconds": 60.0,
        "measured": "2026-11-22T06:30:00Z",
        "lmexposure": "1.0",
        "inputs_sha256": "1" * 64,
        "warnings": (),
    }
    return Defences(**values | changes)
