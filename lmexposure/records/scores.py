"""scores.parquet: the log-perplexity of every canary, control and reference of a measurement."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import PRIVATE, atomic_write, sha256_file
from lmexposure.errors import ResultError
from lmexposure.records.result import ROUNDING, Result

_DRAWN = ("canary", "control")
_ROLES = (*_DRAWN, "held_out", "reference")
OLD_ROLES = {"excluded": "held_out"}  # as results before version 2 have it
_TEXT_COLUMNS = ("id", "format", "role")
# A measurement makes its scores again where they do not fit.
_SAME_COMMAND = "give the command that measured it again, or measure with another directory"
_SAME_BITS = 1e-3  # what a log-perplexity may differ by, all conditions being equal


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """The columns of scores.parquet: one row per candidate, control and reference.

    Attributes:
        ids, formats, roles: shape (N,); roles are "canary", "control", "held_out", "reference".
        repetitions: the class of a candidate, 0 for controls and references, shape (N,).
        log_perplexity_bits: bits, finite, shape (N,); lower = more memorised.
    """

    ids: NDArray[np.str_]
    formats: NDArray[np.str_]
    roles: NDArray[np.str_]
    repetitions: NDArray[np.int64]
    log_perplexity_bits: NDArray[np.float64]


def read_scores(path: str | Path, result: Result) -> Scores:
    """The scores that a result was made from.

    Args:
        path: of scores.parquet.
        result: that lies next to it.

    Raises:
        ResultError: a file that is torn, was edited, holds a number that is not finite, or does
            not agree with the result.
    """
    path = Path(path)
    _check_hash(path, result.scores_sha256)
    scores = _read_columns(path)
    _check_scores(path, scores, result)
    return scores


def write_score_table(
    path: Path, scores: Scores, **more: NDArray[np.float64] | NDArray[np.int64]
) -> None:
    """Write scores.parquet: one row per candidate, control and reference; no secrets.

    Args:
        path: where.
        scores: what every reader needs.
        more: further columns, shape (N,).

    Raises:
        FileError: the disk refused.
    """
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
    with atomic_write(path, mode=PRIVATE) as stream:
        pq.write_table(pa.table(columns), stream)


def _check_hash(path: Path, known: str | None) -> None:
    """Results of versions that wrote no hash of their scores go by the numbers alone."""
    try:
        found = known if known is None else sha256_file(path)
    except OSError as failure:
        raise ResultError(
            f"{path} is not readable ({failure.strerror or failure}); {_SAME_COMMAND}"
        ) from failure
    if found != known:
        raise ResultError(
            f"{path} is not what its result was made with (its hash differs): edited or damaged; "
            f"{_SAME_COMMAND}"
        )


def _read_columns(path: Path) -> Scores:
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = [*_TEXT_COLUMNS, "repetitions", "log_perplexity_bits"]
    try:
        # Neither `read_table` nor `to_numpy`: both import pandas. A stream, for the path may not
        # be UTF-8.
        with open(path, "rb") as stream, pq.ParquetFile(stream) as file:
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
    for old, new in OLD_ROLES.items():
        roles = np.where(roles == old, new, roles)
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
    unknown = set(np.unique(scores.roles).tolist()) - set(_ROLES)
    return f"{len(unknown)} roles are none of {', '.join(_ROLES)}" if unknown else None


def _other_canaries(scores: Scores, result: Result) -> str | None:
    """The same canaries with the same bits."""
    drawn = np.isin(scores.roles, _DRAWN)
    here = dict(zip(scores.ids[drawn].tolist(), _rows(scores, drawn), strict=True))
    if here.keys() != {one.id for one in result.canaries} or int(drawn.sum()) != len(here):
        return f"it scores {int(drawn.sum())} canaries and controls, the result has others"
    for canary in result.canaries:
        *what, bits = here[canary.id]
        if what != [canary.format, canary.role, canary.repetitions]:
            return f"{canary.id!r} is another canary there"
        said = canary.log_perplexity_bits
        if said is not None and abs(bits - said) > _SAME_BITS:
            return f"{canary.id!r} has {bits:.3f} bits there, not {said:.3f}"
    return None


def _rows(scores: Scores, chosen: NDArray[np.bool_]) -> Iterable[tuple[str, str, int, float]]:
    columns = (scores.formats, scores.roles, scores.repetitions, scores.log_perplexity_bits)
    return zip(*(column[chosen].tolist() for column in columns), strict=True)


def _other_counts(scores: Scores, result: Result) -> str | None:
    """As many fills never inserted as the result says it compared with."""
    others = Counter(scores.formats[~np.isin(scores.roles, _DRAWN)].tolist())
    for form in result.formats:
        n = others.get(form.name, 0)
        if n != form.references:
            return f"it scores {n} references of {form.name!r}, not {form.references}"
    return None


def _other_references(scores: Scores, result: Result) -> str | None:
    """The least, the median and the largest of the references, as the result holds them."""
    never = ~np.isin(scores.roles, _DRAWN)
    for form in result.formats:
        known = form.reference_bits_quantiles
        bits = scores.log_perplexity_bits[never & (scores.formats == form.name)]
        if not known or not bits.size:
            continue
        here = np.quantile(bits, (0, 0.5, 1))
        there = np.array([known[0], known[len(known) // 2], known[-1]])
        if (np.abs(here - there) > _SAME_BITS).any():
            return f"the references of {form.name!r} have other bits there"
    return None
