"""`lmexposure dp-check`: is a private training what its epsilon is for? Nothing is trained."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure._style import short
from lmexposure.cli import options
from lmexposure.cli.console import say
from lmexposure.cli.options import takes

if TYPE_CHECKING:
    from lmexposure.records import RunSettings

_WRONG = 1  # the exit code


@takes(settings=options.LEARNING)
def dp_check(
    corpus: options.Corpus,
    manifest: Annotated[
        Path | None,
        typer.Option(help="The manifest of the corpus, where canaries are in it."),
    ] = None,
    *,
    settings: "RunSettings",
) -> None:
    """Check the private training of a model on a corpus; exit code 1 where it is wrong.

    Takes the settings of `lmexposure train --method dp-sgd`, and looks at a few steps of it:
    gradients of single documents, clipping, noise, coins, accountant, weights. Of a training of
    your own with Opacus, call lmexposure.dp_check(model, optimizer, loader).
    """
    from lmexposure.audit import check_private_training
    from lmexposure.records import DP_SGD

    training = {**settings.training, "method": DP_SGD}
    claim, found = check_private_training(
        options.opened(corpus), settings=replace(settings, training=training), manifest=manifest
    )
    for line in str(found).splitlines():
        say(line)
    say(f"a right training is called wrong with probability {short(found.level)}")
    say(f"\n{claim}")
    if not found.passed:
        say("WRONG: this is not the training that its epsilon is for")
        raise typer.Exit(_WRONG)
    say("right: the training is what its epsilon is for")
