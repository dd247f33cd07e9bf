"""The models that are trained before the one that is kept, and teach it."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lmexposure.canaries import derive_seed
from lmexposure.errors import CorpusError
from lmexposure.models.batches import Batches, steps_per_epoch
from lmexposure.models.checkpoints import Progress, ProgressCallback
from lmexposure.models.load import LoadedModel
from lmexposure.studies import OF_METHOD, PLAIN, TrainingSettings

TEACHERS = "teachers"  # a directory each, while the training is under way


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """One of the models that teach."""

    # with the initial weights of the one that is taught, in an object of its own
    loaded: LoadedModel
    rows: Batches  # that it is trained on
    settings: TrainingSettings  # a plain training, with a seed of its own
    out: Path  # its directory
    progress: ProgressCallback | None  # of the whole training


def taught(
    loaded: LoadedModel,
    rows: Sequence[Batches],
    settings: TrainingSettings,
    out: Path,
    *,
    after: int,
    progress: ProgressCallback | None,
    train: Callable[[Lesson], Path],
) -> tuple[list[Path], ProgressCallback | None]:
    """Train the teachers, or find those that are trained; as often called, as often the same."""
    steps = [steps_per_epoch(len(own), settings.batch_size) * settings.epochs for own in rows]
    total = sum(steps) + after
    empty = [place for place, own in enumerate(rows) if not len(own)]
    if empty:
        raise CorpusError(
            f"teacher {empty[0]} of {len(rows)} has no rows at all; give a larger corpus, or fewer "
            "models that teach"
        )
    models = []
    for place, own in enumerate(rows):
        lesson = Lesson(
            loaded=replace(loaded, model=copy.deepcopy(loaded.model)),
            rows=own,
            settings=_plain(settings, place),
            out=out / TEACHERS / str(place),
            progress=_shifted(progress, sum(steps[:place]), total),
        )
        models.append(train(lesson))
    return models, _shifted(progress, sum(steps), total)


def _plain(settings: TrainingSettings, place: int) -> TrainingSettings:
    """The same without the settings of the method, which a plain training refuses."""
    usual = TrainingSettings()
    own = {name: getattr(usual, name) for name in OF_METHOD[settings.method]}
    seed = derive_seed(settings.seed, "teacher", str(place))
    own |= {"method": PLAIN, "seed": seed, "snapshot_epochs": (), "max_steps": None}
    plain: TrainingSettings = replace(settings, **own)
    return plain


def _shifted(progress: ProgressCallback | None, done: int, total: int) -> ProgressCallback | None:
    """Progress of one model as that of all of them."""
    if progress is None:
        return None

    def tell(of_one: Progress) -> None:
        progress(replace(of_one, step=done + of_one.step, total_steps=total))

    return tell
