"""Directions in the space of all weights, of one length and at right angles to each other.

`Coordinates` are single weights (Dirac). `Hadamard` directions are rows of a Hadamard matrix with
random signs, spread over all weights: of M rows only the lowest log2(M) bits of a weight's number
count, so that weights of the same number modulo M are summed first and a transform of M numbers is
all that follows. M directions in d dimensions take O(d + M log M), and nothing but the signs is
stored. Rows are at right angles exactly: each residue has as many weights as every other, and signs
cancel in a product of two rows.
"""

from typing import Protocol

import numpy as np
import torch

from lmexposure.errors import SettingsError

HADAMARD, DIRAC = "hadamard", "dirac"


class Directions(Protocol):
    """Some directions of length 1."""

    count: int

    def along(self, vector: torch.Tensor) -> torch.Tensor:
        """Inner products of a vector, shape (d,), with each direction, shape (count,), float64."""
        ...

    def combined(self, weights: torch.Tensor) -> torch.Tensor:
        """The sum of all directions by their weights, shape (count,); shape (d,)."""
        ...


class Hadamard:
    """Rows of a Hadamard matrix with random signs.

    Source: Ailon and Chazelle 2009, the randomised Hadamard transform; Sylvester 1867 for the
        matrix.
    """

    def __init__(self, dimension: int, count: int, *, seed: int, device: torch.device) -> None:
        self.count, self._dimension = count, dimension
        self._rows = 1 << max(0, count - 1).bit_length()
        if self._rows > dimension:
            raise SettingsError(
                f"{count} directions, rounded up to {self._rows}, are more than the {dimension} "
                f"weights; give at most {1 << max(0, dimension.bit_length() - 1)}"
            )
        self._used = dimension - dimension % self._rows
        self._length = self._used**-0.5
        self._signs = _signs(self._used, seed).to(device).view(-1, self._rows)

    def along(self, vector: torch.Tensor) -> torch.Tensor:
        """See `Directions`."""
        shaped = vector[: self._used].view(-1, self._rows)
        sums = (shaped.float() * self._signs).sum(0).double()
        found: torch.Tensor = _transformed(sums)[: self.count] * self._length
        return found

    def combined(self, weights: torch.Tensor) -> torch.Tensor:
        """See `Directions`."""
        rows = torch.zeros(self._rows, dtype=torch.float64, device=self._signs.device)
        rows[: self.count] = weights.to(rows)
        each = (_transformed(rows) * self._length).float()
        found = torch.zeros(self._dimension, device=self._signs.device)
        torch.mul(self._signs, each, out=found[: self._used].view(-1, self._rows))
        return found


class Coordinates:
    """Single weights, drawn without replacement."""

    def __init__(self, dimension: int, count: int, *, seed: int, device: torch.device) -> None:
        if count > dimension:
            raise SettingsError(
                f"{count} directions are more than the {dimension} weights; give at most "
                f"{dimension}"
            )
        self.count, self._dimension = count, dimension
        drawn = np.random.default_rng(seed).choice(dimension, count, replace=False, shuffle=False)
        self._places = torch.from_numpy(drawn).to(device)

    def along(self, vector: torch.Tensor) -> torch.Tensor:
        """See `Directions`."""
        return vector[self._places].double()

    def combined(self, weights: torch.Tensor) -> torch.Tensor:
        """See `Directions`."""
        found = torch.zeros(self._dimension, device=self._places.device)
        found[self._places] = weights.to(found)
        return found


KINDS: dict[str, type[Hadamard] | type[Coordinates]] = {HADAMARD: Hadamard, DIRAC: Coordinates}


def _signs(count: int, seed: int) -> torch.Tensor:
    """-1 and 1 in float32, shape (count,)."""
    drawn = np.frombuffer(np.random.default_rng(seed).bytes(-(-count // 8)), np.uint8)
    bits = np.unpackbits(drawn, count=count)
    return torch.from_numpy(bits).float().mul_(2).sub_(1)


def _transformed(values: torch.Tensor) -> torch.Tensor:
    """The Walsh-Hadamard transform of a power of two of numbers, in the natural order."""
    half = 1
    while half < len(values):
        pairs = values.view(-1, 2, half)
        values = torch.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).view(-1)
        half *= 2
    return values
