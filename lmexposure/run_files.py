"""A finished run on the disk: read as one, and refused where its files are torn or do not agree.

The gate and the report begin here, so nothing heavy is imported: scores are read when asked for.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import sha256_file
from lmexposure._integrity import CONTENT, take_hash
from lmexposure.canaries.manifest import Manifest
from lmexposure.errors import ManifestError, ResultError
from lmexposure.provenance import Provenance, date_in, is_measurement
from lmexposure.result_checks import ROLES, ROUNDING, wrong_part
from lmexposure.results import MEASURE_AGAIN, Result, foreign, plain, read_result

__all__ = ["RunFiles", "Scores", "open_run"]

_DRAWN = ("canary", "control")
_TEXT_COLUMNS = ("id", "format", "role")
# A measurement makes its scores again where they do not fit.
_SAME_COMMAND = "give the command that measured it again, or measure with another --out"
_SAME_BITS = 1e-3  # what a log-perplexity may differ by, all conditions being equal


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """The columns of scores.parquet: one row per candidate, control and reference.

    Attributes:
        ids, formats, roles: shape (N,); roles are "canary", "control", "excluded", "reference".
        repetitions: the class of a candidate, 0 for controls and references, shape (N,).
        log_perplexity_bits: bits, finite, shape (N,); lower = more memorised.
    """

    ids: NDArray[np.str_]
    formats: NDArray[np.str_]
    roles: NDArray[np.str_]
    repetitions: NDArray[np.int64]
    log_perplexity_bits: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class RunFiles:
    """What a run or a measurement left.

    Attributes:
        path: as it was given.
        name: of the directory, or of a result that stands alone.
        result: what was measured.
        manifest: what was inserted; None where it does not lie beside the result.
        record: run.json; None where there is none.
        metrics: rows of metrics.jsonl in order; for a model that was trained elsewhere those of
            exposure.jsonl, which `ExposureCallback` writes; empty without either.
        result_path: the file that `result` was read from.
        scores_path: where the scores would be; None for a result that stands alone.
        notes: what of it could not be read and decides no number.
    """

    path: Path
    name: str
    result: Result
    manifest: Manifest | None
    record: dict[str, Any] | None
    metrics: tuple[dict[str, Any], ...]
    result_path: Path
    scores_path: Path | None
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether it is a run, from insertion on, and not a measurement alone."""
        return self.record is not None and not is_measurement(self.record)

    @property
    def provenance(self) -> Provenance:
        """Which version measured which model, and when."""
        return Provenance.of(self.result, date_in(self.record))

    def scores(self) -> Scores | None:
        """The scores of every text; None where there is no scores.parquet.

        Raises:
            ResultError: a file that is torn, holds a number that is not finite, or does not agree
                with the result.
        """
        if self.scores_path is None or not self.scores_path.exists():
            return None
        _check_hash(self.scores_path, self.result.scores_sha256)
        scores = _read_scores(self.scores_path)
        _check_scores(self.scores_path, scores, self.result)
        return scores


def open_run(path: str | Path) -> RunFiles:
    """Read a run directory, what `lmexposure measure` wrote, or a result.json.

    A file of any other name stands alone: what lies beside it may belong to another result.

    Args:
        path: a directory with a result.json in it, or a result.

    Raises:
        ResultError: no result, a file that is torn or of a newer schema, a whole run (it has a
            run.json) without its manifest, numbers that are not finite.
        ManifestError: a manifest that cannot be read, or that the result was not made from.
    """
    path = Path(path)
    result_path = path / "result.json" if path.is_dir() else path
    _refuse_missing(path, result_path)
    result = _read_result(result_path)
    if result_path.name != "result.json":
        return RunFiles(
            path=path,
            name=path.stem,
            result=result,
            manifest=None,
            record=None,
            metrics=(),
            result_path=result_path,
            scores_path=None,
        )
    home = result_path.parent
    record = _read_record(home / "run.json")
    whole = record is not None and not is_measurement(record)
    metrics, notes = _read_metrics(home / "metrics.jsonl")
    if not metrics:
        metrics, more = _read_metrics(home / "exposure.jsonl")
        notes += more
    return RunFiles(
        path=path,
        name=home.resolve().name,
        result=result,
        manifest=_read_manifest(home / "manifest.json", result, whole=whole),
        record=record,
        metrics=metrics,
        notes=notes,
        result_path=result_path,
        scores_path=home / "scores.parquet",
    )


def _refuse_missing(path: Path, result_path: Path) -> None:
    if result_path.exists():
        return
    if not path.exists():
        raise ResultError(f"no run or result at {path}; make one: lmexposure run, or measure")
    begun = any((path / name).exists() for name in ("run.json", "manifest.json"))
    why = "the run did not finish: give its command again" if begun else "it is no run directory"
    raise ResultError(f"{path} holds no result.json; {why}")


def _read_result(path: Path) -> Result:
    """The result, if every number that others go on with is a number or plainly missing."""
    try:
        result = read_result(path)
    except (RecursionError, AttributeError) as failure:
        raise ResultError(
            f"{path} is no result ({type(failure).__name__}); {MEASURE_AGAIN}"
        ) from None
    problem = wrong_part(result)
    if problem:
        raise ResultError(f"{path}: {problem}; {MEASURE_AGAIN}")
    return result


def _read_record(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        record = plain(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError) as failure:
        raise ResultError(
            f"{path} is not readable JSON ({type(failure).__name__}); give the run's command again"
        ) from None
    if not isinstance(record, dict) or not isinstance(record.get("settings"), dict):
        raise ResultError(f"{path} holds no settings; give the run's command again")
    if not take_hash(record):
        raise ResultError(
            f"{path} does not fit its {CONTENT}: it was edited or damaged after it was written; "
            "give the run's command again"
        )
    strange = foreign(record)
    if strange:
        raise ResultError(f"{path} holds {strange}; give the run's command again")
    return record


def _read_manifest(path: Path, result: Result, *, whole: bool) -> Manifest | None:
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
            f"made from {str(result.manifest_sha256)[:16]}; take the manifest that was measured, "
            "or measure again"
        )
    return manifest


def _read_metrics(path: Path) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """(The rows that are whole, what is missing): they are a curve, and decide no number."""
    if not path.exists():
        return (), ()
    try:
        lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
    except OSError as failure:
        return (), (f"no training curve: cannot read {path.name}: {failure.strerror or failure}",)
    rows = [_row(line) for line in lines]
    whole = tuple(row for row in rows if row is not None)
    # A last line that a killed process left torn is none.
    lost = [number for number, row in enumerate(rows[:-1], 1) if row is None]
    if not lost:
        return whole, ()
    return whole, (
        f"the training curve is missing in part: {len(lost)} of {len(lines)} lines of {path.name} "
        f"are damaged, the first is line {lost[0]}",
    )


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = plain(json.loads(line))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and not foreign(row) else None


def _check_hash(path: Path, known: str | None) -> None:
    """Results of versions that wrote no hash of their scores go by the numbers alone."""
    if known is not None and sha256_file(path) != known:
        raise ResultError(
            f"{path} is not what its result was made with (its hash differs): edited or damaged; "
            f"{_SAME_COMMAND}"
        )


def _read_scores(path: Path) -> Scores:
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = [*_TEXT_COLUMNS, "repetitions", "log_perplexity_bits"]
    try:
        # Neither `read_table` nor `to_numpy`: both import pandas.
        with pq.ParquetFile(path) as file:
            table = file.read(columns=wanted)
        if any(table[name].null_count for name in wanted):
            raise ValueError("an empty cell")
        texts = [np.asarray(table[name].to_pylist(), dtype=str) for name in _TEXT_COLUMNS]
        copies = np.asarray(table["repetitions"].to_pylist(), dtype=np.int64)
        bits = np.asarray(table["log_perplexity_bits"].to_pylist(), dtype=np.float64)
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as failure:
        raise ResultError(
            f"{path} cannot be read as scores ({type(failure).__name__}): cut short, or of other "
            f"columns; {_SAME_COMMAND}"
        ) from None
    bad = int((~np.isfinite(bits)).sum())
    if bad:
        raise ResultError(
            f"{path}: {bad} of {bits.size} log-perplexities are not finite; {_SAME_COMMAND}"
        )
    if bits.size and bits.min() < -ROUNDING:
        raise ResultError(
            f"{path}: a log-perplexity is {bits.min():.3g} bits, and none is below 0; "
            f"{_SAME_COMMAND}"
        )
    ids, formats, roles = texts
    return Scores(
        ids=ids, formats=formats, roles=roles, repetitions=copies, log_perplexity_bits=bits
    )


def _check_scores(path: Path, scores: Scores, result: Result) -> None:
    """Scores of another measurement would draw another curve under this result's numbers."""
    problem = (
        _other_roles(scores)
        or _other_canaries(scores, result)
        or _other_counts(scores, result)
        or _other_references(scores, result)
    )
    if problem:
        raise ResultError(f"{path} does not agree with its result: {problem}; {_SAME_COMMAND}")


def _other_roles(scores: Scores) -> str | None:
    unknown = set(np.unique(scores.roles).tolist()) - set(ROLES)
    return f"{len(unknown)} roles are none of {', '.join(ROLES)}" if unknown else None


def _other_canaries(scores: Scores, result: Result) -> str | None:
    """The same canaries with the same bits."""
    drawn = np.isin(scores.roles, _DRAWN)
    here = dict(zip(scores.ids[drawn].tolist(), _rows(scores, drawn), strict=True))
    if here.keys() != {one.id for one in result.canaries} or int(drawn.sum()) != len(here):
        return f"it scores {int(drawn.sum())} canaries and controls, the result has others"
    for one in result.canaries:
        *what, bits = here[one.id]
        if what != [one.format, one.role, one.repetitions]:
            return f"{one.id!r} is another canary there"
        if one.log_perplexity_bits is not None and abs(bits - one.log_perplexity_bits) > _SAME_BITS:
            return f"{one.id!r} has {bits:.3f} bits there, not {one.log_perplexity_bits:.3f}"
    return None


def _rows(scores: Scores, chosen: NDArray[np.bool_]) -> Iterable[tuple[Any, ...]]:
    columns = (scores.formats, scores.roles, scores.repetitions, scores.log_perplexity_bits)
    return zip(*(column[chosen].tolist() for column in columns), strict=True)


def _other_counts(scores: Scores, result: Result) -> str | None:
    """As many fills never inserted as the result says it compared with."""
    others = Counter(scores.formats[~np.isin(scores.roles, _DRAWN)].tolist())
    for row in result.formats:
        n = others.get(row["name"], 0)
        if n != row["references"]:
            return f"it scores {n} references of {row['name']!r}, not {row['references']}"
    return None


def _other_references(scores: Scores, result: Result) -> str | None:
    """The least, the median and the largest of the references, as the result holds them."""
    never = ~np.isin(scores.roles, _DRAWN)
    for row in result.formats:
        known = row.get("reference_bits_quantiles")
        bits = scores.log_perplexity_bits[never & (scores.formats == row["name"])]
        if not known or not bits.size:
            continue
        here = np.quantile(bits, (0, 0.5, 1))
        there = np.array([known[0], known[len(known) // 2], known[-1]])
        if (np.abs(here - there) > _SAME_BITS).any():
            return f"the references of {row['name']!r} have other bits there"
    return None
