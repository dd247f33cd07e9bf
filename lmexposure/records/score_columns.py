"""Scores of any tool as columns of a CSV or Parquet file: who was in, and how it scored.

What stands in a cell is never shown: with a wrong column it may be a secret.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmexposure.errors import InputError
from lmexposure.records.scores import OLD_ROLES

_TRUE, _FALSE = ("1", "true", "yes", "in"), ("0", "false", "no", "out")

Columns = Mapping[str, Sequence[object]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreColumns:
    """What a file says of N texts.

    Attributes:
        scores: shape (N,), finite; higher = more likely in the training data.
        roles: "canary" was in, "held_out" is a candidate that was not, "reference" was never in
            and is no candidate, "control" is left aside; or whatever a column "role" says.
        repetitions: copies, shape (N,).
        formats: each one's format, shape (N,); empty names where the file has none.
    """

    scores: NDArray[np.float64]
    roles: NDArray[np.str_]
    repetitions: NDArray[np.float64]
    formats: NDArray[np.str_]


def read_score_file(
    path: str | Path,
    *,
    score: str | None = None,
    included: str | None = None,
    repetitions: int | None = None,
    lower_is_in: bool = False,
) -> ScoreColumns:
    """Read a CSV or Parquet file of scores.

    A file of this package, scores.parquet, needs no names: its roles say who was in. Columns
    "repetitions" and "format" keep classes apart. Of those that were not in, one with 0
    repetitions is a reference, any other a candidate that was left out.

    Args:
        path: a .csv file with a header, or a .parquet file.
        score: the column of scores; None: "log_perplexity_bits" where it is there, else "score".
        included: the column that says who was in, as true and false, 1 and 0, yes and no, in and
            out; None: "role" where it is there, else "included".
        repetitions: copies of each candidate, where no column "repetitions" says so; None: 1.
        lower_is_in: lower scores mean in, as of a loss; always so for log_perplexity_bits.

    Raises:
        InputError: a file that is missing or unreadable, a column that is not there, a cell that
            is no finite number or no yes or no; names the row, and shows no cell.
    """
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
        said = map(str, columns[included])
        roles = np.asarray([OLD_ROLES.get(role, role) for role in said], dtype=np.str_)
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
        raise ValueError(f"row {short} has {len(rows[short - 1])} cells under {len(header)} names")
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
