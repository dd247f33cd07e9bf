import pytest
from fake_models import FakeDirectory, fake_task
from tiny_sweeps import MODELS, tiny_settings, trained_at

import lmexposure.sweeps.driver
from lmexposure.sweeps import SweepDirectory


@pytest.fixture
def fake_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver deals out models that nobody trains."""
    monkeypatch.setattr(lmexposure.sweeps.driver, "SweepDirectory", FakeDirectory)
    monkeypatch.setattr(lmexposure.sweeps.driver, "task", fake_task)
    monkeypatch.setattr(lmexposure.sweeps.driver, "_with_scores", lambda directory: 1.25)
    monkeypatch.setattr(lmexposure.sweeps.driver, "_bytes_of_a_model", lambda *_: 5_000_000)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    """A sweep whose models are all there, and kept; to be read, who changes it takes a copy."""
    out = tmp_path_factory.mktemp("trained") / "sweep"
    return trained_at(out, tiny_settings(keep_weights=True), numbers=range(MODELS))
