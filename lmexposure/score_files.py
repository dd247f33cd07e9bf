"""Scores of any tool as columns of a CSV or Parquet file: who was in, and how it scored."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.errors import InputError

__all__ = ["ScoreClass", "read_score_file"]

_TRUE, _FALSE = ("1", "true", "yes", "in"), ("0", "false", "no", "out")
_ROLES = {"canary": True, "excluded": False, "reference": False}  # a control is neither


@dataclass(frozen=True, kw_only=True)
class ScoreClass:
    """The scores of one class of repetitions.

    Attributes:
        scores: one per candidate, shape (m,); higher = more likely in the training data.
        included: whether it was in, shape (m,).
        references: scores of texts that no coin was tossed for and that were never in, shape (n,).
        repetitions: copies of each candidate that went in.
    """

    scores: NDArray[np.float64]
    included: NDArray[np.bool_]
    references: NDArray[np.float64]
    repetitions: int


def read_score_file(
    path: str | Path,
    *,
    score: str | None = None,
    included: str | None = None,
    repetitions: int = 1,
    lower_is_in: bool = False,
) -> list[ScoreClass]:
    """Read the columns of a CSV or Parquet file.

    A file of this package, scores.parquet, needs no names: its roles say who was in, and its
    classes of repetitions stay apart.

    Args:
        path: a .csv file with a header, or a .parquet file.
        score: the column of scores; None: "log_perplexity_bits" where it is there, else "score".
        included: the column that says who was in, as true and false, 1 and 0, yes and no, in and
            out; None: "role" where it is there, else "included".
        repetitions: copies of each candidate, where no column "repetitions" says so.
        lower_is_in: lower scores mean in, as of a loss; always so for log_perplexity_bits.

    Returns:
        A class for each number of repetitions, ascending.

    Raises:
        InputError: a file that is missing or unreadable, a column that is not there, a cell that
            is no finite number or no yes or no; names the row.
    """
    path = Path(path)
    columns = _columns(path)
    role = included is None and "role" in columns
    score = score or _first_there(columns, ("log_perplexity_bits", "score"))
    included = included or _first_there(columns, ("role", "included"))
    for name in (score, included):
        if name not in columns:
            raise InputError(f"{path} has no column {name!r}; it has {', '.join(sorted(columns))}")
    values = _numbers(path, score, columns[score])
    if lower_is_in or score == "log_perplexity_bits":
        values = -values
    if role:
        return _by_role(path, columns, values)
    inside = np.array([_truth(path, included, i, v) for i, v in enumerate(columns[included], 1)])
    copies = np.full(len(values), repetitions)
    if "repetitions" in columns:
        copies = _numbers(path, "repetitions", columns["repetitions"]).astype(np.int64)
    return [
        ScoreClass(
            scores=values[copies == count],
            included=inside[copies == count],
            references=np.empty(0),
            repetitions=int(count),
        )
        for count in np.unique(copies)
    ]


def _by_role(
    path: Path, columns: dict[str, Sequence[Any]], values: NDArray[np.float64]
) -> list[ScoreClass]:
    """Canaries and excluded candidates of each class, and all references beside each."""
    role = np.array([str(one) for one in columns["role"]])
    unknown = sorted(set(role) - {*_ROLES, "control"})
    if unknown or "repetitions" not in columns:
        raise InputError(
            f"{path} has a column 'role' with {unknown or 'no column repetitions beside it'}; "
            "name the column that says who was in: --included NAME"
        )
    copies = _numbers(path, "repetitions", columns["repetitions"]).astype(np.int64)
    tossed = (role == "canary") | (role == "excluded")
    return [
        ScoreClass(
            scores=values[tossed & (copies == count)],
            included=role[tossed & (copies == count)] == "canary",
            references=values[role == "reference"],
            repetitions=int(count),
        )
        for count in np.unique(copies[tossed])
    ]


def _columns(path: Path) -> dict[str, Sequence[Any]]:
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"{path} must be a .csv file with a header or a .parquet file")
    try:
        columns = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    except FileNotFoundError:
        raise InputError(f"no file at {path}") from None
    except (OSError, ValueError, csv.Error) as failure:
        raise InputError(f"{path} cannot be read ({failure}); write it again") from failure
    if not columns or not len(next(iter(columns.values()))):
        raise InputError(f"{path} holds no scores")
    return columns


def _csv(path: Path) -> dict[str, Sequence[Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        header = [name.strip() for name in next(reader, [])]
        if len(set(header)) < len(header):
            raise ValueError(f"two columns of one name among {header}")
        rows = [row for row in reader if row]
    short = next((i for i, row in enumerate(rows, 1) if len(row) != len(header)), None)
    if short is not None:
        raise ValueError(f"row {short} has {len(rows[short - 1])} cells under {len(header)} names")
    return dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else {}


def _parquet(path: Path) -> dict[str, Sequence[Any]]:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def _first_there(columns: dict[str, Sequence[Any]], names: tuple[str, str]) -> str:
    return names[0] if names[0] in columns else names[1]


def _numbers(path: Path, name: str, cells: Sequence[Any]) -> NDArray[np.float64]:
    try:
        values = np.asarray(cells, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array([_number(cell) for cell in cells])
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise InputError(
            f"{path}, row {bad[0] + 1}, column {name!r}: {cells[bad[0]]!r} is no finite number "
            f"({bad.size} of {values.size} are not); a missing score cannot be dropped: score "
            "it again"
        )
    return values


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return float("nan")


def _truth(path: Path, name: str, row: int, cell: Any) -> bool:
    word = str(cell).strip().lower().removesuffix(".0")
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise InputError(
        f"{path}, row {row}, column {name!r}: {cell!r} must be one of {', '.join(_TRUE + _FALSE)}"
    )
