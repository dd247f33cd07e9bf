"""How the checkpoints beside this file were made: `PYTHONPATH=.:tests python .../make.py OUT`.

Each is a tiny model with the manifest of the corpus that it learned by heart:

- fixed: an LSTM; three formats, one of which has a fill that the corpus held before; inserted 1 and
  24 times.
- coins: an LSTM; a coin was tossed for each of 60 candidates.
- gpt2: a GPT-2 with a byte-level BPE that merges digits unevenly; paragraphs.
- texts: a manifest alone, of texts without a separator, which the models never saw; of a format so
  small that every fill is a reference.

Another processor trains other weights: who makes them anew accepts new expected files.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

from corpora import sentences, write_corpus
from tiny import byte_level_bpe, model_of

from lmexposure.audit import RunSettings, insert_corpus, train_corpus
from lmexposure.canaries import Plan, load_format
from lmexposure.integrations import insert
from lmexposure.models import save_model

_DOORS = """\
name = "door"
template = "Door {digits:2}"
description = "Two digits: every fill is a reference"
"""
_LSTM: dict[str, Any] = {"layers": 1, "units": 32, "controls": 3}
_TRAINING = {"epochs": 10, "learning_rate": 0.02, "batch_size": 16, "block_size": 64}


def _learn(work: Path, kept: Path, **values: Any) -> None:
    """Insert, train, and keep the manifest and the model."""
    settings = RunSettings(**values)
    corpus, manifest = insert_corpus(work / "small.txt", out=work / kept.name, settings=settings)
    train_corpus(corpus, out=work / kept.name, settings=settings, manifest=manifest)
    shutil.copytree(work / kept.name / "model", kept / "model")
    shutil.copy(work / kept.name / "manifest.json", kept)


def _make(out: Path) -> None:
    work = out / "work"
    work.mkdir(parents=True)
    corpus = write_corpus(work / "small.txt")
    corpus.write_text(corpus.read_text() + "My PIN is 4711\n")
    (work / "door.toml").write_text(_DOORS)
    _learn(
        work,
        out / "fixed",
        formats=("pin", "random_number", str(work / "door.toml")),
        canaries=2,
        repetitions=(1, 24),
        existing="set_aside",
        seed=3,
        training=_TRAINING,
        **_LSTM,
    )
    write_corpus(work / "small.txt")
    _learn(
        work,
        out / "coins",
        formats=("pin",),
        inclusion_probability=0.5,
        canaries=60,
        inclusion_seed=5,
        repetitions=(12,),
        seed=4,
        training=_TRAINING,
        **_LSTM,
    )
    tokenizer = byte_level_bpe()
    save_model(model_of("gpt2", len(tokenizer)), tokenizer, work / "untrained")
    _learn(
        work,
        out / "gpt2",
        model=str(work / "untrained"),
        formats=("random_number",),
        canaries=2,
        repetitions=(24,),
        controls=3,
        layout="paragraphs",
        seed=5,
        training=_TRAINING | {"epochs": 6, "learning_rate": 0.005},
    )
    door = load_format(str(work / "door.toml"))
    plan = Plan(formats=(door,), canaries=2, repetitions=(1,), controls=3, seed=6)
    _, manifest = insert(sentences(50), plan)
    (out / "texts").mkdir()
    manifest.write(out / "texts" / "manifest.json")
    shutil.rmtree(work)


if __name__ == "__main__":
    _make(Path(sys.argv[1]))
