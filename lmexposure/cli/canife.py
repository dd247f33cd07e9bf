"""`lmexposure canife`: does a federated training keep its promise? With crafted canaries."""

from pathlib import Path
from typing import Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import begin, show_study
from lmexposure.cli.long_work import long_work
from lmexposure.cli.options import Given, takes
from lmexposure.errors import SettingsError


@takes(given=options.ROUNDS)
def canife(  # noqa: PLR0913 - a command: its parameters are its flags
    corpus: Annotated[
        list[str],
        typer.Argument(
            help="What users wrote: JSONL or Parquet with a field that says whose a record is, or "
            "text; .gz and .zst too; several, or a pattern in quotes.",
        ),
    ],
    out: Annotated[Path, options.out_option("For canife.json, the report and model/.")],
    user_field: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The field of a record that says whose it is; without it the corpus is cut into "
            "--clients parts.",
        ),
    ] = None,
    clients: Annotated[
        int, typer.Option(help="Parts that a corpus without users is cut into.")
    ] = 100,
    text_field: Annotated[
        str, typer.Option(help="The field of a record that holds the text.")
    ] = "text",
    layers: Annotated[int, typer.Option(help="Layers of the LSTM.", min=1)] = 2,
    units: Annotated[int, typer.Option(help="Units of each layer.", min=1)] = 32,
    *,
    given: Given,
) -> None:
    """Train an LSTM on users of CORPUS in a federated way, and attack its rounds.

    Clients' updates are clipped as a whole and summed with noise, which promises an epsilon to
    each user. A crafted canary is put into mock rounds by coins; what it shows is a lower bound,
    beside the promise, of each attacked round and of the training.
    """
    if options.STDIN in corpus:
        raise SettingsError(
            "the corpus is read from files; write standard input to a file and name that"
        )
    settings, attacks = options.federated(given)
    begin(options.reading(corpus))
    from lmexposure.federated import canife_audit
    from lmexposure.models import LstmSizes

    with long_work() as progress:
        study = canife_audit(
            corpus,
            out=out,
            user_field=user_field,
            parts=clients,
            text_field=text_field,
            settings=settings,
            attacks=attacks,
            lstm=LstmSizes(units=units, embedding=units, layers=layers),
            progress=progress,
        )
    show_study(study, out)
