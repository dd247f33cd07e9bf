"""Two groups of documents: does a model know the one better, and would they differ without it?

Documents that were split at random before a training are exchangeable if the model learned nothing
of either, so that shuffling them is an exact test. Documents from two sources are not: a text that
is plainer, longer or older scores otherwise in every model. A blind baseline, which never asks the
model, then has to fail first: what tells the groups apart without the model is no memorisation
(Duan et al. 2024; Meeus et al. 2024; Das et al. 2024).
"""

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array, integer
from lmexposure.errors import InputError
from lmexposure.statistics.membership import area_under_curve

_BUCKETS = 512  # of hashed character trigrams
_RIDGE = 1.0
_FOLDS = 5
FEWEST_BLIND = 30  # documents on each side, below which failing to tell apart says nothing


@dataclass(frozen=True, kw_only=True)
class Blind:
    """How well two groups are told apart without the model.

    Attributes:
        auc: of a classifier on documents that it was not fitted on, .5 = not at all.
        low, high: interval of `auc`.
        level: two-sided.
        apart: the interval leaves out .5.
        enough: whether there are documents enough for `apart` to say something.
    """

    auc: float
    low: float
    high: float
    level: float
    apart: bool
    enough: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return asdict(self)


def shuffled_groups_p(
    first: ArrayLike, second: ArrayLike, *, permutations: int = 9_999, seed: int = 0
) -> float:
    """How often shuffling documents between two groups makes the first as much lower, or more so.

    Args:
        first: a number of each document, such as bits a character, shape (N,).
        second: of the other group, shape (M,).
        permutations: shuffles, at least 99.
        seed: of the shuffles.

    Returns:
        one-sided p in (0, 1], exact where the documents were split at random: small = the model
        knows the first group better. The unit is the document, whatever was pooled within it.

    Raises:
        InputError: an empty group, or a number that is not finite.
        SettingsError: too few permutations.

    Source: Phipson and Smyth 2010, "Permutation p-values should never be zero".
    """
    integer("permutations", permutations, low=99)
    own, others = bits_array("first", first), bits_array("second", second)
    every = np.concatenate([own, others])
    every = every - every.mean()
    observed = every[: own.size].sum()
    draws, as_low = np.random.default_rng(seed), 0
    slack = 1e-12 * np.abs(every).sum()
    for _ in range(permutations):
        as_low += bool(draws.permutation(every)[: own.size].sum() <= observed + slack)
    return (1 + as_low) / (1 + permutations)


def blind_baseline(
    first: Sequence[str],
    second: Sequence[str],
    *,
    more: tuple[ArrayLike, ArrayLike] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Blind:
    """Whether documents of two groups are told apart by their text alone.

    A ridge regression on hashed character trigrams, length, and shares of digits, capitals, spaces
    and other signs, fitted on four fifths of the documents and read on the last, five times.

    Args:
        first: texts of the one group, at least `_FOLDS` = 5.
        second: texts of the other.
        more: a further number of each document, such as bits a character of a model before the
            training; shapes (N,) and (M,).
        level: two-sided coverage of the interval.
        seed: of the folds.

    Raises:
        InputError: fewer than 5 documents in a group, or numbers that do not fit them.
    """
    if min(len(first), len(second)) < _FOLDS:
        raise InputError(
            f"a blind baseline needs {_FOLDS} documents in each group, and there are {len(first)} "
            f"and {len(second)}; give more documents"
        )
    table = _features([*first, *second])
    if more is not None:
        known = np.concatenate([bits_array(f"more[{i}]", more[i]) for i in (0, 1)])
        if known.size != len(table):
            raise InputError(
                f"more holds {known.size} numbers of {len(table)} documents; give one of each"
            )
        table = np.column_stack([table, known])
    labels = np.r_[np.ones(len(first)), -np.ones(len(second))]
    ranks = _cross_fitted(table, labels, np.random.default_rng(seed))
    area = area_under_curve(ranks[labels > 0], ranks[labels < 0], level=level)
    return Blind(
        auc=area.value,
        low=area.low,
        high=area.high,
        level=level,
        apart=not area.low <= 0.5 <= area.high,
        enough=min(len(first), len(second)) >= FEWEST_BLIND,
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
    """What a ridge regression says of rows it was not fitted on, as ranks within their fold."""
    folds = np.empty(len(labels), dtype=np.int64)
    for side in (1, -1):  # each fold has both groups
        own = draws.permutation(np.flatnonzero(labels == side))
        folds[own] = np.arange(len(own)) % _FOLDS
    found = np.empty(len(labels))
    for fold in range(_FOLDS):
        fitted, read = folds != fold, folds == fold
        scale = table[fitted].std(0)
        scale[scale == 0] = 1.0
        centred = (table - table[fitted].mean(0)) / scale
        x, y = centred[fitted], labels[fitted] - labels[fitted].mean()
        # The dual form: there are mostly fewer documents than features.
        gram = x @ x.T + _RIDGE * table.shape[1] * np.eye(len(x))
        said = centred[read] @ (x.T @ np.linalg.solve(gram, y))
        found[read] = (said.argsort().argsort() + 0.5) / read.sum()
    return found
