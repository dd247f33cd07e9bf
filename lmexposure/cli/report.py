"""`lmexposure report`: a run as a page that people read, and as files for other tools."""

from pathlib import Path
from typing import Annotated

import typer

from lmexposure.cli.console import say, warn

__all__ = ["report"]


def report(
    run: Annotated[
        Path, typer.Argument(help="A run directory, what measure wrote, or a result.json.")
    ],
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format", help="html, md, csv or json; may be repeated.  [default: html, md]"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the files.  [default: that of the result]")
    ] = None,
    show_secrets: Annotated[
        bool, typer.Option("--show-secrets", help="Show the secrets; needs the manifest.")
    ] = False,
    manifest: Annotated[
        Path | None, typer.Option(help="The manifest.json, where it is not beside the result.")
    ] = None,
    charts: Annotated[
        bool, typer.Option("--charts", help="Each chart as SVG and PNG besides, in charts/.")
    ] = False,
    model_card: Annotated[
        Path | None,
        typer.Option(help="A model directory whose README.md gets the results as metadata."),
    ] = None,
) -> None:
    """Write the report of RUN: report.html and report.md."""
    from lmexposure.canaries.manifest import Manifest
    from lmexposure.gate import check_result
    from lmexposure.report import write_report
    from lmexposure.run_files import open_run

    opened = open_run(run)
    written = write_report(
        opened,
        out=out,
        formats=formats or ("html", "md"),
        charts=charts,
        show_secrets=show_secrets,
        manifest=None if manifest is None else Manifest.read(manifest),
        model_card=model_card,
    )
    say(check_result(opened.result).sentence)
    for path in written:
        say(f"report  {path}")
    if show_secrets:
        warn("these files show the secrets of the canaries: keep them to yourself")
