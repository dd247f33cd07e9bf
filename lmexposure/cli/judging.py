"""The commands that judge and show what was measured: check, report, compare, epsilon and others.

The exit code of `check` is 0 pass, 1 leak, 2 inconclusive, 3 failure.
"""

import errno
import gc
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lmexposure._files import PRIVATE, atomic_write, is_taken
from lmexposure._settings import build, refuse_unknown, settings_of
from lmexposure._style import bits, count, number, setting_value, whole
from lmexposure.cli.console import (
    PRIVATE_FILES,
    begin,
    long_work,
    print_document,
    print_pairs,
    print_section,
    print_table,
    said,
    say,
    say_verdict,
    warn,
)
from lmexposure.cli.options import EVERY, TAKEN, Given, asked, of_a_run, parsed
from lmexposure.errors import FileError, FormatError, InputError, ModelError, SettingsError

if TYPE_CHECKING:
    from lmexposure.core import Study, Thresholds, Verdict
    from lmexposure.studies import Result


def check(  # noqa: PLR0913 - a command
    run: Path | None,
    model: str | None,
    manifest: Path | None,
    out: Path | None,
    settings_file: Path | None,
    thresholds: Given,
    measuring: Given,
    full: bool,
    **files: Path | None,
) -> None:
    """Compare a result, a sweep, or a model that is measured first, with thresholds.

    Exit code 0: no leak found; 1: a leak; 2: inconclusive; 3: an error. The documentation explains
    the thresholds and what they rest on.
    """
    from lmexposure._files import STDOUT
    from lmexposure.core import Thresholds, verdict_text
    from lmexposure.doors import check as judge
    from lmexposure.doors import study_of

    file = {} if settings_file is None else _thresholds_in(settings_file)
    limits = build(Thresholds, {**file, **parsed(settings_of(Thresholds), thresholds)})
    outputs = {name: path for name, path in files.items() if path is not None}
    _refuse_mixed(run, model, manifest, ["out"] * (out is not None) + list(measuring))
    refuse = partial(_refuse_overwriting, outputs, settings_file, model)
    if model is not None and manifest is not None:
        refuse(manifest, out)
        more = {} if settings_file is None else {"settings_file": settings_file}
        source, study = manifest, _measured(model, manifest, out, limits, {**measuring, **more})
    else:
        assert run is not None
        study = study_of(run)
        source = run / study.NAME if run.is_dir() else run
        refuse(source, None)
    verdict = judge(study, limits)
    aside = STDOUT in outputs.values()  # no verdict in what the next program reads
    with suppress(SystemExit):  # a reader that has enough: the exit code says the verdict
        notes = [*map(said, study.notes)]
        text = verdict_text(verdict, study.provenance, notes=notes, full=full)
        for line in text.split("\n"):
            say(line, aside=aside)
        if not (full or verdict.passed):
            say("\n--full prints each check of each class with its reason", aside=aside)
    try:
        _write_outputs(outputs, verdict, study, source)
    except FileError as failure:
        if failure.errno != errno.EPIPE:
            raise
    raise typer.Exit(verdict.exit_code)


def _thresholds_in(path: Path) -> dict[str, object]:
    """The table [check] of a settings file, each value checked by itself."""
    from lmexposure._files import read_toml
    from lmexposure.core import Thresholds, quantile_pair

    tables, where, known = read_toml(path), f"{path}:", settings_of(Thresholds)
    given = tables.pop("check", {})
    if not isinstance(given, dict):
        raise SettingsError(f"[check] in {path} must be a table of thresholds by name")
    every = {name for group in TAKEN.values() for name in group.settings}
    without_table = {"the settings without a table": every}
    try:
        refuse_unknown(tables, every, elsewhere={"the table [check]": known})
        where = f"{path}: [check]"
        refuse_unknown(given, known, what="threshold", elsewhere=without_table)
        name = "quantile_exposure"
        if name in given:
            given[name] = quantile_pair(name, given[name])
        for name, value in given.items():
            known[name].check(value)
    except SettingsError as failure:
        raise SettingsError(f"{where} {failure}") from None
    return given


def _refuse_mixed(
    run: Path | None, model: str | None, manifest: Path | None, vain: list[str]
) -> None:
    """Either a result, or a model with its manifest, and what decides how that is measured."""
    if [model is None, manifest is None] != [run is not None] * 2:
        raise SettingsError(
            "give either RUN_OR_RESULT, or both --model and --manifest to measure first"
        )
    if vain and run is not None:
        raise SettingsError(
            f"--{vain[0].replace('_', '-')} decides how a model is measured, and {run} is measured "
            "already; give --model and --manifest, or leave it out"
        )


def _refuse_overwriting(
    outputs: Mapping[str, Path],
    settings_file: Path | None,
    model: str | None,
    source: Path,
    out: Path | None,
) -> None:
    """No output may replace what was judged, a file of a run, the settings, or another output."""
    from lmexposure._files import is_record, refuse_unlike

    taken = {source.resolve(): "what is judged"}
    if settings_file is not None:
        taken[settings_file.resolve()] = "the settings file"
    homes = [source.parent, *([] if out is None else [out])]
    of_model = None if model is None else Path(model).resolve()
    for name, given in outputs.items():
        path = Path(os.path.realpath(given))  # resolve() fails where links go in a circle
        if path.is_dir():
            raise SettingsError(f"{given} is a directory; give another file")
        if path in taken:
            raise SettingsError(f"{given} is {taken[path]} already; give another file")
        if any(of_a_run(path, home) for home in homes) or (
            of_model and path.is_relative_to(of_model)
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
            found = [suites.tag, *((suite.tag, suite.get("name")) for suite in suites)]
            return found == ["testsuites", ("testsuite", "lmexposure check")]
        values = json.loads(content)
        if name == "json":
            return bool(values["schema"].startswith("lmexposure.verdict/"))
        (run,) = values["runs"]
        alone = values.keys() == {"$schema", "version", "runs"}
        return alone and bool(run["tool"]["driver"]["name"] == "lmexposure")
    except (SyntaxError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False


def _measured(
    model: str, manifest: Path, out: Path | None, thresholds: "Thresholds", given: Given
) -> "Study":
    """As `lmexposure measure` does, with at least as many guesses as are allowed."""
    from lmexposure.canaries import Manifest
    from lmexposure.studies import Result, RunSettings

    chosen = asked(RunSettings(), given)
    guesses = max(chosen.measure.guesses, thresholds.guesses)
    chosen = replace(chosen, measure=replace(chosen.measure, guesses=guesses))
    Manifest.read(manifest)  # a bad one is found before a model is loaded
    begin(f"loading {model}")
    from lmexposure.calls import measured

    with tempfile.TemporaryDirectory() as passing, long_work(kept=out is not None) as progress:
        place = Path(passing) if out is None else out  # without --out nothing is left on the disk
        measured(model, manifest, out=place, settings=chosen, progress=progress)
        return Result.read(place)


def _write_outputs(
    outputs: Mapping[str, Path], verdict: "Verdict", study: "Study", source: Path
) -> None:
    """Every file that was asked for, from the one verdict."""
    from lmexposure._files import STDOUT, append
    from lmexposure.core import verdict_json, verdict_junit, verdict_sarif, verdict_summary

    provenance = study.provenance
    writers = {
        "json": lambda: verdict_json(verdict, study.hashes, provenance),
        "junit": lambda: verdict_junit(verdict, provenance),
        "sarif": lambda: verdict_sarif(verdict, source, provenance),
        "summary": lambda: verdict_summary(verdict, provenance),
    }
    # Standard output last: its reader may have had enough, and the others are written all the same.
    for name, path in sorted(outputs.items(), key=lambda output: output[1] == STDOUT):
        content = writers[name]().encode()
        if name == "summary" and path != STDOUT:
            append(path, content)  # steps of a job share one summary: what is there stays
            continue
        with atomic_write(path, replaces=partial(_is_output, name)) as stream:
            stream.write(content)


def compare(runs: list[Path], formats: list[str] | None, out: Path) -> None:
    """Compare RUNS: a base model with its fine-tune, an undefended training with a defended one."""
    from lmexposure.core import write_document
    from lmexposure.doors import compared

    document = compared(runs)
    written = write_document(document, out, stem="compare", formats=formats or ("html", "md"))
    print_document(document)
    for path in written:
        say(f"compare  {path}")


def report(  # noqa: PLR0913 - a command
    run: Path,
    formats: list[str] | None,
    out: Path | None,
    show_secrets: bool,
    manifest: Path | None,
    charts: bool,
    model_card: Path | None,
    force: bool,
) -> None:
    """Write the report of RUN: report.html and report.md."""
    from lmexposure.doors import report_study, study_of, with_manifest
    from lmexposure.studies import Result

    if force and model_card is None:
        raise SettingsError("--force goes with --model-card; give both, or leave it out")
    study = study_of(run)
    for flag, path in {"--manifest": manifest, "--model-card": model_card}.items():
        if path is not None and not isinstance(study, Result):
            raise SettingsError(f"{flag} is of a run, and {run} is {study.WHAT}; leave it out")
    study = study if manifest is None else with_manifest(study, manifest)
    gc.freeze()  # all of it is kept to the end: the collector need not search it
    card = None if model_card is None else model_card / "README.md"
    content = b""
    if card is not None and isinstance(study, Result):
        content = _card(card, study, force=force)  # all is made before anything is written
    written = report_study(
        study,
        out or (run if run.is_dir() else run.parent),
        formats=formats or ("html", "md"),
        charts=charts,
        show_secrets=show_secrets,
    )
    if card is not None:
        from lmexposure.studies import save_card

        save_card(card, content)
        written.append(card)
    say_verdict(study)
    for path in written:
        say(f"report  {path}")
    if charts and not any(path.parent.name == "charts" for path in written):
        warn(f"{study.WHAT} has no charts, so none were written")
    if show_secrets:
        warn(PRIVATE_FILES)


def _card(path: Path, result: "Result", *, force: bool) -> bytes:
    """A model's card with the results; its weights, which its files do not tell, are compared."""
    from lmexposure.models import load_model
    from lmexposure.studies import card_with_results  # brings huggingface_hub

    if force:
        return card_with_results(path, result, None)
    try:
        loaded = load_model(path.parent, dtype=result.model.dtype, offline=True)
        return card_with_results(path, result, loaded.identity)
    except ModelError as failure:
        raise ModelError(
            f"{failure}; with --force the card is written anyway, and says so"
        ) from None


def epsilon(  # noqa: PLR0913 - a command
    file: Path,
    score: str | None,
    included: str | None,
    lower_is_in: bool,
    inclusion_probability: float | None,
    repetitions: int | None,
    significance: float,
    deltas: list[float] | None,
    claimed_epsilon: float | None,
    seed: int,
    as_json: bool,
) -> None:
    """Print every lower bound on epsilon that the scores in FILE support."""
    from lmexposure.audit import epsilon_of_columns
    from lmexposure.studies import privacy_sections, read_score_file

    if claimed_epsilon is not None and not deltas:
        raise SettingsError(
            f"--claimed-epsilon {setting_value(claimed_epsilon)} needs --delta, such as 0"
        )
    columns = read_score_file(
        file, score=score, included=included, repetitions=repetitions, lower_is_in=lower_is_in
    )
    privacy = epsilon_of_columns(
        columns,
        inclusion_probability=inclusion_probability,
        deltas=deltas or (0.0,),
        claim=claimed_epsilon,
        significance=significance,
        seed=seed,
        if_reversed=f"{'leave out' if lower_is_in else 'give'} --lower-is-in if lower scores "
        f"{'do not ' if lower_is_in else ''}mean in",
    )
    if as_json:
        say(json.dumps(asdict(privacy)))
    else:
        for section in privacy_sections(privacy):
            print_section(section)
    if privacy.primary is None:
        raise InputError(f"{file}: {privacy.classes[0].note}")


def dp_report(training: Path, each: Path | None) -> None:
    """Show the epsilon of each document after the training, beside the one claimed for all.

    A claim covers the worst document; the same noise hides most documents better. These numbers
    come from the training's own gradients: keep them private; they promise nothing.
    """
    from lmexposure.core import as_csv
    from lmexposure.studies import DocumentPrivacy

    document = DocumentPrivacy.read(training).document()
    print_document(document)
    if each is None:
        return
    content = as_csv(document).encode()
    if not (is_taken(each) and each.read_bytes() == content):  # another list is kept
        with atomic_write(each, mode=PRIVATE, replaces=lambda _: False) as stream:
            stream.write(content)
    say(f"list  {each}")


def settings(command: str | None) -> None:
    """List the settings of COMMAND: key of a settings file, flag, default, and what it decides.

    A key is also the keyword of the Python function of that name. What has no flag is set by --set
    KEY=VALUE, or in a file that --settings names.
    """
    if command is None:
        numbers = [(name, count(len(group.settings), "setting")) for name, group in EVERY.items()]
        print_table(("command", "takes"), numbers)
        say("lmexposure settings COMMAND lists them")
        return
    refuse_unknown([command], EVERY, what="command")
    group = EVERY[command]
    rows = [
        (name, told.flag if name in group.flags else "", *group.words(name), told.range)
        for name, told in group.settings.items()
    ]
    print_table(("key", "flag", "default", "what it decides", "range"), rows)
    if command == "check":
        say("in a settings file they are in the table [check]")


def formats(context: typer.Context) -> None:
    """List the formats that ship, with how many secrets each has."""
    if context.invoked_subcommand is not None:
        return
    from lmexposure.canaries import shipped_formats

    rows = [
        [form.name, form.template, whole(form.size), number(form.bits, 1)]
        for form in shipped_formats().values()
    ]
    print_table(["format", "template", "size", "bits"], rows, right=(2, 3))


def show_format(name: str, samples: int, seed: int) -> None:
    """Show a format in full, with a few secrets of it."""
    from lmexposure.canaries import load_format

    form = load_format(name)
    secrets = form.sample(min(samples, form.size), seed=seed)
    print_pairs(
        [
            ("name", form.name),
            ("template", form.template),
            ("description", form.description),
            ("source", form.source),
            ("size", str(form.size)),
            ("bits", number(form.bits)),
            *(("example", form.text(index)) for index in secrets),
        ]
    )


def check_format(file: Path) -> None:
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
    say(f"sound    {form.name}: {whole(form.size)} possible secrets, {bits(form.bits)}")
