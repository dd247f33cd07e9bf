"""`lmexposure sweep`: many models on one corpus, each with canaries by coins of its own."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from lmexposure._settings import whole_numbers
from lmexposure._style import count, in_words, listed
from lmexposure.cli import options
from lmexposure.cli.console import begin, say, show_study, warn
from lmexposure.cli.long_work import long_work
from lmexposure.cli.options import Given, takes
from lmexposure.errors import SettingsError
from lmexposure.studies import SWEEPING

if TYPE_CHECKING:
    from lmexposure.studies import SweepPlan, SweepResult, SweepSettings

_STEP = "Instead of the whole sweep"  # what a help says of the flags for one step of it


@takes(given=replace(options.told("sweep"), make=dict))  # a step of it takes none of them
def sweep(  # noqa: PLR0913 - a command: its parameters are its flags
    corpus: Annotated[list[str] | None, options.files_argument()] = None,
    out: Annotated[
        Path | None,
        options.out_option("The sweep; the same command goes on at the models that are missing."),
    ] = None,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare",
            rich_help_panel=SWEEPING,
            help=f"{_STEP}: draw canaries and coins, and train nothing.",
        ),
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            rich_help_panel=SWEEPING,
            help=f"{_STEP}: train these models of what --prepare left in OUT, from 0; for Slurm, "
            "or machines without Ray.",
        ),
    ] = None,
    collect: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY",
            rich_help_panel=SWEEPING,
            help=f"{_STEP}: join the scores of its models, and report.",
        ),
    ] = None,
    workers: options.Workers = None,
    address: options.Address = None,
    *,
    given: Given,
) -> None:
    """Train many models on CORPUS, each with canaries of its own, and find the worst canary."""
    _refuse_mixed(prepare=prepare, only=only, collect=collect)
    if collect is not None:
        _refuse_more("--collect", {"CORPUS": corpus, "--out": out, **_flags(given)})
        _collect(collect)
        return
    if out is None:
        raise SettingsError("--out is missing; name the directory of the sweep")
    if only is not None:
        _refuse_more("--only", {"CORPUS": corpus, "--workers": workers, **_flags(given)})
        _only(out, whole_numbers("only", only))
        return
    if not corpus:
        raise SettingsError("CORPUS is missing; name its files, or --collect a sweep")
    _sweep(corpus, out, given, workers=workers, address=address, prepare_alone=prepare)


def _refuse_mixed(*, prepare: bool, only: str | None, collect: Path | None) -> None:
    asked = {"--prepare": prepare, "--only": only is not None, "--collect": collect is not None}
    flags = [flag for flag, is_given in asked.items() if is_given]
    if len(flags) > 1:
        raise SettingsError(f"{listed(flags)} are steps of their own; give one at a time")


def _flags(given: Given) -> dict[str, object]:
    """The flags of settings that were given, as they were written, with their values."""
    told = options.told("sweep").flags
    return {
        told[name].flag if name in told else "--settings or --set": given[name] for name in given
    }


def _refuse_more(step: str, others: dict[str, object]) -> None:
    """Refuse what a step takes from the plan, rather than pass over it."""
    for name, value in others.items():
        if value not in (None, []):
            raise SettingsError(
                f"{step} takes everything from the plan of its sweep; leave out {name}"
            )


def _sweep(
    corpus: list[str],
    out: Path,
    given: Given,
    *,
    workers: int | None,
    address: str | None,
    prepare_alone: bool,
) -> None:
    settings = cast("SweepSettings", options.told("sweep").make(given))
    begin(options.reading(corpus))
    from lmexposure._files import only_writer
    from lmexposure.sweeps import check_workers, prepare, sweep, sweep_cost

    check_workers(workers, address)
    with only_writer(out):
        plan = prepare(corpus, out=out, settings=settings)
        _say_plan(plan)
        if prepare_alone:
            last = plan.models - 1
            say(f"plan  {out / plan.NAME}, for its owner alone: it has the coins")
            say(f"train each with: lmexposure sweep --only N --out {out}, N from 0 to {last}")
            say(f"then: lmexposure sweep --collect {out}")
            return
        say(sweep_cost(out, workers=workers, address=address).sentence)
        with long_work() as progress:
            result = sweep(
                corpus,
                out=out,
                settings=settings,
                workers=workers,
                address=address,
                progress=progress,
            )
        _show(result, out)


def _say_plan(plan: "SweepPlan") -> None:
    canaries = len(plan.canaries)
    say(
        f"{count(plan.models, 'model')}; by coins {count(canaries, 'canary', 'canaries')} "
        f"and {count(len(plan.scored) - canaries, 'ordinary document')}"
    )


def _only(out: Path, numbers: tuple[int, ...]) -> None:
    begin(f"opening {out}")
    from lmexposure.studies import FailedModel
    from lmexposure.sweeps import run_task

    for number in dict.fromkeys(numbers):
        with long_work() as progress:
            trained = run_task(out, number, progress=progress)
        if isinstance(trained, FailedModel):
            warn(f"model {number} has no scores: {trained.reason}")
        else:
            say(f"model {number}  trained and scored in {in_words(trained.seconds)}")


def _collect(out: Path) -> None:
    begin(f"opening {out}")
    from lmexposure.sweeps import collect

    with long_work() as progress:
        result = collect(out, progress=progress)
    _show(result, out)


def _show(result: "SweepResult", out: Path) -> None:
    """What many models show, where it is written, and the verdict."""
    from lmexposure.core import judged

    show_study(result, out)
    say(judged(result).sentence)
