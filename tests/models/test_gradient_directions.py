"""Directions at right angles: against the matrix itself, at every size, and what is too many."""

import pytest
import torch

from lmexposure.errors import SettingsError
from lmexposure.models.gradient_canaries import KINDS

CPU = torch.device("cpu")


def matrix(kind: str, dimension: int, count: int, seed: int = 1) -> torch.Tensor:
    """All directions, shape (count, dimension)."""
    made = KINDS[kind](dimension, count, seed=seed, device=CPU)
    return torch.stack([made.combined(row) for row in torch.eye(count)]).double()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dimension", "count"), [(1, 1), (64, 64), (1003, 37), (130, 2)])
def test_directions_have_length_1_and_are_at_right_angles(
    kind: str, dimension: int, count: int
) -> None:
    rows = matrix(kind, dimension, count)
    assert torch.allclose(rows @ rows.T, torch.eye(count).double(), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_products_and_sums_are_those_of_the_matrix(kind: str) -> None:
    rows, made = matrix(kind, 1003, 37), KINDS[kind](1003, 37, seed=1, device=CPU)
    generator = torch.Generator().manual_seed(3)
    vector = torch.randn(1003, generator=generator)
    weights = torch.randn(37, generator=generator)
    assert torch.allclose(made.along(vector), rows @ vector.double(), atol=1e-5)
    assert torch.allclose(made.combined(weights).double(), weights.double() @ rows, atol=1e-5)


def test_a_fixed_vector_looks_alike_from_all_of_them() -> None:
    """Also where all of its length is in few weights, or in every other one."""
    for vector in (torch.ones(4096), torch.eye(4096)[7], torch.arange(4096) % 2 * 1.0):
        products = KINDS["hadamard"](4096, 64, seed=4, device=CPU).along(vector)
        assert float((products**2).mean()) < 3 * float((vector**2).sum()) / 4096


@pytest.mark.parametrize(("kind", "count"), [("hadamard", 65), ("dirac", 101)])
def test_more_than_weights_are_refused(kind: str, count: int) -> None:
    with pytest.raises(SettingsError, match=f"{count} directions.*give at most"):
        KINDS[kind](100, count, seed=0, device=CPU)
