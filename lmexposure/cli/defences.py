"""`lmexposure defences`: defences side by side at one utility, each under attacks that fit it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import begin, say, show_study
from lmexposure.cli.long_work import long_work
from lmexposure.cli.options import takes
from lmexposure.errors import SettingsError
from lmexposure.studies import MACHINE

if TYPE_CHECKING:
    from lmexposure.studies import DefencesSettings


@takes(settings=options.told("defences"))
def defences(
    corpus: Annotated[
        list[str],
        typer.Argument(
            help="The corpus: text, JSONL or Parquet; .gz and .zst too; several files, or a "
            "pattern in quotes, 'DIRECTORY/*' for a directory's files.",
        ),
    ],
    out: Annotated[
        Path,
        options.out_option("The comparison; the same command goes on where it was ended."),
    ],
    workers: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=MACHINE,
            help="Models side by side, by Ray; 1 does without it.  [default: as many as there are "
            "cores, or GPUs; 1 where Ray is not installed]",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            rich_help_panel=MACHINE,
            help="A Ray cluster, whose machines share OUT; auto finds the one that runs here.  "
            "[default: this machine]",
        ),
    ] = None,
    *,
    settings: "DefencesSettings",
) -> None:
    """Compare defences on CORPUS: as useful as each other, what does each still show?

    The settings of each method are searched first, on other canaries and seeds; then many models
    of each are trained with the same canaries, and attacked in every way that fits. What each
    costs is said before time is spent.
    """
    if options.STDIN in corpus:
        raise SettingsError(
            "a comparison reads its corpus again for every model, and standard input only once; "
            "write it to a file and name that"
        )
    begin(options.reading(corpus))
    from lmexposure.defences import compare_defences

    with long_work() as progress:
        study = compare_defences(
            corpus,
            out=out,
            settings=settings,
            workers=workers,
            address=address,
            progress=progress,
            say=say,
        )
    show_study(study, out)
