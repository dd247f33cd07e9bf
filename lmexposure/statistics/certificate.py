"""Exposure that needs no references: a bound proven from the secret's own bits."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array, positive
from lmexposure.errors import InputError
from lmexposure.statistics._rows import column, row

_ASSUMPTIONS = (
    "every fill shares the token prefix before the scored part",
    "secret_bits is the model's own probability of all tokens after that prefix",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class CertifiedExposure:
    """Proven lower bounds of exposure in bits; higher = more memorised; `low` has shape (n,).

    No sample stands behind them: the level is 1, and the bound is never above the exposure.
    """

    low: NDArray[np.float64]
    secret_bits: NDArray[np.float64]
    space_bits: float
    method: str = "certificate"
    assumptions: tuple[str, ...] = _ASSUMPTIONS

    def row(self, i: int) -> dict[str, Any]:
        """The i-th canary alone, in plain Python values; `capped`, for it is a lower bound."""
        low = float(self.low[i])
        bounds = (low, self.space_bits, 1.0)
        return row(low, bounds, None, True, self.method, self.assumptions, [])

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, columns as lists."""
        return {
            "method": self.method,
            "low": self.low.tolist(),
            "secret_bits": self.secret_bits.tolist(),
            "space_bits": self.space_bits,
            "assumptions": list(self.assumptions),
        }


def certified_exposure(space_bits: float, secret_bits: ArrayLike) -> CertifiedExposure:
    """Exposure is at least log2|R| - tau, where tau is what the secret costs the model.

    The fills' token paths after the prefix that they share are disjoint events, so at most
    2^tau of them cost tau bits or less: rank <= 2^tau. It holds for every tokenizer.

    Args:
        space_bits: log2|R|, above 0.
        secret_bits: tau, one or shape (n,): bits of the canary's tokens after the longest token
            prefix that all fills share; at least 0.

    Returns:
        Lower bounds in the order given, floored at 0; one canary gives shape (1,).

    Raises:
        SettingsError: `space_bits` is not a finite number above 0.
        InputError: no numbers, a NaN, an infinity, or bits below 0.

    Source: Kraft's inequality (Cover and Thomas 2006, theorem 5.2.1) on the fills' token paths.

    >>> certified_exposure(29.9, [10.0, 35.0]).low.round(1).tolist()
    [19.9, 0.0]
    """
    space_bits = positive("space_bits", space_bits)
    tau = bits_array("secret_bits", secret_bits)
    bad = np.flatnonzero(tau < 0)
    if bad.size:
        raise InputError(
            f"secret_bits[{bad[0]}]={tau[bad[0]]} must be at least 0: it is -log2 of a "
            "probability; give log-perplexity in bits"
        )
    return CertifiedExposure(
        low=column(np.maximum(space_bits - tau, 0.0), np.float64),
        secret_bits=column(tau, np.float64),
        space_bits=space_bits,
    )
