"""`lmexposure measure`: any model, or its checkpoints, against the manifest of its corpus."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import begin, say, show_run
from lmexposure.cli.long_work import LongWork, long_work
from lmexposure.cli.options import takes

if TYPE_CHECKING:
    from lmexposure.studies import Result, RunSettings


@takes(settings=options.told("measure"))
def measure(
    model: Annotated[
        list[str],
        typer.Argument(
            help="A model directory or hub name; several: the checkpoints of one training, for a "
            "trajectory.",
        ),
    ],
    manifest: options.Manifest,
    out: Annotated[Path, options.out_option("For result.json, scores.parquet and the report.")],
    settings: "RunSettings",
    base: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The model before the training, which scores the same texts: exposures then say "
            "what was likely anyway, and calibrated ones what the training added. 'adapter-off': "
            "MODEL with its adapter switched off.",
        ),
    ] = None,
) -> None:
    """Measure exposure and extraction of the canaries in MANIFEST under MODEL.

    Of several models, checkpoints of one training, the last is measured so, and each one's
    exposures are in the trajectory.
    """
    from lmexposure._files import only_writer
    from lmexposure._written import refuse_foreign
    from lmexposure.canaries import Manifest
    from lmexposure.studies import read_look

    options.refuse_swapped(model, manifest, "model")
    Manifest.read(manifest)  # a bad manifest is found before a large model is loaded
    with only_writer(out):
        refuse_foreign(out, ("report.html", "report.md"))
        if (out / "manifest.json").exists():  # the report reads it, and the look beside it
            Manifest.read(out / "manifest.json")
        read_look(out)
        begin(f"loading {model[0] if len(model) == 1 else f'{len(model)} checkpoints'}")
        with long_work() as progress:
            measured = _measure_one if len(model) == 1 else _measure_several
            measured(model, manifest, out, settings, base, progress)
        show_run(out)
    say(f"result  {out / 'result.json'}")


def _measure_one(
    models: Sequence[str],
    manifest: Path,
    out: Path,
    settings: "RunSettings",
    base: str | None,
    progress: LongWork,
) -> "Result":
    from lmexposure.audit import measure, recorded_training, told_wrapping
    from lmexposure.canaries import Manifest
    from lmexposure.scoring import load_base, load_for_measuring

    known = Manifest.read(manifest)
    wrapping = told_wrapping(known, settings)
    return measure(
        load_for_measuring(models[0], settings),
        manifest,
        out=out,
        wrapping=wrapping,
        validation=recorded_training(models[0], known),
        settings=replace(settings.measure, threads=settings.threads),
        progress=progress,
        base=load_base(base, settings),
    )


def _measure_several(
    models: Sequence[str],
    manifest: Path,
    out: Path,
    settings: "RunSettings",
    base: str | None,
    progress: LongWork,
) -> "Result":
    from lmexposure.audit import measure_checkpoints, told_wrapping
    from lmexposure.canaries import Manifest
    from lmexposure.errors import SettingsError
    from lmexposure.scoring import load_for_measuring

    if base is not None:
        raise SettingsError(
            f"--base {base} is for one model, and {len(models)} are given; measure the trajectory "
            "without it, then the last checkpoint with it"
        )
    return measure_checkpoints(
        models,
        manifest,
        out=out,
        settings=replace(settings.measure, threads=settings.threads),
        progress=progress,
        load=partial(load_for_measuring, settings=settings),
        wrapping=told_wrapping(Manifest.read(manifest), settings),
    )
