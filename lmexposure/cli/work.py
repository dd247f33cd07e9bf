"""The commands that train or load models: each says a word before it imports torch."""

from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from lmexposure._settings import Function, whole_numbers
from lmexposure._style import count, in_words, listed, number, short
from lmexposure._style import reading as in_unit
from lmexposure.cli.console import begin, long_work, print_pairs, say, show_study, warn
from lmexposure.cli.corpora import fitted_to, say_max_attainable, say_records, warn_of_share
from lmexposure.cli.options import STDIN, TAKEN, Given, asked, opened, reading, refuse_swapped
from lmexposure.errors import CorpusError, SettingsError
from lmexposure.studies import RunSettings

if TYPE_CHECKING:
    from lmexposure.studies import SweepSettings

_WRONG, _NOT_SEEN = 1, 2  # exit codes of dp-check
_SWEEP = TAKEN["sweep"]


def study(call: str, *, refuses: str = "", **more: object) -> Function:
    """A command that is one call of the library, "room:function", and shows the study it gives.

    What `refuses` names in the room needs no torch, and refuses settings before that is imported.
    """

    def command(
        *, out: Path, settings: object, show_secrets: bool = False, **given: object
    ) -> None:
        model, corpus = given.get("model"), cast("list[str]", given["corpus"])
        begin(reading(corpus) if model is None else f"loading {model}")
        look_ahead(settings, out=out, **given)
        room, _, name = call.partition(":")
        home = import_module(f"lmexposure.{room}")
        if refuses:
            getattr(home, refuses)(settings)
        function = getattr(home, name)
        with long_work() as progress:
            found = function(out=out, settings=settings, progress=progress, **given, **more)
        show_study(out / found.NAME, show_secrets=show_secrets)

    return command


def look_ahead(settings: object, *, corpus: object = None, **data: object) -> None:
    """Refuse what names, files and the machine say is wrong; standard input is not read for it."""
    from lmexposure.audit import check_ahead

    known = None if corpus == [STDIN] else corpus
    check_ahead(cast("RunSettings", settings), corpus=known, **data)


def lines_of(path: Path | None) -> tuple[str, ...]:
    """The lines of a file of prompts that hold text; none of no file."""
    if path is None:
        return ()
    from lmexposure.canaries import read_documents

    lines = tuple(line for line in read_documents(path, layout="lines") if line.strip())
    if not lines:
        raise CorpusError(f"{path} holds no prompt; give a file with one a line")
    return lines


def run(corpus: list[str], out: Path, settings: RunSettings) -> None:
    """Insert canaries into CORPUS, train a model on it, measure what it gives away."""
    begin(reading(corpus))
    from lmexposure._files import only_writer
    from lmexposure.audit import RunLog

    look_ahead(settings, corpus=corpus, out=out)
    settings = fitted_to(settings, opened(corpus), out)
    if corpus != [STDIN]:
        RunLog.open(out, settings)  # refuses another's directory
    from lmexposure.audit import (
        estimate_cost,
        preview,
        refuse_kinds_of_run,
        spooled_corpus,
        wrapping_of,
    )

    refuse_kinds_of_run(settings)
    with only_writer(out), spooled_corpus(opened(corpus), out, settings) as files:
        would = preview(files, settings=settings)
        say_records(wrapping_of(files, settings=settings, out=out), settings, files)
        say(estimate_cost(files, settings, would=would))
        say_max_attainable(settings)
        warn_of_share(settings, would.share_of_documents, would.share_of_bytes)
        _run(files, out, settings)


def demo(out: Path | None, clean: bool, given: Given) -> None:
    """Run the whole test on the language reference that comes with Python. No download.

    The model leaks: `lmexposure check` ends with exit code 1. With --clean the secrets are not
    repeated and the text is read once: the gate passes, with exit code 0.
    """
    look = asked(RunSettings(), given).measure
    if look.quick and clean:
        raise SettingsError(
            "--effort quick passes no gate, and --clean shows what passes it; leave --effort out"
        )
    begin("reading the language reference of Python")
    from lmexposure._files import only_writer
    from lmexposure.audit import demo_corpus, demo_settings, estimate_cost

    settings = asked(demo_settings(clean=clean), given)
    kind = "-clean" if clean else "" if look.effort == "normal" else f"-{look.effort}"
    out = out or Path("runs") / f"demo{kind}"
    with only_writer(out):
        corpus = demo_corpus(out / "source" / "python_topics.txt", short=True)
        say(estimate_cost(corpus, settings))
        _run(corpus, out, settings)


def _run(corpus: "Path | list[str | Path]", out: Path, settings: RunSettings) -> None:
    from lmexposure.audit import run

    with long_work() as progress:
        run(corpus, out=out, settings=settings, progress=progress)
    show_study(out)


def train(corpus: list[str], out: Path, manifest: Path | None, settings: RunSettings) -> None:
    """Train a model on a corpus; keep the checkpoint with the lowest validation loss."""
    begin(reading(corpus))
    look_ahead(settings, corpus=corpus, manifest=manifest)
    from lmexposure.audit import train_corpus

    with long_work() as progress:
        trained = train_corpus(
            opened(corpus), out=out, manifest=manifest, settings=settings, progress=progress
        )
    if not trained.improved:
        warn("the model did not learn: its validation loss is no lower than before training")
    epochs = f"{number(trained.best_epoch)} of {number(trained.epochs)} ({trained.stopped})"
    print_pairs(
        [
            ("model", str(trained.model_path)),
            ("best epoch", epochs),
            ("validation loss", in_unit(trained.validation_bits, "bits per token")),
            ("processes", str(trained.processes)),
            *([] if trained.claim is None else [("promise", str(trained.claim))]),
        ]
    )


def measure(
    model: list[str] | None,
    manifest: Path,
    scores: Path | None,
    out: Path,
    base: str | None,
    settings: RunSettings,
) -> None:
    """Measure exposure and extraction of the canaries in MANIFEST under MODEL.

    Of several models, checkpoints of one training, the last is measured so, and each one's
    exposures are in the trajectory.
    """
    from lmexposure._files import only_writer
    from lmexposure._written import refuse_foreign
    from lmexposure.audit import check_out
    from lmexposure.canaries import Manifest
    from lmexposure.studies import read_look

    if not model and scores is None:
        raise SettingsError(
            f"{manifest} alone is there of MODEL and MANIFEST, in this order; give both, or "
            "--scores instead of MODEL"
        )
    if model and scores is not None:
        raise SettingsError(f"{model[0]} and --scores say two things of the model; leave one out")
    model, given = model or [], scores or (model or [""])[0]
    refuse_swapped(model, manifest, "model")
    known = Manifest.read(manifest)  # a bad manifest is found before a large model is loaded
    if len(model) > 1 and base is not None:
        raise SettingsError(
            f"--base {base} is for one model, and {len(model)} are given; measure the trajectory "
            "without it, then the last checkpoint with it"
        )
    with only_writer(out):
        refuse_foreign(out, ("report.html", "report.md"))
        if (out / "manifest.json").exists():  # the report reads it, and the look beside it
            Manifest.read(out / "manifest.json")
        read_look(out)
        begin(f"loading {f'{len(model)} checkpoints' if model[1:] else given}")
        for name in model:
            look_ahead(settings, model=name, base=base)
        check_out(out, known, None if model[1:] else given)
        from lmexposure.audit import measure_checkpoints, read_scores, told_wrapping
        from lmexposure.calls import measured
        from lmexposure.scoring import load_for_measuring

        with long_work() as progress:
            if not model[1:]:
                read = (
                    given
                    if scores is None
                    else read_scores(scores, known, references=settings.measure.references)
                )
                measured(read, manifest, base=base, out=out, settings=settings, progress=progress)
            else:
                measure_checkpoints(
                    model,
                    manifest,
                    out=out,
                    settings=replace(settings.measure, threads=settings.threads),
                    progress=progress,
                    load=partial(load_for_measuring, settings=settings),
                    wrapping=told_wrapping(known, settings),
                )
        show_study(out)


def sweep(  # noqa: PLR0913 - a command
    corpus: list[str] | None,
    out: Path | None,
    prepare: bool,
    only: str | None,
    collect: Path | None,
    workers: int | None,
    address: str | None,
    given: Given,
) -> None:
    """Train many models on CORPUS, each with canaries of its own, and find the worst canary."""
    steps = {"--prepare": prepare or None, "--only": only, "--collect": collect}
    flags = [flag for flag, step in steps.items() if step is not None]
    if len(flags) > 1:
        raise SettingsError(f"{listed(flags)} are steps of their own; give one at a time")
    if collect is not None:
        _refuse_more("--collect", {"CORPUS": corpus, "--out": out}, given)
        begin(f"opening {collect}")
        from lmexposure import sweeps

        with long_work() as progress:
            sweeps.collect(collect, progress=progress)
        show_study(collect)
    elif out is None:
        raise SettingsError("--out is missing; name the directory of the sweep")
    elif only is not None:
        _refuse_more("--only", {"CORPUS": corpus, "--workers": workers}, given)
        _only(out, whole_numbers("only", only))
    elif not corpus:
        raise SettingsError("CORPUS is missing; name its files, or --collect a sweep")
    else:
        settings = cast("SweepSettings", _SWEEP.make(given))
        begin(reading(corpus))
        look_ahead(settings, corpus=corpus, out=out)
        from lmexposure.audit import models_ahead

        if not out.exists() and (too_few := models_ahead(settings, corpus)) is not None:
            warn(too_few)
        _sweep(corpus, out, settings, workers, address, prepare_alone=prepare)


def _refuse_more(step: str, more: Given, settings: Given) -> None:
    """Refuse what a step takes from the plan, rather than pass over it."""
    for name in settings:
        more[_SWEEP.settings[name].flag if name in _SWEEP.flags else "--settings or --set"] = True
    for name, value in more.items():
        if value is not None:
            raise SettingsError(
                f"{step} takes everything from the plan of its sweep; leave out {name}"
            )


def _sweep(
    corpus: list[str],
    out: Path,
    settings: "SweepSettings",
    workers: int | None,
    address: str | None,
    *,
    prepare_alone: bool,
) -> None:
    from lmexposure import sweeps
    from lmexposure._files import only_writer

    sweeps.check_workers(workers, address)
    with only_writer(out):
        plan = sweeps.prepare(corpus, out=out, settings=settings)
        canaries = len(plan.canaries)
        say(
            f"{count(plan.models, 'model')}; by coins {count(canaries, 'canary', 'canaries')} "
            f"and {count(len(plan.scored) - canaries, 'ordinary document')}"
        )
        if prepare_alone:
            last = plan.models - 1
            say(f"plan  {out / plan.NAME}, for its owner alone: it has the coins")
            say(f"train each with: lmexposure sweep --only N --out {out}, N from 0 to {last}")
            say(f"then: lmexposure sweep --collect {out}")
            return
        with long_work() as progress:
            sweeps.sweep(
                corpus,
                out=out,
                settings=settings,
                workers=workers,
                address=address,
                progress=progress,
            )
        show_study(out)


def _only(out: Path, numbers: tuple[int, ...]) -> None:
    begin(f"opening {out}")
    from lmexposure.studies import FailedModel
    from lmexposure.sweeps import run_task

    for number_of_model in dict.fromkeys(numbers):
        with long_work() as progress:
            trained = run_task(out, number_of_model, progress=progress)
        if isinstance(trained, FailedModel):
            warn(f"model {number_of_model} has no scores: {trained.reason}")
        else:
            say(f"model {number_of_model}  trained and scored in {in_words(trained.seconds)}")


def dp_check(corpus: list[str], manifest: Path | None, settings: RunSettings) -> None:
    """Check the private training of a model on a corpus; exit code 1 if it is wrong.

    Takes the settings of `lmexposure train --method dp-sgd`, and looks at two dozen steps of it:
    gradients of single documents, clipping, noise, coins, accountant, weights. Exit code 2:
    something could not be checked. For a training of your own with Opacus, call
    lmexposure.dp_check(model, optimizer, loader).
    """
    begin(reading(corpus))
    look_ahead(settings, corpus=corpus, manifest=manifest)
    from lmexposure.audit import check_private_training
    from lmexposure.studies import DP_SGD

    private = replace(settings, training={**settings.training, "method": DP_SGD})
    claim, found = check_private_training(opened(corpus), settings=private, manifest=manifest)
    for line in str(found).splitlines():
        say(line)
    say(f"a right training is called wrong with probability {short(found.level)} at most")
    say(f"\n{claim}")
    if found.failed:
        say("WRONG: this is not the training that its epsilon is for")
        raise typer.Exit(_WRONG)
    if found.not_seen:
        say("not known: some of it could not be looked at")
        raise typer.Exit(_NOT_SEEN)
    say("right, in the steps that were looked at; a pass does not cover what is named above")
