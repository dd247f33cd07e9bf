"""A real sweep, the tiniest, as gate and report show it: numbers of its own, and no chosen seed."""

from pathlib import Path

import pytest
from tiny_sweeps import corpus_at, tiny_settings

import lmexposure as lx
from lmexposure.core import Outcome, Thresholds, write_report
from lmexposure.studies import SweepPlan, SweepResult
from lmexposure.sweeps import sweep

SEED = 918_273_645


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shown")
    settings = tiny_settings().override({"seed": SEED, "formats": ("pin",)})
    sweep([str(corpus_at(place))], out=place / "recipe", settings=settings, workers=1)
    return place / "recipe"


def test_a_sweep_of_few_models_is_inconclusive_and_says_how_many_it_takes(home: Path) -> None:
    verdict = lx.check(home)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    worst = next(check for check in verdict.checks if check.key == "worst_canary")
    assert "5 models are too few for the worst of 6 canaries" in worst.reason
    assert lx.check(home, Thresholds(max_epsilon=0.1)).exit_code == 2


def test_every_form_shows_it_without_a_seed_that_was_chosen(home: Path) -> None:
    assert SweepPlan.read(home).settings.run.seed == SEED
    assert SweepResult.read(home).settings.run.seed is None
    written = write_report(lx.open(home), home, formats=("html", "md", "csv", "json"))
    for path in [home / "sweep.json", *written]:
        assert str(SEED).encode() not in path.read_bytes(), path.name
    page = (home / "report.html").read_text()
    assert "<title>recipe: inconclusive (lmexposure)</title>" in page
    assert "pin/x1/" in page
