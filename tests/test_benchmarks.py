"""What the benchmarks in scripts/ measure with, where a slow machine could break it."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lmexposure.canaries import Format

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


def test_right_federated_trainings_are_hardly_refuted_and_missing_noise_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At 5 %, all bounds of a training together; 2,000 of them in scripts/benchmark_canife."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import canife_numbers  # type: ignore[import-not-found]

    alarms = sum(canife_numbers.one_weight(True, 1.0, seed) for seed in range(60))
    assert alarms <= 7  # more are found in one of a hundred tests whose level is 5 %
    for share in (0.5, 1e-6):
        assert all(canife_numbers.one_weight(True, share, seed) for seed in range(5))


def test_the_toy_of_kinds_has_a_text_and_promises_for_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import sweep_kinds  # type: ignore[import-not-found]

    assert sweep_kinds.corpus_lines(1, 5) == sweep_kinds.corpus_lines(1)[:5]
    monkeypatch.setattr(sys, "argv", ["sweep_kinds", "--texts", "6"])
    arguments = sweep_kinds.parse()
    for kind in sweep_kinds.KINDS.values():
        settings = sweep_kinds._settings(tmp_path, kind, 3, arguments)
        assert Format.load(settings.run.formats[0]).size >= 6
        of_lines = kind.group == "population"
        assert (settings.run.canaries, settings.population) == ((2, 6) if of_lines else (6, 0))
    rates = {(attack, 0.01): 0.2 for attack in sweep_kinds._ATTACKS}
    weak = {name: {**rates, ("plain", 0.01): 0.23} for name in sweep_kinds.KINDS}
    missed = [said for kept, said in sweep_kinds._promises(weak) if not kept]
    assert len(missed) == 3 + 3 + 6  # weak symbols; what untrained models find; LiRA each time
