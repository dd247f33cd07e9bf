"""Scores in files: scores.npz of a model, text by text, and matrices.npz of all, models x texts."""

import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import PRIVATE, atomic_write, read_bytes, sha256_bytes
from lmexposure.errors import ResultError
from lmexposure.statistics import zlib_ratio
from lmexposure.studies import SCORES, SweepPlan

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# A hostile header is read as words of Python, and decides how much memory is asked for.
_DAMAGED = (
    *(BadZipFile, zlib.error, ValueError, LookupError, EOFError),
    *(TokenError, SyntaxError, MemoryError, RuntimeError),
)
TRAIN_AGAIN = "remove its directory, and the sweep trains it again"


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelScores:
    """What one model says of all texts of a plan: those with coins, then those for validation."""

    bits: tuple[Floats, ...]  # of each text's scored tokens, shape (T,), lower = more expected
    secret: tuple[Flags, ...]  # which of these hold a character of the secret; of a document all
    min_k: Floats  # as `statistics.min_k` gives it, shape (K + V,), higher = more likely in
    min_k_plus_plus: Floats  # likewise
    # of each canary whether each token of its secret was the greedy one, shape (contexts * T,)
    matches: tuple[Flags, ...]

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], plan: SweepPlan, name: str) -> "ModelScores":
        """The arrays of `scores_of`, text by text."""
        try:
            found = cls(
                bits=split(arrays["bits"], arrays["lengths"]),
                secret=split(arrays["secret"], arrays["lengths"]),
                min_k=arrays["min_k"],
                min_k_plus_plus=arrays["min_k_plus_plus"],
                matches=split(arrays["matches"], arrays["match_lengths"]),
            )
        except (KeyError, ValueError) as failure:
            raise ResultError(
                f"the scores of {name} are damaged ({failure}); {TRAIN_AGAIN}"
            ) from failure
        if len(found.bits) != len(plan.texts) or len(found.matches) != len(plan.canaries):
            raise ResultError(
                f"the scores of {name} are of {len(found.bits):,} texts, and the plan has "
                f"{len(plan.texts):,}; {TRAIN_AGAIN}"
            )
        return found

    @property
    def totals(self) -> Floats:
        """Log-perplexity of each text, bits, shape (K + V,)."""
        return np.array([bits.sum() for bits in self.bits], dtype=np.float64)


def joined(ragged: Mapping[str, Sequence[NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Arrays whose last axes are of many lengths, side by side in one, and these lengths."""
    found: dict[str, NDArray[Any]] = {}
    for name, arrays in ragged.items():
        found[f"{name}_lengths"] = np.array([x.shape[-1] for x in arrays], dtype=np.int64)
        found[name] = np.concatenate(arrays, axis=-1)
    return found


def split(whole: NDArray[Any], lengths: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
    """What was side by side, one array a length."""
    if not lengths.size:
        return ()
    if lengths.ndim != 1 or lengths.min() < 0 or lengths.sum() != whole.shape[-1]:
        raise ValueError("lengths that do not add up")
    return tuple(np.split(whole, np.cumsum(lengths)[:-1], axis=-1))


def npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a .npz: the same of the same arrays, for no time is in it."""
    content = io.BytesIO()
    plain: dict[str, Any] = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    np.savez(content, **plain)
    return content.getvalue()


def read_npz(path: Path, again: str) -> dict[str, NDArray[Any]]:
    """All arrays of a .npz, which are numbers and nothing else."""
    try:
        with io.BytesIO(read_bytes(path)) as stream, ZipFile(stream):
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as content:
                return dict(content)
    except OSError as failure:
        reason = failure.strerror or failure
        raise ResultError(f"cannot read {path}: {reason}; {again}") from failure
    except _DAMAGED as failure:
        raise ResultError(f"{path} is damaged ({failure}); {again}") from failure


NAME = "matrices.npz"
_AGAIN = "collect the sweep again"
_COLUMNS = ("numbers", "validation_bits", "validation_tokens")
_RAGGED = ("token_bits", "secret", "matches")


@dataclass(frozen=True, kw_only=True, eq=False)
class Matrices:
    """Scores of S models and K texts with coins: canaries, then the population; see `SweepPlan`."""

    numbers: NDArray[np.int64]  # of the models that have scores, ascending, shape (S,)
    included: Flags  # which text was in the training of which model, shape (S, K)
    # by the names of `SCORES`, each of shape (S, K), higher = more likely in; one that these models
    # do not have is not there. The population has no "label_only": NaN.
    scores: Mapping[str, Floats]
    validation_bits: Floats  # of the documents that no model saw, shape (S, V)
    validation_tokens: NDArray[np.int64]  # scored tokens of each of them, shape (V,)
    token_bits: tuple[Floats, ...]  # of each text's scored tokens, (S, T), lower = more expected
    secret: tuple[Flags, ...]  # which of these hold a character of the secret; of a document all
    # likewise whether each was the greedy one, shape (S, contexts * T); of the population (S, 0)
    matches: tuple[Flags, ...]

    def save(self, path: str | Path) -> None:
        """Write matrices.npz, for its owner alone; the same matrices give the same bytes."""
        content = npz(self._arrays())
        with atomic_write(Path(path), mode=PRIVATE) as stream:
            stream.write(content)

    def of_models(self, kept: Flags) -> "Matrices":
        """Those of some models."""
        return replace(
            self,
            numbers=self.numbers[kept],
            included=self.included[kept],
            scores={name: values[kept] for name, values in self.scores.items()},
            validation_bits=self.validation_bits[kept],
            token_bits=tuple(bits[kept] for bits in self.token_bits),
            matches=tuple(found[kept] for found in self.matches),
        )

    @property
    def sha256(self) -> str:
        """Of the bytes that `save` writes."""
        return sha256_bytes(npz(self._arrays()))

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {name: getattr(self, name) for name in _COLUMNS}
        arrays |= {f"score_{name}": values for name, values in self.scores.items()}
        return arrays | joined({name: getattr(self, name) for name in _RAGGED})


def read_matrices(path: str | Path, plan: SweepPlan) -> Matrices:
    """Read matrices.npz, or that of a sweep's directory.

    Args:
        path: of the file, or of the directory.
        plan: of the sweep, which has the coins.

    Raises:
        ResultError: there is none, it is damaged, or it is not of this plan.
    """
    path = Path(path)
    path = path / NAME if path.is_dir() else path
    arrays = read_npz(path, _AGAIN)
    try:
        numbers = arrays["numbers"]
        columns: dict[str, Any] = {name: arrays[name] for name in _COLUMNS}
        ragged: dict[str, Any] = {
            name: split(arrays[name], arrays[f"{name}_lengths"]) for name in _RAGGED
        }
    except (KeyError, ValueError) as failure:
        raise ResultError(f"{path} is damaged ({failure}); {_AGAIN}") from failure
    scores = {name: arrays[f"score_{name}"] for name in SCORES if f"score_{name}" in arrays}
    coins, shape = plan.included(), (len(numbers), len(plan.scored))
    unseen = len(plan.texts) - len(plan.scored)
    fits = (
        all(values.shape == shape for values in scores.values())
        and all(len(ragged[name]) == shape[1] for name in _RAGGED)
        and columns["validation_bits"].shape == (shape[0], unseen)
        and (numbers.size == 0 or bool(numbers.min() >= 0 and numbers.max() < len(coins)))
    )
    if not scores or not fits:
        raise ResultError(
            f"{path} is not of this plan, which has {shape[1]:,} texts with coins and {unseen:,} "
            f"for validation; {_AGAIN}"
        )
    return Matrices(included=coins[numbers], scores=scores, **columns, **ragged)


def join_scores(
    plan: SweepPlan,
    texts: Sequence[str],
    models: Mapping[int, ModelScores],
    base: ModelScores | None = None,
) -> Matrices:
    """The matrices of all models that have scores."""
    if not models:
        raise ResultError("no model of this sweep has scores; train them first")
    numbers = sorted(models)
    rows = [models[number] for number in numbers]
    for number, row in zip(numbers, rows, strict=True):
        secrets = zip(row.secret, rows[0].secret, strict=True)
        matches = zip(row.matches, rows[0].matches, strict=True)
        same = all(np.array_equal(x, y) for x, y in secrets)
        if not same or not all(x.shape == y.shape for x, y in matches):
            raise ResultError(
                f"models {numbers[0]} and {number} do not split the texts into the same tokens, as "
                "one tokenizer would; remove the directories of both, and the sweep trains them "
                "again"
            )
    with_coins = len(plan.scored)
    hits = _stacked([row.matches for row in rows])
    hits += (np.zeros((len(rows), 0), dtype=bool),) * (with_coins - len(hits))
    unseen = rows[0].bits[with_coins:]
    return Matrices(
        numbers=np.array(numbers, dtype=np.int64),
        included=plan.included()[numbers],
        scores=_scores(rows, texts, base, hits),
        validation_bits=np.stack([row.totals[with_coins:] for row in rows]),
        validation_tokens=np.array([bits.size for bits in unseen], dtype=np.int64),
        token_bits=_stacked([row.bits[:with_coins] for row in rows]),
        secret=rows[0].secret[:with_coins],
        matches=hits,
    )


def _scores(
    rows: Sequence[ModelScores],
    texts: Sequence[str],
    base: ModelScores | None,
    matches: Sequence[Flags],
) -> dict[str, Floats]:
    """By the names of `SCORES`, in their order, each of shape (S, K)."""
    kept = slice(len(texts))
    whole = np.stack([row.totals[kept] for row in rows])
    secret = [
        [bits[its].sum() for bits, its in zip(row.bits[kept], row.secret[kept], strict=True)]
        for row in rows
    ]
    found = {"log_perplexity": -whole, "secret_tokens": -np.array(secret, dtype=np.float64)}
    if base is not None:
        found["calibrated"] = base.totals[kept] - whole
    for name in ("min_k", "min_k_plus_plus"):
        found[name] = np.stack([getattr(row, name)[kept] for row in rows])
    found["zlib"] = whole * zlib_ratio(np.ones(len(texts)), texts)
    if any(text.size for text in matches):
        missing = np.full(len(rows), np.nan)
        shares = [text.mean(axis=1) if text.size else missing for text in matches]
        found["label_only"] = np.stack(shares, axis=1)
    return found


def _stacked(rows: Sequence[Sequence[NDArray[Any]]]) -> tuple[NDArray[Any], ...]:
    """Text by text what all models have of it, shape (S, T)."""
    return tuple(np.stack(texts) for texts in zip(*rows, strict=True))
