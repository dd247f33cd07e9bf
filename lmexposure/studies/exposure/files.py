"""What lies next to a result: read with it, and refused where files are torn or do not agree.

The gate begins here, so nothing heavy is imported: scores are read when asked for.
"""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lmexposure._files import is_held, read_bytes, sha256_file
from lmexposure._integrity import damaged_file
from lmexposure._style import short_hash, visible
from lmexposure.canaries import Manifest
from lmexposure.errors import ManifestError, ResultError
from lmexposure.studies.exposure.record import ResultNumbers
from lmexposure.studies.exposure.run_record import RunRecord, TrainingResult, read_training

if TYPE_CHECKING:
    from lmexposure.studies.verbatim import VerbatimRecord
    from lmexposure.studies.white_box import WhiteBoxAudit


_LOOK = "verbatim"  # directory of a run: which text of its corpus comes out of its model
_LARGEST = 1e15  # nothing in a curve comes near, and axes overflow long after
# What both run.json and result.json say of a training.
_OF_TRAINING = ("validation_bits", "initial_validation_bits", "best_epoch", "epochs", "stopped")
# A measurement makes its scores again where they do not fit.
SAME_COMMAND = "give the command that measured it again, or measure with another directory"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A point of a training's curve: a row of metrics.jsonl, or of exposure.jsonl."""

    # step, epoch: when; None where the row does not say
    step: int | None
    epoch: float | None
    # train_bits, validation_bits: losses in bits per token; None where not known
    train_bits: float | None
    validation_bits: float | None
    # tokens, seconds: trained on, and since the beginning; None where not known
    tokens: int | None = None
    seconds: float | None = None
    # median exposure in bits by class, as `ExposureCallback` writes it; empty else
    exposures: tuple[tuple[str, float | None], ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class RunFiles:
    """What lies next to a result; of one in memory its manifest alone, where it was given."""

    name: str  # of the directory, or of a result without one
    result: ResultNumbers  # that it lies next to
    manifest: Manifest | None = None  # what was inserted; None where it is not there
    record: RunRecord | None = None  # run.json; None where there is none
    # of the training in order, from metrics.jsonl, or for a model that was trained elsewhere from
    # exposure.jsonl; empty without either
    curve: tuple[Evaluation, ...] = ()
    notes: tuple[str, ...] = ()  # what could not be read of it, and decides no number
    # at memorised text of the same weights, from the run's directory `verbatim`; None where there
    # is none
    look: "VerbatimRecord | None" = None
    look_left_out: str = ""  # why one that is there says nothing of this result
    # scores of canaries in the gradients; None where there are none
    white_box: "WhiteBoxAudit | None" = None

    @property
    def whole(self) -> bool:
        """Whether it is a run, from insertion on, and not a measurement alone."""
        return self.record is not None and self.record.command == "run"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the result, what could not be read, and those of a look at memorised text."""
        look = () if self.look is None else self.look.warnings
        of_look = (f"memorised text: {line}" for line in look)
        return (*self.result.warnings, *self.notes, *of_look)

    def with_manifest(self, manifest: Manifest) -> "RunFiles":
        """The same with a manifest from elsewhere, which must be that of the result."""
        if manifest.sha256 != self.result.manifest_sha256:
            raise ManifestError(
                f"the manifest given has sha256 {manifest.sha256[:16]}, but {self.name} was made "
                f"from {self.result.manifest_sha256[:16]}; give the manifest that was measured"
            )
        return replace(self, manifest=manifest)


def files_beside(home: Path, result: ResultNumbers) -> RunFiles:
    """What lies next to a result, its directory `verbatim` too; refused where it is of another."""
    try:
        return _files_beside(home, result)
    except PermissionError as failure:
        raise ResultError(
            f"cannot read {visible(str(failure.filename))}, which lies next to {result.NAME}: it "
            "is its owner's alone; ask for a copy, or give result.json in a directory of its own"
        ) from failure


def _files_beside(home: Path, result: ResultNumbers) -> "RunFiles":
    lost = _refuse_other_model(home, result)
    scores = home / "scores.parquet"
    if os.access(scores, os.R_OK):  # they are for their owner alone, a result is for everyone
        refuse_other_scores(scores, result.scores_sha256)
    record = RunRecord.read(home / "run.json") if (home / "run.json").exists() else None
    if record is not None and not _is_of(record, result):
        raise ResultError(
            f"{home / 'run.json'} is of another run than {home / result.NAME}: its settings or its "
            "training differ; put back the one that belongs to it, or take it away"
        )
    whole = record is not None and record.command == "run"
    if whole and (home / "model").is_dir() and not (home / "training.json").exists():
        lost = (
            *lost,
            "training.json has gone, so the model here may not be the one that was measured",
        )
    curve, notes = read_curve(home / "metrics.jsonl")
    if not curve:
        curve, more = read_curve(home / "exposure.jsonl")
        notes += more
    look, left_out = _look_of(home, result)
    return RunFiles(
        name=home.resolve().name,
        result=result,
        manifest=_read_manifest(home / "manifest.json", result, whole=whole),
        record=record,
        curve=curve,
        notes=(*notes, *filter(None, [left_out]), *lost),
        look=look,
        look_left_out=left_out,
        white_box=_white_box(home / "white_box.json", result),
    )


def _white_box(path: Path, result: ResultNumbers) -> "WhiteBoxAudit | None":
    learned = result.model.validation
    claim = None if learned is None else learned.claim
    if claim is None or claim.white_box is None or not path.exists():
        return None
    from lmexposure.studies.white_box import WhiteBoxAudit

    audit = WhiteBoxAudit.read(path)
    if audit.bounds != claim.white_box:
        raise ResultError(
            f"{path} is of another training than {path.with_name(result.NAME)}; put back the one "
            "that belongs to it, or take it away"
        )
    return audit


def _is_of(record: RunRecord, result: ResultNumbers) -> bool:
    """Whether a run.json can be of the measurement that it lies next to."""
    asked = replace(record.measure, threads=None)  # asked for there, used here
    found = replace(result.settings, threads=None)
    known = result.model.validation
    claim = None if known is None else known.claim
    if asked != found and claim is not None and asked.claimed_epsilon is None:
        # Held against what the training promised, as a run is where no claim was given.
        asked = replace(asked, claimed_epsilon=claim.stated_epsilon, delta=claim.delta)
    return asked == found and (record.training is None or _alike(record.training, result))


def _alike(told: TrainingResult, result: ResultNumbers) -> bool:
    """Whether a training can be that of the measured model, as far as the result knows of it."""
    known = result.model.validation
    return known is None or all(getattr(told, n) == getattr(known, n) for n in _OF_TRAINING)


def _refuse_other_model(home: Path, result: ResultNumbers) -> tuple[str, ...]:
    """Refuse a model, or what its training wrote beside it, that was put there or changed since."""
    model, path = home / "model", home / "training.json"
    if result.model.path != model.name or not model.is_dir() or not path.exists():
        return ()
    training = read_training(path)
    strange = path if training is None else damaged_file(model, training.model_files)
    if strange is None and training is not None and not _alike(training.result, result):
        strange = path
    if strange is not None:
        raise ResultError(
            f"{visible(strange)} is not what the training wrote, so {home / 'result.json'} may be "
            "of another model; measure this model into another directory, or put the file back"
        )
    gone = () if training is None else training.refuse_strange(home)
    return tuple(f"{name} has gone since the training, and is left out" for name in gone)


def refuse_other_scores(path: Path, wanted: str | None) -> None:
    """Refuse scores that are not those of the result; of one without any, all are another's."""
    try:
        sha256 = sha256_file(path)
    except OSError as failure:
        raise ResultError(
            f"{path} is not readable ({failure.strerror or failure}); {SAME_COMMAND}"
        ) from failure
    if sha256 != wanted:
        raise ResultError(
            f"{path} is not what its result was made with (its hash differs): edited or damaged; "
            f"{SAME_COMMAND}"
        )


def _look_of(home: Path, result: ResultNumbers) -> "tuple[VerbatimRecord | None, str]":
    """The look at memorised text of a run, and why it is left out where it was at other weights."""
    look, home = read_look(home), home / _LOOK
    if look is None or look.model.weights_sha256 == result.model.weights_sha256:
        return look, ""
    return None, (
        f"{visible(str(home))} is left out: memorised text was looked for in weights "
        f"{short_hash(look.model.weights_sha256)}, and the canaries were measured in "
        f"{short_hash(result.model.weights_sha256)}; look again: lmexposure verbatim, on this "
        "model and in its precision"
    )


def read_look(home: Path) -> "VerbatimRecord | None":
    """The look at memorised text in a run's directory; None without, refused where damaged."""
    home = home / _LOOK
    if not (home / "verbatim.json").exists():
        if (home / "passages.json").exists():
            raise ResultError(
                f"{visible(str(home))} holds passages.json and no verbatim.json, so that what it "
                "found is lost; look again (lmexposure verbatim), or move the directory away"
            )
        return None
    from lmexposure.studies.verbatim import VerbatimRecord

    return VerbatimRecord.read(home)


def refuse_missing(path: Path, result_path: Path) -> None:
    """Say why there is no result."""
    if result_path.exists():
        return
    if not path.is_dir():
        raise ResultError(f"no run or result at {path}; make one: lmexposure run, or measure")
    begun = any((path / name).exists() for name in ("run.json", "manifest.json"))
    why = "the run did not finish: give its command again" if begun else "it is no run directory"
    if begun and is_held(path):
        why = "another process is at work there; wait until it has ended"
    raise ResultError(f"{path} holds no result.json; {why}")


def _read_manifest(path: Path, result: ResultNumbers, *, whole: bool) -> Manifest | None:
    if not path.exists():
        if whole:
            raise ResultError(
                f"{path.parent} has a run.json but no manifest.json, so the run is not whole; "
                "put the manifest back, or give its result.json a directory of its own"
            )
        return None
    manifest = Manifest.read(path)
    if manifest.sha256 != result.manifest_sha256:
        raise ManifestError(
            f"{path} has sha256 {manifest.sha256[:16]}, but {path.with_name('result.json')} was "
            f"made from {result.manifest_sha256[:16]}; take the manifest that was measured, "
            "or measure again"
        )
    return manifest


def read_curve(path: Path) -> tuple[tuple[Evaluation, ...], tuple[str, ...]]:
    """The rows that are whole, and what is missing: they are a curve, and decide no number."""
    if not path.exists():
        return (), ()
    try:
        lines = [line for line in read_bytes(path).split(b"\n") if line.strip()]
    except OSError as failure:
        return (), (f"no training curve: cannot read {path.name}: {failure.strerror or failure}",)
    rows = [_evaluation(line) for line in lines]
    whole = tuple(row for row in rows if row is not None)
    # A last line that a killed process left torn is none.
    lost = [number for number, row in enumerate(rows[:-1], 1) if row is None]
    if not lost:
        return whole, ()
    return whole, (
        f"the training curve is missing in part: {len(lost)} of {len(lines)} lines of {path.name} "
        f"are damaged, the first is line {lost[0]}",
    )


def _evaluation(line: bytes) -> Evaluation | None:
    """A row; None where it is damaged."""
    try:
        row: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    exposures = row.get("exposure")
    return Evaluation(
        step=_count(row.get("step")),
        epoch=_finite(row.get("epoch")),
        train_bits=_finite(row.get("train_bits_per_token")),
        validation_bits=_finite(row.get("validation_bits_per_token")),
        tokens=_count(row.get("tokens")),
        seconds=_finite(row.get("seconds")),
        exposures=tuple((str(name), _finite(bits)) for name, bits in exposures.items())
        if isinstance(exposures, dict)
        else (),
    )


def _count(value: object) -> int | None:
    """A whole number; None for anything else."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _LARGEST else None


def _finite(value: object) -> float | None:
    """A number that a chart can show; None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if -_LARGEST <= value <= _LARGEST else None
