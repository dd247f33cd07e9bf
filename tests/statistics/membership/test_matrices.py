import numpy as np
import pytest

from lmexposure.errors import InputError
from lmexposure.statistics.many_models import coin_matrix, coin_notes, score_matrix


@pytest.mark.parametrize("shape", [(16, 40), (3, 500), (64, 2), (2, 3), (1, 5), (5, 1)])
@pytest.mark.parametrize("p", [0.01, 0.5])
def test_independent_coins_are_not_noted(shape: tuple[int, int], p: float) -> None:
    rng = np.random.default_rng(1)
    assert not any(coin_notes(rng.random(shape) < p) for _ in range(200))


def test_designs_of_exactly_half_are_noted() -> None:
    rng = np.random.default_rng(2)
    columns = np.argsort(rng.random((16, 40)), axis=0) < 8
    assert len(coin_notes(columns)) == 1
    assert "every canary is in the same number of models" in coin_notes(columns)[0]
    assert "every model holds the same number of canaries" in coin_notes(columns.T)[0]


def test_lists_and_numbers_are_taken() -> None:
    assert score_matrix("x", [[1, 2]]).dtype == np.float64
    assert coin_matrix("c", [[1, 0]], (1, 2)).tolist() == [[True, False]]


def test_refusals() -> None:
    with pytest.raises(InputError, match=r"x has shape \(2,\); give one row a model"):
        score_matrix("x", [1, 2])
    with pytest.raises(InputError, match=r"x has shape \(1, 0\)"):
        score_matrix("x", [[]])
    with pytest.raises(InputError, match=r"x\[0, 1\]=inf is not finite \(1 of 2 are not\)"):
        score_matrix("x", [[1, np.inf]])
    with pytest.raises(InputError, match=r"c has shape \(1, 1\); give one coin a score"):
        coin_matrix("c", [[1]], (1, 2))
    with pytest.raises(InputError, match="c must hold true"):
        coin_matrix("c", [[1, 2]], (1, 2))
