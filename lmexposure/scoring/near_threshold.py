"""Many texts in reduced precision, those near a threshold again in full: who lies below it.

Rounding moves each text's bits by a little. How much is measured on a sample of the same texts, so
that what is said of the others is empirical, not proven.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure._validate import integer
from lmexposure.errors import InputError, ModelError
from lmexposure.models.encoding import Encoded
from lmexposure.models.half_precision import is_native, warn_imitated
from lmexposure.scoring.log_perplexity import score_encoded

_NEAREST = 256  # one text in so many is scored again with the sample
_SAFETY = 4.0  # margins are so many times the largest difference seen


@dataclass(frozen=True, kw_only=True)
class NearScores:
    """Log-perplexities in two precisions.

    Attributes:
        bits: log-perplexity of each text in bits, shape (n,); lower = more memorised.
        exact: whether a text's bits come from the model's own precision, shape (n,).
        threshold: near which texts were scored again, bits.
        margin: how near, bits: 4 times the largest difference between both precisions seen. That
            a text further away lies on its right side of the threshold is empirical.
        largest: that largest difference, bits.
        sampled: texts on which it was measured.
    """

    bits: NDArray[np.float64]
    exact: NDArray[np.bool_]
    threshold: float
    margin: float
    largest: float
    sampled: int

    def to_dict(self) -> dict[str, Any]:
        """What was done, in plain values, without the scores themselves."""
        return {
            "texts": len(self.bits),
            "rescored": int(self.exact.sum()),
            "threshold": self.threshold,
            "margin": self.margin,
            "largest": self.largest,
            "sampled": self.sampled,
        }


def scores_near(
    model: Any,
    encoded: Sequence[Encoded],
    *,
    seed: int,
    threshold: float | None = None,
    quantile: float | None = None,
    sample: int = 64,
    dtype: torch.dtype | None = None,
) -> NearScores:
    """Score texts in `dtype`, and those near a threshold again in float32.

    Args:
        model: a causal language model in float32, left in its mode; a copy is made in `dtype`.
        encoded: n texts as `encode_in_context` gives them.
        seed: of the sample on which, with the texts nearest to the threshold, the difference of
            both precisions is measured.
        threshold: the log-perplexity of interest, in bits, such as a canary's.
        quantile: instead of a threshold, the share of the texts that lie below it, in (0, 1).
        sample: how many texts are drawn to be scored both ways, from 2; those nearest to the
            threshold come to them. All where there are fewer.
        dtype: of the fast pass; None: bfloat16, but float32 on a CPU that would be slower in it:
            then all are exact.

    Raises:
        InputError: not exactly one of threshold and quantile, or one that is out of range.
        ModelError: the model is not in float32.
        NumericalError: the model gave NaN or infinite logits.
    """
    _refuse_unclear(threshold, quantile)
    if model.dtype != torch.float32:
        raise ModelError(
            f"the model is in {model.dtype}, so nothing could be scored again more exactly; "
            "load it in float32, or use score_encoded"
        )
    integer("sample", sample, low=2)
    dtype = _fast_dtype(dtype, model.device)
    bits = score_encoded(copy.deepcopy(model).to(dtype), encoded).totals
    at = threshold if quantile is None else float(np.quantile(bits, quantile))
    assert at is not None
    if dtype == torch.float32:
        everything = np.ones(len(encoded), dtype=bool)
        return NearScores(
            bits=bits, exact=everything, threshold=at, margin=0.0, largest=0.0, sampled=len(encoded)
        )
    exact = np.zeros(len(encoded), dtype=bool)
    distance = np.abs(bits - at)
    first = _drawn_and_nearest(distance, sample, seed)
    largest = _rescore(model, encoded, first, bits, exact)
    margin = _SAFETY * largest
    near = np.flatnonzero(~exact & (distance <= margin))
    if near.size:
        _rescore(model, encoded, near, bits, exact)
    return NearScores(
        bits=bits, exact=exact, threshold=at, margin=margin, largest=largest, sampled=len(first)
    )


def _fast_dtype(asked: torch.dtype | None, device: torch.device) -> torch.dtype:
    """As asked, or what the machine is faster in: a CPU may only imitate bfloat16."""
    if asked is not None:
        warn_imitated(asked, device)
        return asked
    return torch.float32 if is_native(torch.bfloat16, device) is False else torch.bfloat16


def _drawn_and_nearest(distance: NDArray[np.float64], sample: int, seed: int) -> NDArray[np.int64]:
    """Some texts at random, and those nearest to the threshold, which are most likely needed."""
    n = len(distance)
    drawn = np.random.default_rng(seed).choice(n, min(n, sample), replace=False)
    nearest = np.argsort(distance, kind="stable")[: n // _NEAREST]
    return np.union1d(drawn, nearest)


def _rescore(
    model: Any,
    encoded: Sequence[Encoded],
    chosen: NDArray[np.int64],
    bits: NDArray[np.float64],
    exact: NDArray[np.bool_],
) -> float:
    """Put the exact bits of some texts in place; the largest difference that this made."""
    again = score_encoded(model, [encoded[i] for i in chosen]).totals
    largest = float(np.abs(again - bits[chosen]).max())
    bits[chosen], exact[chosen] = again, True
    return largest


def _refuse_unclear(threshold: float | None, quantile: float | None) -> None:
    if (threshold is None) == (quantile is None):
        raise InputError(
            f"threshold is {threshold} and quantile is {quantile}; give exactly one of them"
        )
    if threshold is not None and not np.isfinite(threshold):
        raise InputError(f"threshold is {threshold}; give a finite number of bits")
    if quantile is not None and not 0 < quantile < 1:
        raise InputError(f"quantile is {quantile}; give a share above 0 and below 1, such as 0.01")
