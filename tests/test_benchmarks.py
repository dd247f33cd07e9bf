"""What the benchmarks in scripts/ measure with, where a slow machine could break it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lmexposure.audit import Watcher
from lmexposure.canaries import Format

SCRIPTS = Path(__file__).parents[1] / "scripts" / "benchmarks"
MADE_UP = '''"""What is made up."""
ARGUMENTS = {"most": 3}
PARTS = {
    "two": lambda given: iter([(2 <= given.most, f"2 <= {given.most}")]),
    "three": lambda given: iter([(3 <= given.most, f"3 <= {given.most}")]),
}
'''


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


def test_the_peak_rests_on_a_few_products_of_each_kind_whatever_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where one took a quarter of a second, the second was over before any was counted."""
    import references  # type: ignore[import-not-found]

    taken: list[float] = []

    def slowly(run: Callable[[], object], clock: object) -> Callable[[], float]:
        run()
        seconds = 0.5 if len(taken) < 2 else 0.25
        taken.append(seconds)
        return lambda: seconds

    monkeypatch.setattr(references, "PRODUCTS", ((2, 3, 4), (4, 3, 2)))
    monkeypatch.setattr(references, "timed", slowly)
    rate = references.product_rate(torch.device("cpu"))
    assert len(taken) == 2 * references.FEWEST
    assert rate == 2 * 2 * 3 * 4 / 0.25


@pytest.mark.slow
def test_right_federated_trainings_are_hardly_refuted_and_missing_noise_is() -> None:
    """At 5 %, all bounds of a training together; 2,000 of them in scripts/benchmark canife."""
    from canife import one_weight  # type: ignore[import-not-found]

    alarms = sum(one_weight(True, 1.0, seed) for seed in range(40))
    assert alarms <= 6  # more are found in one of a hundred tests whose level is 5 %
    for share in (0.5, 1e-6):
        assert all(one_weight(True, share, seed) for seed in range(5))


def test_a_benchmark_counts_the_claims_that_it_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import harness  # type: ignore[import-not-found]

    (tmp_path / "made_up.py").write_text(MADE_UP)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(harness, "_HERE", tmp_path)

    def ended(*words: str) -> tuple[int, list[str]]:
        monkeypatch.setattr(sys, "argv", ["benchmark", *words])
        return harness.main(), capsys.readouterr().out.splitlines()

    assert ended() == (0, ["made_up      What is made up."])
    assert ended("made_up", "all", "--most", "2") == (1, ["reached  2 <= 2", "MISSED   3 <= 2"])
    assert ended("made_up", "two") == (0, ["reached  2 <= 3"])
    assert harness.ratio([1, 9, 4], [2, 3, 4]) == 1
    turns = harness.in_turn({"a": lambda: 1, "b": lambda: 2}, 2)
    assert turns == {"a": [1, 1], "b": [2, 2]}
    took = harness.spent("-c", "print(7); raise SystemExit(3)", code=3)
    assert took.out == "7\n"
    assert took.processor > 0


def test_the_toy_of_kinds_has_a_text_and_promises_for_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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


def test_what_a_part_of_a_measurement_took_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that was not finished has what follows it; one that was has what leads to the next."""
    import parts  # type: ignore[import-not-found]

    now = iter([0.0, 5.0, 7.0, 8.0, 11.0, 15.0, 21.0])
    monkeypatch.setattr(parts.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(parts, "_peak", lambda: 1.0)
    seen = parts.Parts()
    watcher: object = seen
    assert isinstance(watcher, Watcher)
    seen("loading", 1, 1)
    seen.plan("measuring", [], keeps=True)
    seen("references", 1, 2)
    seen("draws", 0, 1)  # the references ended without a word
    seen("draws", 1, 1)
    seen.end()
    assert seen.seconds == {
        "loading": 5.0,
        "forecast": 2.0,
        "references": 4.0,
        "draws": 4.0,
        "privacy, result": 6.0,
    }
