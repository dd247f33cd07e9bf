"""`lmexposure report`, one run as a page and as files; `lmexposure compare`, several runs."""

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import PRIVATE_FILES, say, warn

if TYPE_CHECKING:
    from lmexposure.core import Study
    from lmexposure.studies import Result

Formats = Annotated[
    list[str] | None,
    typer.Option("--format", help="html, md, csv or json; may be repeated.  [default: html, md]"),
]


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Two or more runs, or studies of another kind; the others are compared with the "
            "first."
        ),
    ],
    formats: Formats = None,
    out: Annotated[Path, options.out_option("For the files.")] = Path("compare"),
) -> None:
    """Compare RUNS: a base model with its fine-tune, an undefended training with a defended one."""
    from lmexposure._text import visible
    from lmexposure.doors import study_of
    from lmexposure.reporting import compare_data, write_compare
    from lmexposure.studies import open_run

    if any(study_of(run) for run in runs):
        _compare_studies(runs, formats, out)
        return
    compared = compare_data([open_run(run) for run in runs])
    written = write_compare(compared, out=out, formats=formats or ("html", "md"))
    for finding in compared.findings:
        say(visible(finding.sentence))
    for note in compared.notes:
        warn(visible(note))
    for run in compared.runs:
        say(f"{visible(run.name)}: {run.verdict.sentence}")
        say(f"  {run.provenance.line}")
    for path in written:
        say(f"compare  {path}")


def _compare_studies(runs: list[Path], formats: list[str] | None, out: Path) -> None:
    from lmexposure.cli.console import print_document
    from lmexposure.core import write_document
    from lmexposure.doors import compared

    document = compared(runs)
    written = write_document(document, out, stem="compare", formats=formats or ("html", "md"))
    print_document(document)
    for path in written:
        say(f"compare  {path}")


def report(  # noqa: PLR0913 - a command: its parameters are its flags
    run: Annotated[
        Path,
        typer.Argument(
            help="The directory of a run or of another study, or the record in it, such as "
            "result.json."
        ),
    ],
    formats: Formats = None,
    out: Annotated[
        Path | None, options.out_option("For the files; by default, next to the result.")
    ] = None,
    show_secrets: Annotated[
        bool,
        typer.Option(
            "--show-secrets",
            help="Show the secrets, which needs the manifest; or the texts that came out.",
        ),
    ] = False,
    manifest: Annotated[
        Path | None, typer.Option(help="The manifest.json, if it is not next to the result.")
    ] = None,
    charts: Annotated[
        bool,
        typer.Option("--charts", help="Also write each chart as SVG, PNG and PDF, in charts/."),
    ] = False,
    model_card: Annotated[
        Path | None,
        typer.Option(help="A model directory whose README.md gets the results as metadata."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="With --model-card: write into the card of any model; the card then says that its "
            "weights were not checked.",
        ),
    ] = False,
) -> None:
    """Write the report of RUN: report.html and report.md."""
    from lmexposure.canaries import Manifest
    from lmexposure.doors import study_of
    from lmexposure.errors import SettingsError
    from lmexposure.gate import check
    from lmexposure.reporting import write_report
    from lmexposure.studies import open_run

    if force and model_card is None:
        raise SettingsError("--force goes with --model-card; give both, or leave it out")
    if (study := study_of(run)) is not None:
        given = {"--manifest": manifest is not None, "--model-card": model_card is not None}
        for flag in (flag for flag, is_given in given.items() if is_given):
            raise SettingsError(f"{flag} is of a run, and {run} is {study.WHAT}; leave it out")
        _of_a_study(
            study,
            out or (run if run.is_dir() else run.parent),
            formats=formats or ("html", "md"),
            charts=charts,
            show_secrets=show_secrets,
        )
        return
    opened = open_run(run)
    gc.freeze()  # all of it is kept to the end: the collector need not search it
    known = None if model_card is None or force else _weights(model_card, opened.result)
    written = write_report(
        opened,
        out=out,
        formats=formats or ("html", "md"),
        charts=charts,
        show_secrets=show_secrets,
        manifest=None if manifest is None else Manifest.read(manifest),
        model_card=model_card,
        card_weights=known,
    )
    say(check(opened).sentence)
    say(opened.provenance.line)
    for path in written:
        say(f"report  {path}")
    if show_secrets:
        warn("these files show the secrets of the canaries: keep them private")


def _of_a_study(study: "Study", out: Path, *, show_secrets: bool, **asked: object) -> None:
    from lmexposure.core import judged
    from lmexposure.doors import report_study

    written = report_study(study, out, show_secrets=show_secrets, **asked)
    say(judged(study).sentence)
    say(study.provenance.line)
    for path in written:
        say(f"report  {path}")
    if show_secrets:
        warn(PRIVATE_FILES)


def _weights(model: Path, result: "Result") -> str:
    """The hash of a model's weights, loaded as for the measurement: its files do not tell."""
    from lmexposure.errors import ModelError
    from lmexposure.models import load_model, weights_sha256

    try:
        return weights_sha256(load_model(model, dtype=result.model.dtype, offline=True).model)
    except ModelError as failure:
        raise ModelError(
            f"{failure}; with --force the card is written anyway, and says so"
        ) from None
