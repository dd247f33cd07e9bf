"""Two groups of documents: does a model know the one better, and would they differ without it?

Documents that were split at random before a training are exchangeable if the model learned nothing
of either, so that shuffling them is an exact test. Documents from two sources are not: a text that
is plainer, longer or older scores otherwise in every model. A blind baseline, which never asks the
model, may show it: what tells the groups apart without the model is no memorisation. That it fails
to proves nothing
(Duan et al. 2024; Meeus et al. 2024; Das et al. 2024).
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from lmexposure._validate import bits_array, fraction, integer
from lmexposure.errors import InputError
from lmexposure.statistics.document_runs import shuffled_sides

_BUCKETS = 512  # of hashed character trigrams
_MOST = 1_000  # documents of a group that a blind baseline reads
_SHUFFLES = 199
_RIDGE = 1.0
_FOLDS = 5
_FEWEST = 30  # documents on each side, below which failing to tell apart says nothing


@dataclass(frozen=True, kw_only=True)
class Blind:
    """How well two groups are told apart without the model."""

    auc: float  # of a classifier on documents that it was not fitted on, .5 = not at all
    p: float  # how often shuffling the documents between the groups gives as high an AUC
    apart: bool  # p is at most `significance`
    significance: float  # how often groups of one source are called apart
    enough: bool  # whether there are documents enough for `apart` to say something
    fewest: int  # documents in each group from which on there are enough


def shuffled_groups_p(
    first: ArrayLike,
    second: ArrayLike,
    *,
    strata: tuple[ArrayLike, ArrayLike] | None = None,
    permutations: int = 9_999,
    seed: int = 0,
) -> float:
    """How often shuffling documents between two groups makes the first as much lower, or more so.

    Source: Phipson and Smyth 2010, "Permutation p-values should never be zero".
    """
    integer("permutations", permutations, low=99)
    own, others = bits_array("first", first), bits_array("second", second)
    every = np.concatenate([own, others])
    every = every - every.mean()
    sides = np.arange(every.size) < own.size
    groups = np.zeros(every.size, dtype=np.int64)
    if strata is not None:
        groups = np.concatenate([np.asarray(part, dtype=np.int64) for part in strata])
    slack = 1e-12 * np.abs(every).sum()
    observed = every[: own.size].sum() + slack
    as_low = sum(
        int((shuffled @ every <= observed).sum())
        for shuffled in shuffled_sides(sides, groups, permutations, seed)
    )
    return (1 + as_low) / (1 + permutations)


def blind_baseline(
    first: Sequence[str],
    second: Sequence[str],
    *,
    more: tuple[ArrayLike, ArrayLike] | None = None,
    significance: float = 0.05,
    seed: int = 0,
) -> Blind:
    """Whether documents of two groups are told apart by their text alone.

    A ridge regression on hashed character trigrams, length, and shares of digits, capitals, spaces
    and other signs, fitted on four fifths of the documents and read on the last, five times. What
    its AUC would be of one source is found by shuffling the documents between the groups:
    intervals for independent scores hold too rarely for cross-fitted scores. Of more than 1,000
    documents in a group the first 1,000 are read.

    Source: Meeus et al. 2024 (arXiv 2406.17975) and Das et al. 2024 (arXiv 2406.16201), classifiers
        on the words of a text that never ask the model; Phipson and Smyth 2010 for the p.
    """
    fraction("significance", significance)
    if min(len(first), len(second)) < _FOLDS:
        raise InputError(
            f"a blind baseline needs {_FOLDS} documents in each group, and there are {len(first)} "
            f"and {len(second)}; give more documents"
        )
    table = _features([*first[:_MOST], *second[:_MOST]])
    if more is not None:
        columns = [bits_array(f"more[{i}]", more[i]) for i in (0, 1)]
        for group, column in zip((first, second), columns, strict=True):
            if column.size != len(group):
                raise InputError(
                    f"more holds {column.size} numbers of {len(group)} documents; give one of each"
                )
        # As much weight as all trigrams together: it is the one number that knows the language.
        known = np.concatenate([column[:_MOST] for column in columns])
        table = np.column_stack([table, *[known] * 8])
    labels = np.zeros(len(table))
    labels[: min(len(first), _MOST)] = 1.0
    draws = np.random.default_rng(seed)
    shuffled = np.stack([labels, *(draws.permutation(labels) for _ in range(_SHUFFLES))])
    areas = _areas(_cross_fitted(table, shuffled, draws), shuffled)
    p = float(np.mean(areas >= areas[0] - 1e-12))
    return Blind(
        auc=float(areas[0]),
        p=p,
        apart=p <= significance,
        significance=significance,
        enough=min(len(first), len(second)) >= _FEWEST,
        fewest=_FEWEST,
    )


def _features(texts: Sequence[str]) -> NDArray[np.float64]:
    """Shape (N, D)."""
    rows = np.zeros((len(texts), _BUCKETS + 5))
    for row, text in zip(rows, texts, strict=True):
        data = text.encode("utf-8", "surrogatepass")
        for first in range(max(0, len(data) - 2)):
            row[zlib.crc32(data[first : first + 3]) % _BUCKETS] += 1
        row[:_BUCKETS] = np.log1p(row[:_BUCKETS])
        size = max(1, len(text))
        kinds = (str.isdigit, str.isupper, str.isspace, str.isalpha)
        row[_BUCKETS:-1] = [sum(map(kind, text)) / size for kind in kinds]
        row[-1] = np.log1p(len(text))
    return rows


def _cross_fitted(
    table: NDArray[np.float64], labels: NDArray[np.float64], draws: np.random.Generator
) -> NDArray[np.float64]:
    """What ridge regressions say of rows they were not fitted on, shape of `labels`, (L, N).

    What is said is linear in the labels, so that one factorisation serves all L of them.
    """
    scale = table.std(0)
    scale[scale == 0] = 1.0
    centred = (table - table.mean(0)) / scale
    gram = centred @ centred.T
    folds = draws.permutation(len(table)) % _FOLDS  # alike for all labels
    found = np.empty_like(labels)
    for fold in range(_FOLDS):
        fitted, read = folds != fold, folds == fold
        own = gram[np.ix_(fitted, fitted)] + _RIDGE * table.shape[1] * np.eye(int(fitted.sum()))
        wanted = labels[:, fitted] - labels[:, fitted].mean(1, keepdims=True)
        found[:, read] = (gram[np.ix_(read, fitted)] @ np.linalg.solve(own, wanted.T)).T
    return found


def _areas(scores: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """The AUC of each row, ties as half."""
    ranks = stats.rankdata(scores, axis=1)
    first = labels.sum(1)
    second = labels.shape[1] - first
    areas: NDArray[np.float64] = ((ranks * labels).sum(1) - first * (first + 1) / 2) / (
        first * second
    )
    return areas
