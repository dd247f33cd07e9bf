"""`lmexposure measure`: any model against the manifest of the corpus that it was trained on."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import print_result, say, write_and_say
from lmexposure.cli.long_work import long_work
from lmexposure.cli.options import takes

if TYPE_CHECKING:
    from lmexposure.records import RunSettings


@takes(settings=options.MEASUREMENT)
def measure(
    model: Annotated[str, typer.Argument(help="A model directory or hub name.")],
    manifest: Annotated[Path, typer.Argument(help="The manifest.json of the insertion.")],
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
    """Measure exposure and extraction of the canaries in MANIFEST under MODEL."""
    from lmexposure._files import only_writer
    from lmexposure.audit import load_base, load_for_measuring
    from lmexposure.audit import measure as measure_model
    from lmexposure.canaries import Manifest

    inserted = Manifest.read(manifest)  # a bad manifest is found before a large model is loaded
    with only_writer(out):
        with long_work() as progress:
            result = measure_model(
                load_for_measuring(model, settings),
                inserted,
                out=out,
                settings=replace(settings.measure, threads=settings.threads),
                progress=progress,
                base=load_base(base, settings),
            )
        print_result(result)
        write_and_say(out)
    say(f"result  {out / 'result.json'}")
