"""The directory of a run: run.json under way, a measurement's files, and the parts it keeps."""

import json
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field

from lmexposure import __version__, _written
from lmexposure._files import PRIVATE, read_bytes, sha256_file
from lmexposure._integrity import say_rebuilt
from lmexposure._record import Record
from lmexposure._settings import recorded_values
from lmexposure._validate import MOST_THREADS
from lmexposure.core import (
    HOME,
    Part,
    Work,
    claimed,
    refuse_other_study,
    refuse_other_wish,
    utc_now,
)
from lmexposure.errors import ResultError
from lmexposure.studies import (
    MeasureSettings,
    Result,
    RunRecord,
    RunSettings,
    TrainingResult,
)

_PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "datasets", "numpy", "scipy")
SCORES = "scores.parquet"
_WRITTEN = (
    *("run.json", "corpus", "training.json", "checkpoint.pt", "metrics.jsonl", "model"),
    *("best-[0-9]*", "result.json", SCORES, HOME, "report.html", "report.md"),
)
_MEASURED = ("run.json", SCORES)
_BESIDE = ("training.json", "run.json")  # what a measurement may lie next to
_THREADS = "threads"
# What `insert` and the demo may have left in a directory that becomes a run.
_MAY_BE_THERE = {"manifest.json", "corpus", "source"}
# What a training writes once it has taken a step, or a measurement.
_OF_STEPS = ("checkpoint.pt", "training.json", "model", "metrics.jsonl", "result.json", HOME)


@dataclass(kw_only=True)
class RunLog:
    """What run.json says of a run that is under way."""

    out: Path  # the run directory
    settings: RunSettings  # of the run
    corpus: str | None = None  # its path from `out`, where it is known
    # seconds by step, of the call that did the step
    timings: dict[str, float] = field(default_factory=dict)
    # other settings took the place of those of a run that never trained a step
    begun_anew: bool = False

    @classmethod
    def open(cls, out: Path, settings: RunSettings) -> "RunLog":
        """Begin a run directory, or go on with one of the same settings."""
        path = out / "run.json"
        refuse_other_study(out, (Result.NAME, *_BESIDE), "run")
        if path.exists():
            same = _same_run(path, settings)
            _written.refuse_foreign(out, _WRITTEN)
            return cls(out=out, settings=settings, timings=same or {}, begun_anew=same is None)
        if out.exists() and not out.is_dir():
            raise ResultError(f"{out} is a file; choose a directory for the run")
        strange = sorted(p.name for p in out.iterdir()) if out.exists() else []
        strange = [name for name in strange if name not in _MAY_BE_THERE and name[0] != "."]
        if strange:
            raise ResultError(
                f"{out} holds {strange[0]!r} and no run.json, so it is no run directory; "
                "choose a new one"
            )
        _written.refuse_foreign(out, _WRITTEN)
        return cls(out=out, settings=settings)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step; a step that was skipped as already done keeps its first time."""
        begun = time.perf_counter()
        yield
        self.timings.setdefault(name, round(time.perf_counter() - begun, 3))
        self.write()

    def write(self, *, device: str | None = None, training: TrainingResult | None = None) -> None:
        """Write run.json; device and training are known at the end."""
        path = self.out / "run.json"
        before = _readable(path)
        known = {
            "corpus": self.corpus,
            "seconds": self.timings,
            "measured": None if before is None else before.measured,  # the measuring wrote it
            "device": device,
            "training": training,
        }
        # With how many threads it was measured, the result says.
        record = _record(self.settings.resolved(), replace(self.settings.measure, threads=None))
        # A seed that was given is in it, and with seed and format the secrets can be drawn.
        with _written.study(self.out):
            record.model_copy(update=known).write(path, mode=PRIVATE)


def refuse_foreign(out: Path) -> None:
    """Refuse, before a measurement, a directory with files in its way that are not its own."""
    refuse_other_study(out, (Result.NAME, *_BESIDE), "measured")
    _written.refuse_foreign(out, (Result.NAME, HOME, *_MEASURED))


def record_measured(out: Path, measure: MeasureSettings) -> None:
    """Write into run.json that a measurement ends now."""
    path = out / "run.json"
    record = _readable(path)
    if record is None or record.command == "measure":
        record = _record(None, measure)
    # A run's model may have been measured by a command of its own, with other settings.
    asked = replace(measure, threads=record.measure.threads)
    record.model_copy(update={"measured": utc_now(), "measure": asked}).write(path, mode=PRIVATE)


def mend_record(out: Path, measure: MeasureSettings) -> None:
    """Begin a damaged run.json anew, of a measurement that ended before: its date is lost."""
    path = out / "run.json"
    if path.exists() and _readable(path) is None:
        say_rebuilt(path, "it is made again, without the date of the measuring")
        _record(None, replace(measure, threads=None)).write(path, mode=PRIVATE)


def _record(settings: RunSettings | None, measure: MeasureSettings) -> RunRecord:
    """A new record, with versions and machine; without settings, of a measurement alone."""
    return RunRecord(
        lmexposure=__version__,
        git_revision=_git_revision(),
        python=platform.python_version(),
        platform=platform.platform(),
        versions={name: metadata.version(name) for name in _PACKAGES},
        command="measure" if settings is None else "run",
        corpus=None,
        settings=settings,
        measure=measure,
        seconds={},
        measured=None,
        device=None,
        training=None,
    )


def _readable(path: Path) -> RunRecord | None:
    """A run.json; None where there is none that can be read."""
    try:
        return RunRecord.read(path)
    except ResultError:
        _refuse_version(path)
        return None


def _refuse_version(path: Path) -> None:
    """Another version's record may be whole, and is not written over."""
    try:
        values = json.loads(read_bytes(path))
    except (ValueError, OSError, RecursionError):
        return
    if isinstance(values, dict):
        RunRecord.refuse_version(values, path)


def set_aside(out: Path) -> Path:
    """Rename manifest and copies of a run that never trained; where they are."""
    number = 1
    while (home := out / f"before-{number}").exists():
        number += 1
    home.mkdir()
    for name in ("manifest.json", "corpus"):
        if (out / name).exists():
            (out / name).rename(home / name)
    return home


def _same_run(path: Path, settings: RunSettings) -> dict[str, float] | None:
    """The timings of the run that is here; refuse it when its settings differ."""
    try:
        before = RunRecord.read(path)
    except ResultError as failure:
        _refuse_version(path)
        if path.with_name("manifest.json").exists():
            # Manifest, training and result each refuse other settings than their own.
            say_rebuilt(path)
            return {}
        why = str(failure).removesuffix(f"; {RunRecord.AGAIN}")  # whoever gave the run's command
        raise ResultError(f"{why}; choose another directory") from failure
    old = _named(before.settings, before.measure)
    new = _named(settings.resolved(), settings.measure)
    made = any((path.parent / name).exists() for name in _OF_STEPS)
    if old != new and not made and "train" not in before.seconds:
        return None
    refuse_other_wish(Result, path.parent, old, new, {"seed"})
    return dict(before.seconds)


def _named(settings: RunSettings | None, measure: MeasureSettings) -> dict[str, Any]:
    """Settings by the names that a person gives them, but for the threads."""
    return {
        **({} if settings is None else recorded_values(settings)),
        **recorded_values(replace(measure, threads=None)),
    }


def _git_revision() -> str | None:
    """The commit of the directory that the command was called in, where it is a checkout."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


class _Threads(Record):
    """What the parts of a measurement were computed with."""

    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)]


def finished(out: Path, inputs: str) -> Result | None:
    """The result of these very inputs, if it is here, with its scores next to it."""
    path = out / Result.NAME
    if not path.exists():
        refuse_foreign(out)
        return None
    result = Result.read_alone(path)
    if result.inputs_sha256 != inputs:
        raise ResultError(
            f"{out} holds the result of another model, manifest or settings; "
            "choose another directory"
        )
    if not _scores_fit(out / SCORES, result) or _ended_early(result):
        return None
    _written.remove(out / HOME)  # which a kill at the very end may have left
    return result


def _scores_fit(path: Path, result: Result) -> bool:
    if not path.exists():
        return False
    if not path.is_file():
        raise ResultError(f"{path} is no file; move it away, and give the command again")
    if result.scores_sha256 == sha256_file(path):
        return True
    say_rebuilt(path, "the model is measured again")
    return False


@dataclass(frozen=True, kw_only=True)
class MeasurementDirectory:
    """Where a measurement is written, and what it keeps until it is whole."""

    work: Work[Result]

    @classmethod
    @contextmanager
    def held(cls, out: str | Path, inputs: str) -> Iterator[Self]:
        """Hold a directory for a measurement of inputs; of others it is begun anew."""
        with (
            claimed(Result, out, writes=_MEASURED, beside=_BESIDE) as held,
            held.work({"inputs": inputs}, anew=True) as work,
        ):
            yield cls(work=work)

    def begin(self, threads: int) -> None:
        """Write down how it is computed; that also shows that the disk takes it."""
        keep_part(self.work.part(_THREADS), _Threads(threads=threads))

    def threads(self) -> int | None:
        """With how many threads the parts here were computed; None where there are none."""
        known = read_part(self.work.part(_THREADS), _Threads)
        if known is None:
            self.work.drop()
            return None
        return known.threads

    def finish(self, result: Result, write_scores: Callable[[Path], None]) -> Result:
        """Write scores and the date, then the result that has their hash; then clear the parts."""
        out = self.work.out
        write_scores(out / SCORES)
        result = result.model_copy(update={"scores_sha256": sha256_file(out / SCORES)})
        # Before the result: who finds one does not measure again, and could not tell when it was.
        record_measured(out, result.settings)
        result.write(out / Result.NAME)
        if not _ended_early(result):  # else the same command goes on from the parts
            _written.remove(out / HOME)
        return result


def _ended_early(result: Result) -> bool:
    """Whether a person ended a search or an extraction early."""
    return any(form.interrupted for form in result.formats)


OTHER_VERSION = "is not as this version writes it"
_PartT = TypeVar("_PartT", bound=Record)


def keep_part(kept: Part | None, part: Record) -> None:
    """Keep a part of a measurement; without a place nothing is kept."""
    if kept is not None:
        kept.write(json.dumps(part.model_dump()).encode())


def read_part(kept: Part | None, kind: type[_PartT]) -> _PartT | None:
    """What `keep_part` wrote; None where there is nothing, or what is there is to be made again."""
    if kept is None or (content := kept.read()) is None:
        return None
    try:
        return kind.model_validate(json.loads(content))
    except (ValueError, RecursionError):
        say_rebuilt(kept.path, why=OTHER_VERSION)
        return None
