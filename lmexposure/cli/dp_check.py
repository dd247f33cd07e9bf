"""`lmexposure dp-check`: is a private training what its epsilon is for? Nothing is trained."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure._style import short
from lmexposure.cli import options
from lmexposure.cli.console import begin, say
from lmexposure.cli.options import takes

if TYPE_CHECKING:
    from lmexposure.studies import RunSettings

_WRONG, _NOT_SEEN = 1, 2  # exit codes


@takes(settings=options.told("dp-check"))
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

    Takes the settings of `lmexposure train --method dp-sgd`, and looks at two dozen steps of it:
    gradients of single documents, clipping, noise, coins, accountant, weights. What could not be
    looked at is exit code 2. Of a training of your own with Opacus, call
    lmexposure.dp_check(model, optimizer, loader).
    """
    begin(options.reading(corpus))
    from lmexposure.audit import check_private_training
    from lmexposure.studies import DP_SGD

    training = {**settings.training, "method": DP_SGD}
    claim, found = check_private_training(
        options.opened(corpus), settings=replace(settings, training=training), manifest=manifest
    )
    for line in str(found).splitlines():
        say(line)
    say(f"a right training is called wrong with probability {short(found.level)} at most")
    say(f"\n{claim}")
    if found.failed:
        say("WRONG: this is not the training that its epsilon is for")
        raise typer.Exit(_WRONG)
    if found.not_seen:
        say("not known: some of it could not be looked at")
        raise typer.Exit(_NOT_SEEN)
    say("right, in the steps that were looked at; a pass does not cover what is named above")
