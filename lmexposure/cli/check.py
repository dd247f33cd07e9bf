"""`lmexposure check`: what stops a release. Exit code 0 pass, 1 leak, 2 inconclusive, 3 failure."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import say
from lmexposure.cli.flags import Given, takes
from lmexposure.cli.gate_options import (
    CheckFlags,
    gate_thresholds,
    refuse_mixed,
    refuse_overwriting,
    write_outputs,
    writes_to_standard_output,
)
from lmexposure.cli.help import FILES
from lmexposure.cli.long_work import long_work
from lmexposure.records import (
    MEASURING,
)

if TYPE_CHECKING:
    from lmexposure.gate import Thresholds
    from lmexposure.records import Provenance, Result, RunSettings


@takes(thresholds=options.THRESHOLDS, measuring=options.MEASURED_FIRST)
def check(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN_OR_RESULT", help="A run directory or a result.json."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Measure this model first; needs --manifest.", rich_help_panel=MEASURING),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            help="The manifest.json of the insertion, with --model.", rich_help_panel=MEASURING
        ),
    ] = None,
    out: Annotated[
        Path | None,
        options.out_option(
            "With --model: for the result; without it, nothing of it is kept.", panel=MEASURING
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write JSON here.", rich_help_panel=FILES)
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(help="Write JUnit XML here.", rich_help_panel=FILES)
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option(help="Write SARIF 2.1.0 here.", rich_help_panel=FILES)
    ] = None,
    summary: Annotated[
        Path | None,
        typer.Option(
            help='Append Markdown here, as to "$GITHUB_STEP_SUMMARY".', rich_help_panel=FILES
        ),
    ] = None,
    settings_file: Annotated[
        Path | None,
        typer.Option("--settings", help="A TOML file; thresholds in its table [check]; flags win."),
    ] = None,
    *,
    thresholds: Given,
    measuring: Given,
) -> None:
    """Hold a result, or a model that is measured first, against thresholds.

    Exit code 0: no leak found; 1: a leak; 2: inconclusive; 3: an error. Thresholds and what they
    rest on are explained in the README.
    """
    flags = CheckFlags(**locals())
    from lmexposure.gate import check as judge
    from lmexposure.gate import verdict_text

    limits = gate_thresholds(flags)
    result, provenance, source = _measured_or_read(flags, limits)
    verdict = judge(result, limits)
    aside = writes_to_standard_output(flags)
    for line in verdict_text(verdict, provenance).split("\n"):
        say(line, aside=aside)
    write_outputs(verdict, result, provenance, source, flags)
    raise typer.Exit(verdict.exit_code)


def _measured_or_read(
    flags: CheckFlags, thresholds: "Thresholds"
) -> "tuple[Result, Provenance, Path]":
    """The result, where it comes from, and the file that a reader of the findings is led to."""
    from lmexposure.records import open_run

    refuse_mixed(flags)
    if flags.model is not None and flags.manifest is not None:
        refuse_overwriting(flags, flags.manifest)
        return *_measured(flags.model, flags.manifest, flags, thresholds), flags.manifest
    assert flags.run is not None
    opened = open_run(flags.run)
    assert opened.result_path is not None  # it was read from there
    refuse_overwriting(flags, opened.result_path)
    return opened.result, opened.provenance, opened.result_path


def _measured(
    model: str, manifest: Path, flags: CheckFlags, thresholds: "Thresholds"
) -> "tuple[Result, Provenance]":
    """Measure as `lmexposure measure` does; without --out nothing stays on the disk."""
    import tempfile

    from lmexposure.audit import load_for_measuring
    from lmexposure.audit import measure as measure_model
    from lmexposure.canaries import Manifest
    from lmexposure.records import open_run

    chosen = _settings(flags, thresholds)
    inserted = Manifest.read(manifest)  # a bad one is found before a model is loaded
    with tempfile.TemporaryDirectory() as passing, long_work() as progress:
        out = flags.out or Path(passing)
        measure_model(
            load_for_measuring(model, chosen),
            inserted,
            out=out,
            settings=chosen.measure,
            progress=progress,
        )
        measured = open_run(out)
    return measured.result, measured.provenance


def _settings(flags: CheckFlags, thresholds: "Thresholds") -> "RunSettings":
    """Defaults, then the settings file, then flags; at least as many guesses as are allowed."""
    file = {"settings_file": flags.settings_file}
    chosen = options.measurement({**flags.measuring, **file})
    guesses = max(chosen.measure.guesses, thresholds.guesses)
    return replace(chosen, measure=replace(chosen.measure, guesses=guesses))
