"""`lmexposure identifiers`: an audit after the fact, of what a corpus holds anyway."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.canaries import layouts_listed
from lmexposure.cli import options
from lmexposure.cli.console import begin, show_study
from lmexposure.cli.long_work import long_work
from lmexposure.cli.options import takes

if TYPE_CHECKING:
    from lmexposure.studies import RunSettings


@takes(machine=options.LOADING)
def identifiers(  # noqa: PLR0913 - a command: its parameters are its flags
    model: Annotated[str, typer.Argument(help="The audited model: a directory or hub name.")],
    corpus: Annotated[
        list[str],
        typer.Argument(
            help="What it was trained on: text, JSONL or Parquet; .gz and .zst too; several files, "
            "or a pattern in quotes, 'DIRECTORY/*' for a directory's files."
        ),
    ],
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
    machine: "RunSettings",
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
    draws: Annotated[
        int, typer.Option(help="Fresh draws in the place of each identifier, at least 99.")
    ] = 999,
    most: Annotated[
        int, typer.Option(help="Identifiers to compare, chosen at random among all.")
    ] = 1000,
    left: Annotated[
        int, typer.Option(help="Characters in front of each that a model reads, at most.")
    ] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the choice and of the draws.")] = 0,
    layout: Annotated[
        str | None, typer.Option(help=f"{layouts_listed()}.  [default: by the file's suffix]")
    ] = None,
    text_field: Annotated[
        str, typer.Option(help="The field of a record that holds the text.")
    ] = "text",
) -> None:
    """Compare identifiers that CORPUS holds anyway with fresh draws of their format.

    Nothing is inserted: keys, hashes and numbers that were made at random are found by their
    format, each is ranked among fresh draws in its place, under MODEL and under a base.
    """
    begin(f"loading {model}")
    from lmexposure.audit import IdentifierSettings, natural_identifiers

    settings = IdentifierSettings(
        draws=draws, most=most, left=left, seed=seed, layout=layout, text_field=text_field
    )
    with long_work() as progress:
        study = natural_identifiers(
            model,
            corpus,
            formats=formats,
            base=base,
            held_out=held_out or None,
            out=out,
            settings=settings,
            machine=machine,
            progress=progress,
        )
    show_study(study, out)
