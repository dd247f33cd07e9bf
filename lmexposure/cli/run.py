"""`lmexposure run`: insert, train, measure; the whole leakage test."""

from pathlib import Path
from typing import Annotated

from lmexposure.cli import options
from lmexposure.cli.console import say, warn
from lmexposure.cli.insert import say_attainable
from lmexposure.cli.long_work import long_work


def run(
    corpus: options.Corpus,
    out: Annotated[Path, options.out_option("The run; the same command resumes it.")],
    model: options.Model = None,
    formats: options.Formats = None,
    canaries: options.Canaries = None,
    inclusion_probability: options.InclusionProbability = None,
    inclusion_seed: options.InclusionSeed = None,
    repetitions: options.Repetitions = None,
    controls: options.Controls = None,
    quick: options.Quick = None,
    references: options.References = None,
    seed: options.RunSeed = None,
    layout: options.Layout = None,
    text_field: options.TextField = None,
    existing: options.Existing = None,
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
    epochs: options.Epochs = None,
    patience: options.Patience = None,
    training_batch: options.TrainingBatch = None,
    block_size: options.BlockSize = None,
    learning_rate: options.LearningRate = None,
    accumulation: options.Accumulation = None,
    precision: options.Precision = None,
    layers: options.Layers = None,
    units: options.Units = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    offline: options.Offline = None,
    revision: options.Revision = None,
    max_seconds: options.MaxSeconds = None,
    settings: options.SettingsFile = None,
) -> None:
    """Insert canaries into CORPUS, train a model on it, measure what it gives away."""
    chosen = options.merged(locals(), apart=("corpus", "out"))
    from lmexposure._locks import only_writer
    from lmexposure.audit import estimate_cost, preview, share_warning
    from lmexposure.audit import run as run_audit
    from lmexposure.cli.reporting import write_and_say
    from lmexposure.cli.tables import print_result

    with only_writer(out):
        would = preview([corpus], settings=chosen)
        say(estimate_cost(corpus, chosen, would=would))
        say_attainable(chosen)
        too_many = share_warning(
            chosen, of_documents=would.share_of_documents, of_bytes=would.share_of_bytes
        )
        if too_many:
            warn(too_many)
        with long_work() as progress:
            result = run_audit(corpus, out=out, settings=chosen, progress=progress)
        print_result(result)
        write_and_say(out)
    say(f"run directory  {out}")
