import pytest
from fake_models import FakeDirectory, fake_task
from tiny_sweeps import MODELS, prepared_at

import lmexposure.sweeps.driver
from lmexposure.sweeps import SweepDirectory, run_task


@pytest.fixture
def fake_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver deals out models that nobody trains."""
    monkeypatch.setattr(lmexposure.sweeps.driver, "SweepDirectory", FakeDirectory)
    monkeypatch.setattr(lmexposure.sweeps.driver, "task", fake_task)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    """A sweep whose models are all there, and kept; to be read, who changes it takes a copy."""
    directory = prepared_at(tmp_path_factory.mktemp("trained") / "sweep", keep_weights=True)
    for number in range(MODELS):
        run_task(directory.out, number)
    return directory
