import pytest

from lmexposure.errors import SettingsError
from lmexposure.integrations.budget import TimeBudget


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_share_of_the_training_alone_and_what_was_spent_is_gone() -> None:
    clock = Clock()
    budget = TimeBudget(share=0.1, clock=clock)
    clock.now = 50.0
    budget.begin()
    clock.now = 150.0
    assert budget.left() == pytest.approx(10)
    with budget.spending():
        assert budget.running() == 0
        clock.now = 154.0
        assert budget.running() == 4
        assert budget.left() == pytest.approx(6)
    clock.now = 204.0
    assert budget.left() == pytest.approx(0.1 * 150 - 4)
    assert budget.running() == 0


def test_too_much_is_held_against_the_next() -> None:
    clock = Clock()
    budget = TimeBudget(share=0.1, clock=clock)
    clock.now = 10.0
    with budget.spending():
        clock.now = 15.0
    assert budget.left() == pytest.approx(-4)
    clock.now = 65.0
    assert budget.left() == pytest.approx(1)


def test_so_many_seconds_each_time() -> None:
    clock = Clock()
    budget = TimeBudget(share=0.1, seconds=3, clock=clock)
    for start in (0.0, 10.0):
        clock.now = start
        with budget.spending():
            clock.now = start + 2
            assert budget.left() == pytest.approx(1)


def test_what_failed_is_paid_for() -> None:
    clock = Clock()
    budget = TimeBudget(share=0.1, clock=clock)
    with pytest.raises(KeyError), budget.spending():
        clock.now = 2.0
        raise KeyError
    assert budget.spent == 2


def test_shares_and_seconds_out_of_range_are_refused() -> None:
    with pytest.raises(SettingsError, match="budget_share=0 must lie strictly between 0 and 1"):
        TimeBudget(share=0)
    with pytest.raises(SettingsError, match="budget_seconds=-1 must be a finite number above 0"):
        TimeBudget(share=0.1, seconds=-1)


def test_what_would_have_paid_is_said_rounded_up() -> None:
    clock = Clock()
    budget = TimeBudget(share=0.1, clock=clock)
    clock.now = 110.0
    with budget.spending():
        clock.now = 120.0
        assert budget.wanted(2.34) == "budget_share=0.12 or budget_seconds=13"
        assert budget.wanted(2.34, before=20) == "budget_share=0.3 or budget_seconds=13"
        assert budget.wanted(200) == "budget_seconds=210"
    assert budget.wanted(0) == "budget_share=0.091 or budget_seconds=0"


def test_beside_seconds_for_each_no_share_is_named() -> None:
    clock = Clock()
    budget = TimeBudget(share=0.1, seconds=3, clock=clock)
    with budget.spending():
        clock.now = 2.0
        assert budget.wanted(0.011, before=5) == "budget_seconds=2.1"


@pytest.mark.parametrize("more", [0.2, 1.7, 40.0])
def test_the_share_named_suffices(more: float) -> None:
    clock = Clock()
    budget = TimeBudget(share=0.001, clock=clock)
    clock.now = 77.0
    share = float(budget.wanted(more).split(" ")[0].removeprefix("budget_share="))
    assert more <= TimeBudget(share=share, clock=clock)._share * 77.0 <= 1.2 * more
