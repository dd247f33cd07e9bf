"""Several checkpoints of one training: how exposure grew, measured one after the other."""

import gc
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lmexposure._files import (
    PRIVATE,
    atomic_write,
    canonical_json,
    only_writer,
    read_bytes,
    sha256_bytes,
)
from lmexposure.audit.directory import SCORES, MeasurementDirectory, finished, refuse_foreign
from lmexposure.audit.measurement import measure
from lmexposure.audit.workload import Progress, silent
from lmexposure.canaries import Manifest, Wrapping
from lmexposure.errors import ModelError, ResultError, SettingsError
from lmexposure.models import LoadedModel, check_name, load_model, model_outline
from lmexposure.studies import CheckpointClass, MeasureSettings, Result, RowsRecord

_PARTS = "checkpoints"  # the directory of each checkpoint's own measurement, below that of all
_STATE = "trainer_state.json"
_TITLE = "checkpoints"


@dataclass(frozen=True, kw_only=True)
class _Checkpoint:
    """One of the models."""

    model: str  # its directory or hub name
    name: str  # of its directory
    # of the training; None where neither the training's own file nor the name says it
    step: int | None


def measure_checkpoints(  # noqa: PLR0913 (as of `measure`)
    models: Sequence[str | Path],
    manifest: str | Path | Manifest,
    *,
    out: str | Path | None = None,
    settings: MeasureSettings | None = None,
    rows: RowsRecord | str | Path | None = None,
    progress: Progress | None = None,
    load: Callable[[str], LoadedModel] = load_model,
    wrapping: Wrapping | None = None,
) -> Result:
    """Measure each checkpoint of a training as `measure` does: a trajectory of exposure."""
    checkpoints = _in_order(models)
    _check_alike(checkpoints)
    progress = silent if progress is None else progress
    measured = partial(measure, manifest=manifest, settings=settings, rows=rows, wrapping=wrapping)
    if out is None:
        results = _results(checkpoints, None, progress, load, measured)
        return _joined(list(results))
    with only_writer(out):
        _refuse_another(Path(out))
        parts = Path(out) / _PARTS
        results = _results(checkpoints, parts, progress, load, measured)
        return _written(Path(out), parts / checkpoints[-1].name, _joined(list(results)))


def _in_order(models: Sequence[str | Path]) -> list[_Checkpoint]:
    if isinstance(models, str | Path) or not models:
        raise SettingsError(
            f"models={models!r} are no checkpoints; give a list of one or more directories"
        )
    found = []
    for model in models:
        path = Path(model)
        name = path.resolve().name if path.is_dir() else path.name
        found.append(_Checkpoint(model=str(model), name=name, step=_step(path, name)))
    name, times = Counter(checkpoint.name for checkpoint in found).most_common(1)[0]
    if times > 1:
        raise SettingsError(
            f"{times} of the models lie in a directory of the name {name!r}, under which each is "
            "kept and shown; give each once, and rename those that differ"
        )
    return sorted(found, key=lambda c: (c.step is None, c.step or 0))


def _step(path: Path, name: str) -> int | None:
    """From what a Trainer wrote next to the weights, else from the end of the name."""
    try:
        step = json.loads(read_bytes(path / _STATE))["global_step"]
    except (OSError, ValueError, LookupError, TypeError):
        number = re.search(r"(\d{1,15})$", name)
        return int(number[1]) if number else None
    return step if isinstance(step, int) and step >= 0 else None


def _check_alike(checkpoints: Sequence[_Checkpoint]) -> None:
    """Refuse, before any work, what cannot be loaded or is no checkpoint of the same training."""
    # Of a hub name nothing is asked before it is loaded.
    outlines = [model_outline(c.model) if check_name(c.model) else {} for c in checkpoints]
    for checkpoint, outline in zip(checkpoints, outlines, strict=True):
        for what, value in outline.items():
            if value != outlines[0][what]:
                raise ModelError(
                    f"model {checkpoint.model!r} has another {what} than "
                    f"{checkpoints[0].model!r}, so they are no checkpoints of one training; "
                    "measure them apart"
                )


def _results(
    checkpoints: Sequence[_Checkpoint],
    parts: Path | None,
    progress: Progress,
    load: Callable[[str], LoadedModel],
    measured: Callable[..., Result],
) -> Iterator[tuple[_Checkpoint, Result]]:
    for number, checkpoint in enumerate(checkpoints):
        progress(_TITLE, number, len(checkpoints), checkpoint.name)
        if number:
            gc.collect()  # two large models do not fit into memory
        loaded = load(checkpoint.model)
        out = None if parts is None else parts / checkpoint.name
        result = measured(loaded, out=out, progress=progress)
        del loaded
        yield checkpoint, result
    progress(_TITLE, len(checkpoints), len(checkpoints), "")


def _joined(results: Sequence[tuple[_Checkpoint, Result]]) -> Result:
    """The last result, with the classes of all, under a hash of all that decides these numbers."""
    last = results[-1][1]
    rows = [
        CheckpointClass(
            checkpoint=checkpoint.name,
            step=checkpoint.step,
            format=row.format,
            repetitions=row.repetitions,
            n=row.n,
            median=row.median.value,
            low=row.median.low,
            high=row.median.high,
            exact=row.counted,
        )
        for checkpoint, result in results
        for row in result.summary
    ]
    inputs = [[checkpoint.name, result.inputs_sha256] for checkpoint, result in results]
    joined = last.model_copy(
        update={
            "trajectory": tuple(rows),
            "inputs_sha256": sha256_bytes(canonical_json({_PARTS: inputs})),
        }
    )
    return joined if last.scores is None else joined.with_scores(last.scores)


def _refuse_another(out: Path) -> None:
    """Refuse, before any work, a directory with the result of a single model, or another tool's."""
    path = out / Result.NAME
    if not path.exists():
        refuse_foreign(out)
    elif not Result.read_alone(path).trajectory:
        raise ResultError(
            f"{out} holds the result of a single model; choose another directory for the trajectory"
        )


def _written(out: Path, last: Path, result: Result) -> Result:
    def copy_scores(target: Path) -> None:
        with atomic_write(target, mode=PRIVATE) as stream, open(last / SCORES, "rb") as scores:
            shutil.copyfileobj(scores, stream)

    before = finished(out, result.inputs_sha256)
    if before is not None:
        return before
    with MeasurementDirectory.held(out, result.inputs_sha256) as directory:
        return directory.finish(result, copy_scores)
