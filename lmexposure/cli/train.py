"""`lmexposure train`: a model on a corpus that `lmexposure insert` wrote."""

from pathlib import Path
from typing import Annotated

import typer

from lmexposure._style import number, reading
from lmexposure.cli import options
from lmexposure.cli.console import print_pairs, warn
from lmexposure.cli.long_work import long_work


def train(
    corpus: options.Corpus,
    out: Annotated[Path, options.out_option("For model/ and metrics.jsonl.")],
    manifest: Annotated[
        Path | None,
        typer.Option(help="Its manifest: canaries are kept whole, and out of validation."),
    ] = None,
    model: options.Model = None,
    seed: options.Seed = None,
    layout: options.Layout = None,
    text_field: options.TextField = None,
    epochs: options.Epochs = None,
    patience: options.Patience = None,
    training_batch: options.TrainingBatch = None,
    block_size: options.BlockSize = None,
    learning_rate: options.LearningRate = None,
    accumulation: options.Accumulation = None,
    precision: options.Precision = None,
    layers: options.Layers = None,
    units: options.Units = None,
    device: options.Device = None,
    threads: options.Threads = None,
    offline: options.Offline = None,
    revision: options.Revision = None,
    max_seconds: options.MaxSeconds = None,
    settings: options.SettingsFile = None,
) -> None:
    """Train a model on a corpus; keep the checkpoint with the lowest validation loss."""
    chosen = options.merged(locals(), apart=("corpus", "out", "manifest"))
    from lmexposure.audit import train_corpus

    with long_work() as progress:
        trained = train_corpus(
            corpus, out=out, manifest=manifest, settings=chosen, progress=progress
        )
    if not trained.improved:
        warn("the model did not learn: its validation loss is no lower than before training")
    print_pairs(
        [
            ("model", str(trained.model_path)),
            (
                "best epoch",
                f"{number(trained.best_epoch)} of {number(trained.epochs)} ({trained.stopped})",
            ),
            ("validation loss", reading(trained.validation_bits, "bits per token")),
            ("processes", str(trained.processes)),
        ]
    )
