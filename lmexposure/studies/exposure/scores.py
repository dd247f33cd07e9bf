"""Scores of every text: scores.parquet of a measurement, and columns of anyone's file."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import PRIVATE, atomic_write, open_regular
from lmexposure._record import ROUNDING
from lmexposure.errors import InputError, ResultError
from lmexposure.studies.exposure.files import SAME_COMMAND, refuse_other_scores
from lmexposure.studies.exposure.record import ResultNumbers

_ROLES = ("canary", "control", "held_out", "reference")
_BASE = "base_log_perplexity_bits"
_TEXT_COLUMNS = ("id", "format", "role")


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """The columns of scores.parquet: one row per candidate, control and reference."""

    # ids, formats, roles: shape (N,); roles are "canary", "control", "held_out", "reference"
    ids: NDArray[np.str_]
    formats: NDArray[np.str_]
    roles: NDArray[np.str_]
    # the class of a candidate, 0 for controls and references, shape (N,)
    repetitions: NDArray[np.int64]
    log_perplexity_bits: NDArray[np.float64]  # bits, finite, shape (N,); lower = more memorised
    # the same under the base model; None where none was measured
    base_log_perplexity_bits: NDArray[np.float64] | None = None


def read_scores(path: str | Path, result: ResultNumbers) -> Scores:
    """The scores that a result was made from."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    refuse_other_scores(path, result.scores_sha256)
    wanted = [*_TEXT_COLUMNS, "repetitions", "log_perplexity_bits"]
    try:
        # Neither `read_table` nor `to_numpy`: both import pandas. A stream, for the path may not
        # be UTF-8.
        with open_regular(path) as stream, pq.ParquetFile(stream) as file:
            wanted += [_BASE] * (_BASE in file.schema_arrow.names)
            table = file.read(columns=wanted)
        if any(table[name].null_count for name in wanted):
            raise ValueError("an empty field")
        texts = [np.asarray(table[name].to_pylist(), dtype=str) for name in _TEXT_COLUMNS]
        copies = np.asarray(table["repetitions"].to_pylist(), dtype=np.int64)
        bits, *base = [np.asarray(table[name].to_pylist(), dtype=np.float64) for name in wanted[4:]]
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as failure:
        raise ResultError(
            f"{path} cannot be read as scores ({type(failure).__name__}): cut short, or of other "
            f"columns; {SAME_COMMAND}"
        ) from None
    for column in (bits, *base):
        bad = int((~np.isfinite(column)).sum())
        if bad:
            raise ResultError(
                f"{path}: {bad} of {column.size} log-perplexities are not finite; {SAME_COMMAND}"
            )
        if column.size and column.min() < -ROUNDING:
            raise ResultError(
                f"{path}: a log-perplexity is {column.min():.3g} bits, and none is below 0; "
                f"{SAME_COMMAND}"
            )
    ids, formats, roles = texts
    unknown = set(np.unique(roles).tolist()) - set(_ROLES)
    if unknown:
        raise ResultError(
            f"{path}: {len(unknown)} roles are none of {', '.join(_ROLES)}; {SAME_COMMAND}"
        )
    return Scores(
        ids=ids,
        formats=formats,
        roles=roles,
        repetitions=copies,
        log_perplexity_bits=bits,
        base_log_perplexity_bits=base[0] if base else None,
    )


def write_score_table(
    path: Path, scores: Scores, **more: NDArray[np.float64] | NDArray[np.int64]
) -> None:
    """Write scores.parquet: one row per candidate, control and reference; no secrets."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "id": scores.ids,
        "format": scores.formats,
        "role": scores.roles,
        "repetitions": scores.repetitions,
        "log_perplexity_bits": scores.log_perplexity_bits,
        **more,
    }
    if scores.base_log_perplexity_bits is not None:
        columns[_BASE] = scores.base_log_perplexity_bits
    with atomic_write(path, mode=PRIVATE) as stream:
        pq.write_table(pa.table(columns), stream)


_TRUE, _FALSE = ("1", "true", "yes", "in"), ("0", "false", "no", "out")

Columns = Mapping[str, Sequence[object]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreColumns:
    """What a file says of N texts."""

    scores: NDArray[np.float64]  # shape (N,), finite; higher = more likely in the training data
    # "canary" was in, "held_out" is a candidate that was not, "reference" was never in and is no
    # candidate, "control" is left aside; or whatever a column "role" says
    roles: NDArray[np.str_]
    repetitions: NDArray[np.float64]  # copies, shape (N,)
    formats: NDArray[np.str_]  # each one's format, shape (N,); empty names where the file has none


def read_score_file(
    path: str | Path,
    *,
    score: str | None = None,
    included: str | None = None,
    repetitions: int | None = None,
    lower_is_in: bool = False,
) -> ScoreColumns:
    """Read a CSV or Parquet file of scores."""
    path = Path(path)
    columns = _columns(path)
    score = score or _first_there(columns, ("log_perplexity_bits", "score"))
    by_role = included is None and "role" in columns
    included = included or _first_there(columns, ("role", "included"))
    for name in (score, included):
        if name not in columns:
            raise InputError(
                f"{path} has no column {name!r}; it has {', '.join(sorted(columns))} (names are "
                "case-sensitive)"
            )
    values = _numbers(path, score, columns[score])
    if lower_is_in or score == "log_perplexity_bits":
        values = -values
    copies = _copies(path, columns, repetitions)
    if by_role:
        roles = np.asarray([str(role) for role in columns[included]], dtype=np.str_)
    else:
        inside = _truths(path, included, columns[included])
        roles = np.where(inside, "canary", np.where(copies == 0, "reference", "held_out"))
    formats = np.asarray(columns.get("format", [""] * len(values)), dtype=str)
    return ScoreColumns(scores=values, roles=roles, repetitions=copies, formats=formats)


def _copies(path: Path, columns: Columns, repetitions: int | None) -> NDArray[np.float64]:
    if "repetitions" not in columns:
        length = len(next(iter(columns.values())))
        return np.full(length, 1.0 if repetitions is None else float(repetitions))
    if repetitions is not None:
        raise InputError(
            f"{path} has a column 'repetitions', which says how often; leave repetitions="
            f"{repetitions} out"
        )
    return _numbers(path, "repetitions", columns["repetitions"])


def _columns(path: Path) -> Columns:
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"{path} must be a .csv file with a header or a .parquet file")
    if not path.is_file():
        raise InputError(f"no file at {path}" + (": a directory" if path.is_dir() else ""))
    try:
        columns = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; write it again as UTF-8") from None
    except (OSError, ValueError, csv.Error) as failure:
        raise InputError(f"{path} cannot be read ({failure}); write it again") from failure
    if not columns or not len(next(iter(columns.values()))):
        raise InputError(f"{path} holds no scores")
    return columns


def _csv(path: Path) -> Columns:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        header = [name.strip() for name in next(reader, [])]
        if len(set(header)) < len(header):
            raise ValueError("two columns of one name")
        if len(header) == 1 and ";" in header[0]:
            raise ValueError("one column, and its name holds semicolons: separate by commas")
        rows = [row for row in reader if row]
    short = next((i for i, row in enumerate(rows, 1) if len(row) != len(header)), None)
    if short is not None:
        raise ValueError(f"row {short} has {len(rows[short - 1])} values under {len(header)} names")
    return dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else {}


def _parquet(path: Path) -> Columns:
    import pyarrow.parquet as pq
    from pyarrow.types import is_nested

    # Neither `read_table` nor, but for cells that hold lists, `to_numpy`: both import pandas.
    with pq.ParquetFile(path) as file:
        table = file.read()
    if len(set(table.column_names)) < table.num_columns:
        raise ValueError("two columns of one name")
    return {
        name: column.to_numpy() if is_nested(column.type) else column.to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def _first_there(columns: Columns, names: tuple[str, str]) -> str:
    return names[0] if names[0] in columns else names[1]


def _numbers(path: Path, name: str, cells: Sequence[object]) -> NDArray[np.float64]:
    try:
        values = np.asarray(cells, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array([_number(cell) for cell in cells])
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise InputError(
            f"{path}, row {bad[0] + 1}, column {name!r} holds no finite number ({bad.size} of "
            f"{values.size} rows do not); a missing score cannot be dropped: score it again"
        )
    return values


def _number(cell: object) -> float:
    try:
        return float(str(cell))
    except (TypeError, ValueError):
        return float("nan")


def _truths(path: Path, name: str, cells: Sequence[object]) -> NDArray[np.bool_]:
    given = np.asarray(cells)
    if given.dtype == bool:
        return given
    words, where = np.unique(np.asarray(cells, dtype=str), return_inverse=True)
    plain = [word.strip().lower() for word in words.tolist()]
    truths = np.array([word in _TRUE or _number(word) == 1 for word in plain])
    known = truths | np.array([word in _FALSE or _number(word) == 0 for word in plain])
    if not known.all():
        row = int(np.flatnonzero(~known[where])[0]) + 1
        raise InputError(
            f"{path}, row {row}, column {name!r} must say who was in: one of "
            f"{', '.join(_TRUE + _FALSE)}"
        )
    inside: NDArray[np.bool_] = truths[where]
    return inside
