"""`lmexposure compare`: several runs side by side."""

from pathlib import Path
from typing import Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import say


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Two or more runs; the first is what the others are held against."),
    ],
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format", help="html, md, csv or json; may be repeated.  [default: html, md]"
        ),
    ] = None,
    out: Annotated[Path, options.out_option("For the files.")] = Path("compare"),
) -> None:
    """Compare RUNS: base against fine-tune, undefended against defended."""
    from lmexposure._text import visible
    from lmexposure.records import open_run
    from lmexposure.reporting import compare_data, write_compare

    compared = compare_data([open_run(run) for run in runs])
    written = write_compare(compared, out=out, formats=formats or ("html", "md"))
    for finding in compared.findings:
        say(visible(finding.sentence))
    for run in compared.runs:
        say(f"{visible(run.name)}: {run.verdict.sentence}")
        say(f"  {run.provenance.line}")
    for path in written:
        say(f"compare  {path}")
