"""`lmexposure formats`: list those that ship, show one in full, or check a file of your own."""

from pathlib import Path

import typer

from lmexposure._style import bits, number, whole
from lmexposure.cli.console import print_pairs, print_table, say
from lmexposure.errors import FormatError


def formats(context: typer.Context) -> None:
    """List the formats that ship, with the size of their randomness space."""
    if context.invoked_subcommand is not None:
        return
    from lmexposure.canaries import shipped_formats

    rows = [
        [form.name, form.template, whole(form.size), number(form.bits, 1)]
        for form in shipped_formats().values()
    ]
    print_table(["format", "template", "size", "bits"], rows, right=(2, 3))


def show(name: str, samples: int, seed: int) -> None:
    """Show a format in full, with a few fills of it."""
    from lmexposure.canaries import load_format

    form = load_format(name)
    fills = form.sample(min(samples, form.size), seed=seed)
    print_pairs(
        [
            ("name", form.name),
            ("template", form.template),
            ("description", form.description),
            ("source", form.source),
            ("size", str(form.size)),
            ("bits", number(form.bits)),
            *(("fill", form.text(index)) for index in fills),
        ]
    )


def check(file: Path) -> None:
    """Check a format file: what is wrong with it, and what would make it measure better."""
    from lmexposure.canaries import check_format_file

    found = check_format_file(file)
    for problem in found.problems:
        say(f"problem  {problem}")
    for advice in found.advice:
        say(f"advice   {advice}")
    form = found.format
    if form is None:
        raise FormatError(f"{file} cannot be used as a format; mend what is named above")
    say(f"sound    {form.name}: {whole(form.size)} fills, {bits(form.bits)}")
