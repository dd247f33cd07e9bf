"""`lmexposure check`: what stops a release. Exit code 0 pass, 1 leak, 2 inconclusive, 3 failure."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure._settings import build, refuse_unknown, settings_of
from lmexposure.cli import options
from lmexposure.cli.console import begin, say
from lmexposure.cli.long_work import long_work
from lmexposure.cli.options import FILES, Given, parsed, takes
from lmexposure.core import own_records
from lmexposure.errors import SettingsError
from lmexposure.studies import MEASURING, RunSettings

if TYPE_CHECKING:
    from lmexposure.core import Study, Thresholds, Verdict


@dataclass(frozen=True, kw_only=True)
class CheckFlags:
    """What the command was given; None: not given. See `check` for each."""

    run: Path | None
    model: str | None
    manifest: Path | None
    out: Path | None
    json_file: Path | None
    junit: Path | None
    sarif: Path | None
    summary: Path | None
    settings_file: Path | None
    thresholds: Given
    measuring: Given

    @property
    def outputs(self) -> dict[str, Path]:
        """The files that were asked for, by the flag's name."""
        every = {
            "json": self.json_file,
            "junit": self.junit,
            "sarif": self.sarif,
            "summary": self.summary,
        }
        return {name: path for name, path in every.items() if path is not None}


def gate_thresholds(flags: CheckFlags) -> "Thresholds":
    """Defaults, then the settings file's table [check], then the flags that were given."""
    from lmexposure.core import Thresholds

    given = {} if flags.settings_file is None else _thresholds_in(flags.settings_file)
    return build(Thresholds, {**given, **parsed(settings_of(Thresholds), flags.thresholds)})


def _thresholds_in(path: Path) -> dict[str, object]:
    """The table [check] of a settings file, each value checked by itself."""
    from lmexposure._files import read_toml
    from lmexposure.core import Thresholds, quantile_pair

    whole = read_toml(path)
    given = whole.pop("check", {})
    if not isinstance(given, dict):
        raise SettingsError(f"[check] in {path} must be a table of thresholds by name")
    known = settings_of(Thresholds)
    every = {name for group in options.TAKEN.values() for name in group.settings}
    without_table = {"the settings without a table": every}
    try:
        refuse_unknown(whole, every, elsewhere={"the table [check]": known})
    except SettingsError as failure:
        raise SettingsError(f"{path}: {failure}") from None
    try:
        refuse_unknown(given, known, what="threshold", elsewhere=without_table)
        if "quantile_exposure" in given:
            given["quantile_exposure"] = quantile_pair(
                "quantile_exposure", given["quantile_exposure"]
            )
        for name, value in given.items():
            known[name].check(value)
    except SettingsError as failure:
        raise SettingsError(f"{path}: [check] {failure}") from None
    return given


def refuse_mixed(flags: CheckFlags) -> None:
    """Either a result, or a model with its manifest."""
    measure = flags.model is not None and flags.manifest is not None
    parts = flags.model is not None or flags.manifest is not None
    if (flags.run is None) != measure or (parts and not measure):
        raise SettingsError(
            "give either RUN_OR_RESULT, or both --model and --manifest to measure first"
        )
    vain = [*(["out"] if flags.out is not None else []), *flags.measuring]
    if vain and not measure:
        raise SettingsError(
            f"--{vain[0].replace('_', '-')} decides how a model is measured, and "
            f"{flags.run} is measured already; give --model and --manifest, or leave it out"
        )


def refuse_overwriting(flags: CheckFlags, source: Path) -> None:
    """No output may replace what was judged, a file of a run, the settings, or another output."""
    from lmexposure._files import is_record, refuse_unlike

    taken = {source.resolve(): "what is judged"}
    if flags.settings_file is not None:
        taken[flags.settings_file.resolve()] = "the settings file"
    homes = [source.parent, *([] if flags.out is None else [flags.out])]
    model = None if flags.model is None else Path(flags.model).resolve()
    for name, given in flags.outputs.items():
        path = Path(os.path.realpath(given))  # resolve() fails where links go in a circle
        if path.is_dir():
            raise SettingsError(f"{given} is a directory; give another file")
        if path in taken:
            raise SettingsError(f"{given} is {taken[path]} already; give another file")
        if any(options.of_a_run(path, home) for home in homes) or (
            model and path.is_relative_to(model)
        ):
            raise SettingsError(
                f"{given} is a file of the run, or has the name of one; give another file"
            )
        taken[path] = f"--{name}"
        if name != "summary":
            refuse_unlike(given, partial(_is_output, name))
        elif path.is_file() and is_record(path):
            raise SettingsError(f"{given} is a record of lmexposure; give another file")


def _is_output(name: str, content: bytes) -> bool:
    """Whether a file is the output of an earlier check and nothing else: a job writes it again."""
    from xml.etree import ElementTree

    try:
        if name == "junit":
            suites = ElementTree.fromstring(content)
            return [suites.tag, *((s.tag, s.get("name")) for s in suites)] == [
                "testsuites",
                ("testsuite", "lmexposure check"),
            ]
        values = json.loads(content)
        if name == "json":
            return bool(values["schema"].startswith("lmexposure.verdict/"))
        (run,) = values["runs"]
        alone = values.keys() == {"$schema", "version", "runs"}
        return alone and bool(run["tool"]["driver"]["name"] == "lmexposure")
    except (SyntaxError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False


def write_outputs(
    verdict: "Verdict",
    measured: "Study",
    source: Path,
    flags: CheckFlags,
) -> None:
    """Every file that was asked for, from the one verdict."""
    from lmexposure._files import STDOUT, append, atomic_write
    from lmexposure.core import verdict_json, verdict_junit, verdict_sarif, verdict_summary

    provenance, hashes = measured.provenance, measured.hashes
    writers = {
        "json": lambda: verdict_json(verdict, hashes, provenance),
        "junit": lambda: verdict_junit(verdict, provenance),
        "sarif": lambda: verdict_sarif(verdict, source, provenance),
        "summary": lambda: verdict_summary(verdict, provenance),
    }
    for name, path in flags.outputs.items():
        content = writers[name]().encode()
        if name == "summary" and path != STDOUT:
            append(path, content)  # steps of a job share one summary: what is there stays
            continue
        with atomic_write(path, replaces=partial(_is_output, name)) as stream:
            stream.write(content)


@takes(thresholds=options.THRESHOLDS, measuring=options.MEASURED_FIRST)
def check(  # noqa: PLR0913 - a command: its parameters are its flags
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN_OR_RESULT",
            help="The directory of a run or of another study, or the record in it: result.json, "
            f"{', '.join(own_records())}.",
        ),
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
            "With --model: for the result; by default it is not kept.", panel=MEASURING
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
    """Compare a result, a sweep, or a model that is measured first, with thresholds.

    Exit code 0: no leak found; 1: a leak; 2: inconclusive; 3: an error. The documentation explains
    the thresholds and what they rest on.
    """
    flags = CheckFlags(**locals())
    from lmexposure._files import STDOUT
    from lmexposure.core import verdict_text
    from lmexposure.doors import check as judge

    limits = gate_thresholds(flags)
    measured, source = _measured_or_read(flags, limits)
    verdict, provenance = judge(measured, limits), measured.provenance
    aside = STDOUT in flags.outputs.values()  # no verdict in what the next program reads
    with suppress(SystemExit):  # a reader that has enough: the exit code says the verdict
        for line in verdict_text(verdict, provenance).split("\n"):
            say(line, aside=aside)
    write_outputs(verdict, measured, source, flags)
    raise typer.Exit(verdict.exit_code)


def _measured_or_read(flags: CheckFlags, thresholds: "Thresholds") -> "tuple[Study, Path]":
    """What is judged, and the file that the findings refer to."""
    from lmexposure.doors import study_of

    refuse_mixed(flags)
    if flags.model is not None and flags.manifest is not None:
        refuse_overwriting(flags, flags.manifest)
        return _measured(flags.model, flags.manifest, flags, thresholds), flags.manifest
    assert flags.run is not None
    study = study_of(flags.run)
    source = flags.run / study.NAME if flags.run.is_dir() else flags.run
    refuse_overwriting(flags, source)
    return study, source


def _measured(model: str, manifest: Path, flags: CheckFlags, thresholds: "Thresholds") -> "Study":
    """Measure as `lmexposure measure` does; without --out nothing is left on the disk."""
    import tempfile

    from lmexposure.canaries import Manifest
    from lmexposure.studies import Result

    chosen = _settings(flags, thresholds)
    inserted = Manifest.read(manifest)  # a bad one is found before a model is loaded
    begin(f"loading {model}")
    from lmexposure.audit import measure as measure_model
    from lmexposure.audit import recorded_training, rows_beside, told_wrapping
    from lmexposure.scoring import load_for_measuring

    rows = rows_beside(manifest)
    kept = flags.out is not None
    with tempfile.TemporaryDirectory() as passing, long_work(kept=kept) as progress:
        out = flags.out or Path(passing)
        measure_model(
            load_for_measuring(model, chosen),
            inserted,
            out=out,
            settings=chosen.measure,
            validation=recorded_training(model, inserted),
            rows=rows,
            wrapping=told_wrapping(inserted, chosen),
            progress=progress,
        )
        return Result.read(out)


def _settings(flags: CheckFlags, thresholds: "Thresholds") -> RunSettings:
    """Defaults, then the settings file, then flags; at least as many guesses as are allowed."""
    file = {} if flags.settings_file is None else {"settings_file": flags.settings_file}
    chosen = options.asked(RunSettings(), {**flags.measuring, **file})
    guesses = max(chosen.measure.guesses, thresholds.guesses)
    return replace(chosen, measure=replace(chosen.measure, guesses=guesses))
