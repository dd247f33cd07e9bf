"""The demo's corpus: English that every CPython carries, the topics text of `help()`."""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmexposure._files import atomic_write
from lmexposure.errors import CorpusError
from lmexposure.records import MeasureSettings, RunSettings

_QUICK_LINES = 3_000
_QUICK_TRAINING: Mapping[str, Any] = {"epochs": 8, "learning_rate": 6e-3}


def demo_settings(*, quick: bool = False) -> RunSettings:
    """The demo's plan: 10 canaries each inserted 1, 4 and 16 times, 32 controls, the LSTM.

    12 epochs end a little before the validation minimum, and the demo within minutes. Its text is
    public and its seed given, so that everyone sees the same numbers.

    Args:
        quick: a demo of half a minute: a smaller LSTM on a quarter of the text, and a first look.
    """
    plan = RunSettings(canaries=10, repetitions=(1, 4, 16), controls=32, seed=0)
    if not quick:
        return replace(plan, training={"epochs": 12})
    return replace(
        plan,
        repetitions=(1, 16),
        layers=1,
        units=128,
        training=_QUICK_TRAINING,
        measure=MeasureSettings.first_look(),
    )


def demo_corpus(path: Path, *, quick: bool = False) -> Path:
    """Write the language reference of this Python as a text file, one line a document.

    Args:
        path: of the file.
        quick: only its first lines.

    Raises:
        CorpusError: this Python does not carry the text.
        FileError: the disk refused.
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except (ImportError, AttributeError):
        topics = {}
    if not topics:
        raise CorpusError(
            "this Python carries no pydoc_data.topics (some distributions strip it); install its "
            "documentation package, or test a text of your own: lmexposure run CORPUS --out DIR"
        )
    lines = "\n".join(topics[name].rstrip("\n") for name in sorted(topics)).split("\n")
    with atomic_write(path) as stream:
        for line in lines[: _QUICK_LINES if quick else None]:
            stream.write(line.encode() + b"\n")
    return path
