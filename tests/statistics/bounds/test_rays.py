import numpy as np
import pytest

from lmexposure.statistics.bounds.one_run import critical_counts, fixed_rays, log_odds_low, reveal


@pytest.mark.parametrize("canaries", [1, 2, 3, 7, 8, 15, 16, 17, 400, 10**6])
def test_looks_rise_and_stay_within_their_ray(canaries: int) -> None:
    sizes = {"both": canaries, "top": (canaries + 1) // 2, "bottom": canaries // 2}
    for ray in fixed_rays(canaries, 0.05):
        assert ray.looks[0] >= 1
        assert ray.looks[-1] <= sizes[ray.name]
        assert np.all(np.diff(ray.looks) > 0)
        assert np.all((ray.levels > 0) & (ray.levels < 0.05))
    assert fixed_rays(canaries, 0.05)[0].looks[-1] == canaries


def test_reveal_alternates_from_both_ends() -> None:
    scores = np.array([3.0, 9.0, 1.0, 5.0, 7.0])
    included = np.array([False, True, True, False, True])
    # In the order 9 (in), 1 (out), 7 (in), 3 (out), 5 (in).
    right = reveal(scores, included, np.random.default_rng(0))
    assert right.tolist() == [True, False, True, True, False]


@pytest.mark.parametrize("canaries", [1, 2, 5, 8])
def test_reveal_guesses_every_canary_once(canaries: int) -> None:
    generator = np.random.default_rng(canaries)
    included = generator.random(canaries) < 0.5
    perfect = reveal(included + generator.random(canaries) / 2, included, generator)
    top = (canaries + 1) // 2
    missed = abs(top - int(included.sum()))
    assert perfect.size == canaries
    assert int(perfect.sum()) == canaries - missed


def test_ray_counts_follow_their_half() -> None:
    rays = {ray.name: ray for ray in fixed_rays(40, 0.05)}
    right = np.arange(40) % 2 == 0
    assert rays["top"].right(right).tolist() == rays["top"].looks.tolist()
    assert rays["bottom"].right(right).tolist() == [0] * rays["bottom"].looks.size
    assert rays["both"].right(right)[-1] == 20


def test_critical_counts_are_the_smallest_and_nested() -> None:
    for ray in fixed_rays(60, 0.05):
        last = np.zeros_like(ray.looks)
        for odds in np.linspace(-1, 4, 21):
            found = critical_counts(ray, float(odds))
            for j, look in enumerate(ray.looks.tolist()):
                low = log_odds_low(
                    np.full(look + 1, look), np.arange(look + 1), np.full(look + 1, ray.levels[j])
                )
                enough = np.flatnonzero(low >= odds)
                assert found[j] == (enough[0] if enough.size else look + 1)
            assert np.all(found >= last)
            last = found
