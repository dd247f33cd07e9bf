"""`lmexposure train`: a model on a corpus that `lmexposure insert` wrote."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure._style import number, reading
from lmexposure.cli import options
from lmexposure.cli.console import begin, print_pairs, warn
from lmexposure.cli.long_work import long_work
from lmexposure.cli.options import takes

if TYPE_CHECKING:
    from lmexposure.studies import RunSettings


@takes(settings=options.told("train"))
def train(
    corpus: options.Corpus,
    out: Annotated[Path, options.out_option("For model/ and metrics.jsonl.")],
    manifest: Annotated[
        Path | None,
        typer.Option(
            help="The manifest of the corpus: its canaries are kept whole, and out of validation."
        ),
    ] = None,
    *,
    settings: "RunSettings",
) -> None:
    """Train a model on a corpus; keep the checkpoint with the lowest validation loss."""
    begin(options.reading(corpus))
    from lmexposure.audit import train_corpus

    with long_work() as progress:
        trained = train_corpus(
            options.opened(corpus), out=out, manifest=manifest, settings=settings, progress=progress
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
            *([("promise", str(trained.claim))] if trained.claim is not None else []),
        ]
    )
