"""`lmexposure identifiers`: an audit after the fact, of what a corpus holds anyway."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import begin, show_study
from lmexposure.cli.long_work import long_work
from lmexposure.cli.options import takes

if TYPE_CHECKING:
    from lmexposure.studies import IdentifierSettings


@takes(settings=options.told("identifiers"))
def identifiers(
    model: Annotated[str, typer.Argument(help="The audited model: a directory or hub name.")],
    corpus: Annotated[list[str], options.files_argument("What it was trained on")],
    formats: Annotated[
        list[str],
        typer.Option(
            "--format",
            help="A shipped format, or a .toml file of yours, that identifiers of the corpus have; "
            "may be repeated. Words in front of its first hole are left out.",
        ),
    ],
    out: Annotated[
        Path,
        options.out_option(
            "For identifiers.json and the report; the same command goes on where it was ended."
        ),
    ],
    settings: "IdentifierSettings",
    base: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A model that never saw the corpus, on the same comparisons: where it too ranks "
            "them low, they are not like fresh draws.",
        ),
    ] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="Documents of the same source that a random split held out of the training; "
            "'membership' is said beside such alone, or of UUIDs of version 4. May be repeated.",
        ),
    ] = None,
) -> None:
    """Compare identifiers that CORPUS holds anyway with fresh draws of their format.

    Nothing is inserted: keys, hashes and numbers that were made at random are found by their
    format, each is ranked among fresh draws in its place, under MODEL and under a base.
    """
    begin(f"loading {model}")
    from lmexposure.audit import natural_identifiers

    with long_work() as progress:
        study = natural_identifiers(
            model,
            corpus,
            formats=formats,
            base=base,
            held_out=held_out or None,
            out=out,
            settings=settings,
            progress=progress,
        )
    show_study(study, out)
