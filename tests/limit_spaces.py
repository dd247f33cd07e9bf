"""Spaces of a million fills whose every cost is known, and draws from them by limits in bits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure.statistics import UniformDraws, WeightedDraws

DIGITS, SIZE, AHEAD, LIMITS = 6, 10**6, 2, 4
KINDS = ("mild", "random", "peaked", "memorised")


@dataclass(frozen=True)
class Space:
    """Six digits under a made-up autoregressive model: every cost and every rank is known."""

    bits: NDArray[np.float64]  # (SIZE,)
    log2_weights: NDArray[np.float64]  # (SIZE,)
    cumulative: list[NDArray[np.float64]]  # per limit, (SIZE,)
    ordered: NDArray[np.int64]  # (SIZE,) fills by cost
    canaries: NDArray[np.int64]  # (13,) fills with exposures from 1 bit to log2|R|
    limits: NDArray[np.float64]  # (J,)
    log2_totals: NDArray[np.float64]  # (J,)

    def draw(
        self, m: int, seed: int, *, canaries: ArrayLike = (), siblings: int = 1
    ) -> WeightedDraws:
        """As many draws from each limit, of groups of so many fills that begin alike."""
        rng, j = np.random.default_rng(seed), len(self.limits)
        assert m % j == 0
        drawn = [np.searchsorted(c, rng.random(m // j), side="right") for c in self.cumulative]
        fills = np.minimum(np.concatenate(drawn), SIZE - 1)
        chosen, groups = np.unique(fills // siblings, return_inverse=True)
        members = (chosen[:, None] * siblings + np.arange(siblings)).reshape(-1)
        probability = np.exp2(-self.log2_weights[members]).reshape(-1, siblings).sum(axis=1)
        return WeightedDraws(
            bits=self.bits[members],
            groups=np.repeat(np.arange(len(chosen)), siblings),
            excluded=np.isin(members, canaries),
            log2_weights=-np.log2(probability),
            drawn=groups,
            strata=np.repeat(np.arange(j), m // j),
            shares=np.full(j, 1 / j),
            limits=self.limits,
            log2_totals=self.log2_totals,
        )

    def references(self, n: int, seed: int, canaries: NDArray[np.int64]) -> UniformDraws:
        """So many fills that are no canary, all alike."""
        rng = np.random.default_rng([seed, 1])
        some = rng.choice(SIZE, n + len(canaries), replace=False)
        return UniformDraws(
            bits=self.bits[some[~np.isin(some, canaries)][:n]],
            canary_bits=self.bits[canaries],
            population=SIZE - len(canaries),
        )

    def others(self, fills: NDArray[np.int64]) -> NDArray[np.int64]:
        """K: how many other fills cost no more, shape (n,)."""
        ordered = self.bits[self.ordered]
        return np.searchsorted(ordered, self.bits[fills], side="right") - 1


@cache
def space(kind: str) -> Space:
    costs = _costs(kind, np.random.default_rng(0))
    bits = costs[-1]
    ordered = np.argsort(bits, kind="stable")
    canaries = ordered[np.round(SIZE / 2 ** np.linspace(1, math.log2(SIZE), 13)).astype(int) - 1]
    spread = np.linspace(bits[canaries].min(), bits[canaries].max(), LIMITS + 1)[1:]
    limits = np.array([0.0, *spread, math.inf])
    drawn = [_limited(costs, t) for t in limits]
    log2_q = np.log2([q for q, _ in drawn])
    cumulative = [np.cumsum(q) for q, _ in drawn]
    return Space(
        bits=bits,
        log2_weights=math.log2(len(limits)) - np.logaddexp2.reduce(log2_q, axis=0),
        cumulative=[row / row[-1] for row in cumulative],
        ordered=ordered,
        canaries=canaries,
        limits=limits,
        log2_totals=np.log2([total for _, total in drawn]),
    )


def _costs(kind: str, rng: np.random.Generator) -> list[NDArray[np.float64]]:
    """Bits of every prefix per depth, shape (10^depth,)."""
    spread = {"memorised": 5.0, "mild": 5.0, "random": 1.0, "peaked": 0.2, "uniform": 1e9}[kind]
    costs, at = [np.zeros(1)], 0
    for depth in range(DIGITS):
        p = np.maximum(rng.dirichlet(np.full(10, spread), 10**depth), 1e-6)
        if kind == "uniform":
            p = np.full_like(p, 0.1)
        if kind == "memorised":  # one fill has probability 0.9 as a whole
            each = 0.9 ** (1 / DIGITS)
            p[at] *= 1 - each
            p[at, 7] += each
            at = 10 * at + 7
        p /= p.sum(axis=1, keepdims=True)
        if kind == "random":  # a tenth goes to what is no digit
            p *= 0.9
        costs.append((costs[-1][:, None] - np.log2(p)).reshape(-1))
    return costs


def _limited(costs: list[NDArray[np.float64]], limit: float) -> tuple[NDArray[np.float64], float]:
    """Probability of each fill under one limit, and its total over the nodes looked ahead to."""
    h = [np.minimum(10.0 ** (DIGITS - d), np.exp2(limit - c)) for d, c in enumerate(costs)]
    total = h[AHEAD].sum()
    q = h[AHEAD] / total
    for below in h[AHEAD + 1 :]:
        rows = below.reshape(-1, 10)
        q = (q[:, None] * rows / rows.sum(axis=1, keepdims=True)).reshape(-1)
    return q, float(total)


def mixture(size: int) -> dict[str, NDArray[np.float64]]:
    """Half of the draws uniform, half as the model draws."""
    return {
        "shares": np.array([0.5, 0.5]),
        "limits": np.array([0.0, math.inf]),
        "log2_totals": np.array([0.0, math.log2(size)]),
    }


def small_draws(
    weights: list[float],
    bits: list[float],
    fills: list[int],
    size: int,
    *,
    excluded: Sequence[int] = (),
    **components: Any,
) -> WeightedDraws:
    """A few draws of one stratum, each fill a group; half of them uniform unless said otherwise."""
    labels, first, drawn = np.unique(fills, return_index=True, return_inverse=True)
    return WeightedDraws(
        bits=np.array(bits)[first],
        groups=np.arange(len(labels)),
        excluded=np.isin(labels, excluded),
        log2_weights=np.log2(np.array(weights)[first]),
        drawn=drawn,
        strata=np.zeros(len(fills), int),
        **(components or mixture(size)),
    )
