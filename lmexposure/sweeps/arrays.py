"""Arrays in files: scores.npz of a model as text by text has it, and matrices.npz."""

import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import PRIVATE, atomic_write, read_bytes
from lmexposure.errors import ResultError
from lmexposure.studies import SweepPlan

# A hostile header is read as words of Python, and decides how much memory is asked for.
_DAMAGED = (
    *(BadZipFile, zlib.error, ValueError, LookupError, EOFError),
    *(TokenError, SyntaxError, MemoryError, RuntimeError),
)
TRAIN_AGAIN = "remove its directory, and the sweep trains it again"


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelScores:
    """What one model says of all texts of a plan: those with coins, then those for validation."""

    # of each text the bits of its scored tokens, arrays of shape (T,), lower = more expected
    bits: tuple[NDArray[np.float64], ...]
    # which of these tokens hold a character of the secret, arrays of shape (T,); of an ordinary
    # document all
    secret: tuple[NDArray[np.bool_], ...]
    # as `statistics.min_k` gives it, shape (K + V,), higher = more likely in
    min_k: NDArray[np.float64]
    min_k_plus_plus: NDArray[np.float64]  # likewise
    # of each canary whether each token of its secret was the greedy one, context by context, arrays
    # of shape (contexts * T,)
    matches: tuple[NDArray[np.bool_], ...]

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], plan: SweepPlan, name: str) -> "ModelScores":
        """The arrays of `scoring.scores_of`, text by text."""
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
    def totals(self) -> NDArray[np.float64]:
        """Log-perplexity of each text, bits, shape (K + V,)."""
        return np.array([bits.sum() for bits in self.bits], dtype=np.float64)

    @property
    def secret_totals(self) -> NDArray[np.float64]:
        """The same of the tokens of the secret alone."""
        kept = [bits[its].sum() for bits, its in zip(self.bits, self.secret, strict=True)]
        return np.array(kept, dtype=np.float64)


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


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a .npz, readable by its owner alone, whole or not at all."""
    content = npz(arrays)
    with atomic_write(path, mode=PRIVATE) as stream:
        stream.write(content)


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
