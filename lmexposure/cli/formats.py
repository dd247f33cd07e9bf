"""`lmexposure formats`: list those that ship, show one in full, or check a file of your own."""

from pathlib import Path
from typing import Annotated

import typer

from lmexposure._style import bits, number, whole
from lmexposure.cli.console import print_table, say

formats = typer.Typer(
    help="List the canary formats; show one; check a file of your own.",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@formats.callback()
def list_formats(context: typer.Context) -> None:
    """List the formats that ship, with the size of their randomness space."""
    if context.invoked_subcommand is not None:
        return
    from lmexposure.canaries import shipped_formats

    rows = [
        [form.name, form.template, whole(form.size), number(form.bits, 1)]
        for form in shipped_formats().values()
    ]
    print_table(["format", "template", "size", "bits"], rows, right=(2, 3))


@formats.command()
def show(
    name: Annotated[str, typer.Argument(help="A shipped format, or a .toml file.")],
    samples: Annotated[int, typer.Option(min=0, help="Number of fills to print.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the fills.")] = 0,
) -> None:
    """Show a format in full, with a few fills of it."""
    from lmexposure.canaries import load_format

    form = load_format(name)
    say(f"name         {form.name}")
    say(f"template     {form.template}")
    say(f"description  {form.description}")
    say(f"source       {form.source}")
    say(f"size         {form.size}")
    say(f"bits         {number(form.bits)}")
    for index in form.sample(min(samples, form.size), seed=seed):
        say(f"fill         {form.text(index)}")


@formats.command()
def check(file: Annotated[Path, typer.Argument(help="A format file, .toml.")]) -> None:
    """Check a format file: what is wrong with it, and what would make it measure better."""
    from lmexposure.canaries import check_format_file
    from lmexposure.errors import FormatError

    found = check_format_file(file)
    for problem in found.problems:
        say(f"problem  {problem}")
    for advice in found.advice:
        say(f"advice   {advice}")
    if found.format is None:
        raise FormatError(f"{file} cannot be used as a format; mend what is named above")
    say(
        f"sound    {found.format.name}: {whole(found.format.size)} fills, {bits(found.format.bits)}"
    )
