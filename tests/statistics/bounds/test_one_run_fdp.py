import pytest

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    one_run_fdp_epsilon,
)

# Mahloujifar, Melis, Chaudhuri 2024 (arXiv 2410.22235), Gaussian family, as jax_privacy prints
# them at significance 0.05: (canaries, guesses, correct, delta, epsilon), to 1e-3.
CASES = [
    (100, 80, 70, 1e-6, 3.295589),
    (1000, 10, 10, 1e-5, 1.2276),
    (1000, 40, 40, 1e-5, 3.6233),
    (1000, 268, 255, 1e-5, 4.1797),
    (100, 100, 100, 1e-5, 8.216186),
    (1000, 1000, 500, 1e-5, 0.0),
]


@pytest.mark.parametrize(("canaries", "guesses", "correct", "delta", "epsilon"), CASES)
def test_published_bounds(
    canaries: int, guesses: int, correct: int, delta: float, epsilon: float
) -> None:
    found = one_run_fdp_epsilon(canaries=canaries, guesses=guesses, correct=correct, delta=delta)
    assert found.value == pytest.approx(epsilon, abs=1e-3)
    assert found.validity == "gaussian"
    assert found.value <= found.max_attainable  # type: ignore[operator]


@pytest.mark.parametrize("correct", [0, 1, 100, 200])
def test_no_signal_gives_exactly_zero_and_says_so(correct: int) -> None:
    found = one_run_fdp_epsilon(canaries=400, guesses=400, correct=correct, delta=1e-5)
    assert found.value == 0.0
    assert "no signal" in found.notes[0]


def test_the_bound_rises_with_the_right_guesses() -> None:
    bounds = [
        one_run_fdp_epsilon(canaries=200, guesses=100, correct=correct, delta=1e-5).value
        for correct in range(50, 101, 5)
    ]
    assert bounds == sorted(bounds)


def test_copies_lower_the_bound() -> None:
    one, four = (
        one_run_fdp_epsilon(canaries=200, guesses=100, correct=95, delta=1e-5, repetitions=r)
        for r in (1, 4)
    )
    assert four.value < one.value / 4 + 1
    assert "group privacy" in four.adjacency


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"canaries": 0}, "canaries=0"),
        ({"guesses": 11}, "guesses=11 must be a whole number from 1 to 10"),
        ({"correct": 9}, "correct=9 must be a whole number from 0 to 8"),
    ],
)
def test_counts_that_do_not_fit(counts: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        one_run_fdp_epsilon(
            **({"canaries": 10, "guesses": 8, "correct": 5} | counts),
            delta=1e-5,
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delta": 0.0}, "delta=0.0 must lie strictly between 0 and 1"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"significance": 1.0}, "significance=1.0"),
        ({"repetitions": 0}, "repetitions=0"),
    ],
)
def test_bad_settings(settings: dict[str, float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        one_run_fdp_epsilon(
            **({"canaries": 10, "guesses": 8, "correct": 5, "delta": 1e-5} | settings)  # type: ignore[arg-type]
        )
