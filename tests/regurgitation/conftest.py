"""One tiny model for all tests of memorised text: it knows what is repeated, and nothing else."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from lmexposure.models import LoadedModel, LstmSizes, TrainingSettings, load_model, new_model, train

WORDS = [
    *("salt", "rope", "harbour", "night", "lamp", "grey", "seven", "under", "willow", "iron"),
    *("cloth", "answer", "river", "low", "bread", "stone", "letter", "winter", "glass", "horse"),
]
REPEATED = {0: 40, 1: 12}  # document -> its copies


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, what it read, and what it did not."""

    model: Path
    loaded: LoadedModel
    documents: list[str]  # different ones, the repeated first
    train: Path
    held_out: Path


def sentence(draws: np.random.Generator) -> str:
    return " ".join(draws.choice(WORDS, size=16)) + "."


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """An LSTM of 48 units after a few seconds of training."""
    home = tmp_path_factory.mktemp("memorised")
    draws = np.random.default_rng(4)
    documents = [sentence(draws) for _ in range(24)]
    others = [sentence(draws) for _ in range(30)]
    lines = [text for n, text in enumerate(documents) for _ in range(REPEATED.get(n, 1))]
    lines = [lines[n] for n in draws.permutation(len(lines))]
    corpus, held_out = home / "train.txt", home / "held-out.txt"
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    held_out.write_text("\n".join(others) + "\n", encoding="utf-8")
    model = new_model(
        "lstm", lines + others, seed=1, separator="\n", lstm=LstmSizes(layers=1, units=64)
    )
    settings = TrainingSettings(epochs=22, learning_rate=1e-2)
    train(
        model,
        lines,
        settings=settings,
        separator="\n",
        canaries={},
        validation=documents[:2],  # so that what memorises most is kept
        out=home / "trained",
    )
    directory = home / "trained" / "model"
    return Case(
        model=directory,
        loaded=load_model(directory),
        documents=documents,
        train=corpus,
        held_out=held_out,
    )
