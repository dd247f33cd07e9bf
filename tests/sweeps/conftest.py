from pathlib import Path

import pytest
from fake_models import FakeDirectory, fake_task
from tiny_sweeps import MODELS, corpus_at, tiny_settings

import lmexposure.sweeps.driver
from lmexposure.sweeps import SweepDirectory, prepare, run_task


@pytest.fixture
def fake_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver deals out models that nobody trains."""
    monkeypatch.setattr(lmexposure.sweeps.driver, "SweepDirectory", FakeDirectory)
    monkeypatch.setattr(lmexposure.sweeps.driver, "task", fake_task)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    """A sweep whose models are all there, and kept; to be read, who changes it takes a copy."""
    out: Path = tmp_path_factory.mktemp("trained") / "sweep"
    prepare(corpus_at(out.parent), out=out, settings=tiny_settings(keep_weights=True))
    for number in range(MODELS):
        run_task(out, number)
    return SweepDirectory.open(out)
