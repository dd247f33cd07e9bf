"""`lmexposure report`, one run as a page and as files; `lmexposure compare`, several runs."""

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import PRIVATE_FILES, say, warn

if TYPE_CHECKING:
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
    from lmexposure.cli.console import say_verdict
    from lmexposure.doors import report_study, study_of, with_manifest
    from lmexposure.errors import SettingsError
    from lmexposure.studies import Result

    if force and model_card is None:
        raise SettingsError("--force goes with --model-card; give both, or leave it out")
    study = study_of(run)
    of_a_run = {"--manifest": manifest, "--model-card": model_card}
    for flag in (flag for flag, path in of_a_run.items() if path is not None):
        if not isinstance(study, Result):
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
    from lmexposure.errors import ModelError
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
