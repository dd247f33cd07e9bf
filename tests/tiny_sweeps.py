"""The tiniest sweep that is one: five LSTMs of eight units, each a fifth of a second."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from corpora import write_corpus

from lmexposure.studies import RunSettings, SweepModel, SweepSettings
from lmexposure.sweeps import SweepDirectory, prepare, run_task
from lmexposure.sweeps.matrices import ModelScores

MODELS = 5
FLAGS = (
    *("--models", MODELS, "--format", "pin", "--canaries", 6, "--population", 4, "--epochs", 2),
    *("--set", "layers=1", "--set", "units=8", "--seed", 7, "--set", "inclusion_seed=1"),
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


def with_run(settings: SweepSettings, **run: Any) -> SweepSettings:
    return replace(settings, run=replace(settings.run, **run))


def chats_at(directory: Path) -> Path:
    """Forty chats of a question and an answer."""

    def chat(i: int) -> dict[str, Any]:
        said = [("user", f"question {i}"), ("assistant", f"answer {i * 37 % 101}")]
        return {"messages": [{"role": role, "content": text} for role, text in said]}

    path = directory / "chats.jsonl"
    path.write_text("".join(json.dumps(chat(i)) + "\n" for i in range(40)))
    return path


def prepared_at(
    out: Path,
    settings: SweepSettings | None = None,
    corpus_of: Callable[[Path], Path] = corpus_at,
    **changes: Any,
) -> SweepDirectory:
    """Prepared on a corpus beside it."""
    prepare(corpus_of(out.parent), out=out, settings=settings or tiny_settings(**changes))
    return SweepDirectory.open(out)


def trained_at(
    out: Path,
    settings: SweepSettings,
    corpus_of: Callable[[Path], Path] = corpus_at,
    numbers: Iterable[int] = (0,),
) -> SweepDirectory:
    """With these models."""
    directory = prepared_at(out, settings, corpus_of)
    for number in numbers:
        assert isinstance(run_task(out, number), SweepModel)
    return directory


def copied(directory: SweepDirectory, to: Path) -> SweepDirectory:
    return SweepDirectory.open(shutil.copytree(directory.out, to))


def scores_read(directory: SweepDirectory, number: int) -> ModelScores:
    return ModelScores.of(directory.scores(number), directory.plan, f"model {number}")


def torn(path: Path) -> None:
    """As a write that was cut off leaves it."""
    path.write_bytes(path.read_bytes()[:-9])
