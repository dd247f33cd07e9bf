"""Means over a beta-distributed rate, by quadrature: simulation would add its own error.

What is averaged here is often a step (a binomial tail in another rate), so the panels of the
quadrature are cut where the density moves and where the caller says that the step moves.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

_LEVELS = np.array([1e-12, 1e-6, 1e-3, 0.03, 0.2, 0.5])
_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(8)


class BetaNodes(NamedTuple):
    """Rates, one minus them without loss of digits, and weights that sum to 1; shape (n,) each."""

    value: NDArray[np.float64]
    complement: NDArray[np.float64]
    weight: NDArray[np.float64]


def beta_quantiles(a: float, b: float) -> NDArray[np.float64]:
    """Ascending quantiles of Beta(a, b), from 1e-12 to 1 - 1e-12, that mark where it moves."""
    below = special.betaincinv(a, b, _LEVELS)
    above = special.betainccinv(a, b, _LEVELS[-2::-1])
    quantiles: NDArray[np.float64] = np.concatenate([below, above])
    return quantiles


def beta_nodes(a: float, b: float, breaks: NDArray[np.float64]) -> BetaNodes:
    """Nodes and weights with sum(weight * h(value)) = E h(V), V ~ Beta(a, b), a and b >= 1/2.

    Args:
        a: first parameter of the beta distribution.
        b: second parameter.
        breaks: rates where h is not smooth or moves fast; those outside (0, 1) are left out.

    With V = sin^2(x) the density in x is bounded even for a Jeffreys prior, whose density in V is
    not. The range holds all but 1e-15 of the mass on either side.
    """
    ends = float(special.betaincinv(a, b, 1e-15)), float(special.betainccinv(a, b, 1e-15))
    cuts = np.concatenate([beta_quantiles(a, b), breaks])
    cuts = np.unique(np.concatenate([ends, cuts[(cuts > ends[0]) & (cuts < ends[1])]]))
    angles = np.arcsin(np.sqrt(cuts))
    half = np.diff(angles)[:, None] / 2  # (panels, 1)
    x = (angles[:-1, None] + half * (1 + _GAUSS_NODES)).ravel()
    sine, cosine = np.sin(x), np.cos(x)
    log_density = (2 * a - 1) * np.log(sine) + (2 * b - 1) * np.log(cosine)
    # Scaled by its own largest value: the constant would cost digits where a and b are large.
    weight = (half * _GAUSS_WEIGHTS).ravel() * np.exp(log_density - log_density.max())
    return BetaNodes(sine**2, cosine**2, weight / weight.sum())
