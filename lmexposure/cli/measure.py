"""`lmexposure measure`: any model against the manifest of the corpus that it was trained on."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import say
from lmexposure.cli.long_work import long_work


def measure(
    model: Annotated[str, typer.Argument(help="A model directory or hub name.")],
    manifest: Annotated[Path, typer.Argument(help="The manifest.json of the insertion.")],
    out: Annotated[Path, options.out_option("For result.json, scores.parquet and the report.")],
    quick: options.Quick = None,
    references: options.References = None,
    revealed: options.Revealed = None,
    beam_width: options.Beam = None,
    method: options.Method = None,
    budget_steps: options.BudgetSteps = None,
    budget_seconds: options.BudgetSeconds = None,
    draws: options.Draws = None,
    guesses: options.Guesses = None,
    live_states: options.LiveStates = None,
    significance: options.Significance = None,
    delta: options.Delta = None,
    claimed_epsilon: options.ClaimedEpsilon = None,
    seed: options.MeasureSeed = None,
    batch_size: options.Batch = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    offline: options.Offline = None,
    revision: options.Revision = None,
    settings: options.SettingsFile = None,
) -> None:
    """Measure exposure and extraction of the canaries in MANIFEST under MODEL."""
    chosen = options.merged(locals(), apart=("model", "manifest", "out"))
    from lmexposure._locks import only_writer
    from lmexposure.audit import load_for_measuring
    from lmexposure.audit import measure as measure_model
    from lmexposure.canaries import Manifest
    from lmexposure.cli.reporting import write_and_say
    from lmexposure.cli.tables import print_result

    inserted = Manifest.read(manifest)  # a bad manifest is found before a large model is loaded
    with only_writer(out):
        with long_work() as progress:
            result = measure_model(
                load_for_measuring(model, chosen),
                inserted,
                out=out,
                settings=replace(
                    chosen.measure, bootstrap_seed=chosen.public_seed, threads=chosen.threads
                ),
                progress=progress,
            )
        print_result(result)
        write_and_say(out)
    say(f"result  {out / 'result.json'}")
