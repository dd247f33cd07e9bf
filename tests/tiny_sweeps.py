"""The tiniest sweep that is one: five LSTMs of eight units, each a fifth of a second."""

import hashlib
from pathlib import Path
from typing import Any

from corpora import write_corpus

from lmexposure.studies import RunSettings, SweepSettings

MODELS = 5
FLAGS = (
    *("--models", MODELS, "--format", "pin", "--canaries", 6, "--population", 4),
    *("--set", "layers=1", "--set", "units=8", "--epochs", 2, "--seed", 7),
    *("--set", "inclusion_seed=1"),
)


def tiny_settings(**changes: Any) -> SweepSettings:
    """As FLAGS have it."""
    run: dict[str, Any] = {"formats": ("pin",), "canaries": 6, "repetitions": (1,), "controls": 0}
    run |= {"layers": 1, "units": 8, "seed": 7}
    run["training"] = {"epochs": 2} | changes.pop("training", {})
    settings: dict[str, Any] = {"models": MODELS, "population": 4, "inclusion_seed": 1}
    return SweepSettings(**settings | changes, run=RunSettings(**run))


def corpus_at(directory: Path) -> Path:
    """A corpus of sixty lines."""
    return write_corpus(directory / "corpus.txt", 60)


def scores_of(out: Path) -> dict[str, str]:
    """The hash of each model's scores, by the model's name."""
    files = (out / "models").glob("*/scores.npz")
    return {file.parent.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
