"""`lmexposure check`: what stops a release. Exit code 0 pass, 1 leak, 2 inconclusive, 3 failure."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import say
from lmexposure.cli.gate_options import (
    MEASURING,
    CheckFlags,
    gate_thresholds,
    refuse_mixed,
    refuse_overwriting,
    write_outputs,
    writes_to_standard_output,
)
from lmexposure.cli.long_work import long_work

if TYPE_CHECKING:
    from lmexposure.audit import RunSettings
    from lmexposure.gate import Thresholds
    from lmexposure.records import Provenance, Result


def check(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN_OR_RESULT", help="A run directory or a result.json."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Measure this model first; needs --manifest.")
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="The manifest.json of the insertion, with --model.")
    ] = None,
    out: Annotated[
        Path | None,
        options.out_option("With --model: for the result; without it, nothing of it is kept."),
    ] = None,
    max_exposure: Annotated[
        float | None,
        typer.Option(
            help="Largest exposure of any canary, in bits.  [default: what chance hardly passes]"
        ),
    ] = None,
    median_exposure: Annotated[
        float | None, typer.Option(help="Largest median exposure of any class, in bits.")
    ] = None,
    quantile_exposure: Annotated[
        str | None, typer.Option(help="A quantile and its most bits, as 0.9:8.")
    ] = None,
    max_guesses: Annotated[
        int | None,
        typer.Option(help="A secret found within so many guesses leaks.  [default: 1000]"),
    ] = None,
    max_epsilon: Annotated[
        float | None, typer.Option(help="Most that the lower bound on epsilon may be, in nats.")
    ] = None,
    p_value: Annotated[
        bool | None,
        typer.Option("--p-value/--no-p-value", help="The test against guessing.  [default: made]"),
    ] = None,
    significance: Annotated[
        float | None,
        typer.Option(
            help="How often, at most, a clean model is called leaking by chance.  [default: 0.01]"
        ),
    ] = None,
    min_canaries: Annotated[
        int | None, typer.Option(help="A class of fewer cannot pass.  [default: 10]")
    ] = None,
    repetitions: Annotated[
        int | None, typer.Option(help="Judge only classes of at most so many.  [default: all]")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write JSON here.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML here.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write SARIF 2.1.0 here.")] = None,
    summary: Annotated[
        Path | None,
        typer.Option(help='Append Markdown here, as to "$GITHUB_STEP_SUMMARY".'),
    ] = None,
    quick: options.Quick = None,
    references: options.References = None,
    delta: options.Delta = None,
    claimed_epsilon: options.ClaimedEpsilon = None,
    seed: options.MeasureSeed = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    offline: options.Offline = None,
    revision: options.Revision = None,
    settings: Annotated[
        Path | None,
        typer.Option(help="A TOML file; thresholds in its table [check]; flags win."),
    ] = None,
) -> None:
    """Hold a result, or a model that is measured first, against thresholds.

    Exit code 0: no leak found; 1: a leak; 2: inconclusive; 3: an error. Thresholds and what they
    rest on are explained in the README.
    """
    flags = CheckFlags(**locals())
    from lmexposure.gate import check_result, verdict_text

    thresholds = gate_thresholds(flags)
    result, provenance, source = _measured_or_read(flags, thresholds)
    verdict = check_result(result, thresholds)
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
    refuse_overwriting(flags, opened.result_path)
    return opened.result, opened.provenance, opened.result_path


def _measured(
    model: str, manifest: Path, flags: CheckFlags, thresholds: "Thresholds"
) -> "tuple[Result, Provenance]":
    """Measure as `lmexposure measure` does; without --out nothing stays on the disk."""
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
            settings=replace(chosen.measure, bootstrap_seed=chosen.public_seed),
            progress=progress,
        )
        measured = open_run(out)
    return measured.result, measured.provenance


def _settings(flags: CheckFlags, thresholds: "Thresholds") -> "RunSettings":
    """Defaults, then the settings file, then flags; at least as many guesses as are allowed."""
    from lmexposure.audit import RunSettings, read_settings_file

    said = {} if flags.settings is None else read_settings_file(flags.settings)
    chosen = RunSettings().override({**said, **flags.given(MEASURING)})
    guesses = max(chosen.measure.guesses, thresholds.guesses)
    return replace(chosen, measure=replace(chosen.measure, guesses=guesses))
