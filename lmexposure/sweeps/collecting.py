"""Join what all models of a sweep left into matrices.npz and sweep.json."""

from collections.abc import Sequence
from pathlib import Path

from lmexposure._files import only_writer
from lmexposure._style import are, count, listed
from lmexposure.audit import Progress, silent
from lmexposure.errors import ResultError
from lmexposure.studies import FailedModel, SweepModel, SweepResult
from lmexposure.sweeps.analysis import analyse
from lmexposure.sweeps.arrays import ModelScores
from lmexposure.sweeps.base import base_scores
from lmexposure.sweeps.matrices import NAME, Matrices, join_scores
from lmexposure.sweeps.task import SweepDirectory

_SHOWN = 10  # numbers of missing models in a message


def collect(out: str | Path, *, progress: Progress = silent) -> SweepResult:
    """Join the scores of all models of a sweep: matrices.npz and sweep.json."""
    directory = SweepDirectory.open(out)
    models, failed = _ended(directory)
    with only_writer(directory.out):
        matrices = _joined(directory, models, progress)
        progress("analysis", 0, 1)
        result = analyse(
            matrices,
            directory.plan,
            documents=directory.manifest.corpus.documents,
            models=models,
            failed=failed,
        )
        # The result comes last: it names the matrices by their hash.
        matrices.save(directory.out / NAME)
        result.save(directory.out)
        progress("analysis", 1, 1)
    return result


def _ended(directory: SweepDirectory) -> tuple[list[SweepModel], list[FailedModel]]:
    """Models with scores, and those that have none."""
    models, failed, missing = [], [], []
    for number in range(directory.plan.models):
        done = directory.done(number)
        why = directory.failed(number) if done is None else None
        if done is not None:
            models.append(done)
        elif why is not None:
            failed.append(why)
        else:
            missing.append(number)
    if missing:
        numbers = [str(number) for number in missing]
        raise ResultError(
            f"{len(missing):,} of {count(directory.plan.models, 'model')} in "
            f"{directory.out} {are(len(missing))} not trained yet: {listed(numbers, _SHOWN)}; "
            "train them first, each alone or by the same sweep again"
        )
    if not models:
        raise ResultError(
            f"all {len(failed):,} models in {directory.out} diverged ({failed[0].reason}); prepare "
            "another sweep with a lower learning rate"
        )
    return models, failed


def _joined(
    directory: SweepDirectory, models: Sequence[SweepModel], progress: Progress
) -> Matrices:
    """The scores of these models."""
    plan = directory.plan
    scores = {}
    for done, model in enumerate(models):
        progress("collecting", done, len(models))
        found = directory.scores(model.number)
        scores[model.number] = ModelScores.of(found, plan, f"model {model.number}")
    progress("collecting", len(models), len(models))
    arrays = base_scores(directory)
    base = None if arrays is None else ModelScores.of(arrays, plan, "the base model")
    return join_scores(plan, _texts(directory), scores, base)


def _texts(directory: SweepDirectory) -> list[str]:
    """The texts with coins, as they are in the corpus."""
    candidates = {entry.id: entry.text for entry in directory.manifest.entries}
    return [
        candidates[text.id] if text.document is None else directory.corpus.texts[text.document]
        for text in directory.plan.scored
    ]
