"""What the benchmarks in scripts/ measure with, where a slow machine could break it."""

from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPTS = Path(__file__).parents[1] / "scripts" / "benchmarks"


@pytest.fixture
def references(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script that measures references a second, with products that take no time."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import scoring_references  # type: ignore[import-not-found]

    monkeypatch.setattr(scoring_references, "PRODUCTS", ((2, 3, 4), (4, 3, 2)))
    return scoring_references


def test_the_peak_rests_on_a_few_products_of_each_kind_whatever_they_take(
    references: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one took a quarter of a second, the second was over before any was counted."""
    taken: list[float] = []

    def slowly(run: Any, device: torch.device) -> float:
        run()
        taken.append(0.5 if len(taken) < 2 else 0.25)
        return taken[-1]

    monkeypatch.setattr(references, "timed", slowly)
    rates = references.product_rates(torch.device("cpu"))
    assert len(taken) == 2 * references.FEWEST
    assert rates.best == rates.sustained == 2 * 2 * 3 * 4 / 0.25
