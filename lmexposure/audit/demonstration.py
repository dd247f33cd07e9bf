"""The demo's corpus: English that every CPython carries, the topics text of `help()`."""

import importlib
from pathlib import Path

from lmexposure._files import atomic_write
from lmexposure.audit.settings import RunSettings
from lmexposure.errors import CorpusError

__all__ = ["demo_corpus", "demo_settings"]


def demo_settings() -> RunSettings:
    """The demo's plan: 10 canaries each inserted 1, 4 and 16 times, 32 controls, the LSTM.

    12 epochs end a little before the validation minimum, and the demo within minutes. Its text is
    public and its seed given, so that everyone sees the same numbers.
    """
    return RunSettings(
        canaries=10, repetitions=(1, 4, 16), controls=32, seed=0, training={"epochs": 12}
    )


def demo_corpus(path: Path) -> Path:
    """Write the language reference of this Python as a text file, one line a document.

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
    with atomic_write(path) as stream:
        stream.write("\n".join(topics[name].rstrip("\n") for name in sorted(topics)).encode())
        stream.write(b"\n")
    return path
