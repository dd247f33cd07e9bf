import pytest
from fake_models import FakeDirectory, fake_task

import lmexposure.sweeps.cost
import lmexposure.sweeps.driver


@pytest.fixture
def fake_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver deals out models that nobody trains."""
    for module in (lmexposure.sweeps.driver, lmexposure.sweeps.cost):
        monkeypatch.setattr(module, "SweepDirectory", FakeDirectory)
        monkeypatch.setattr(module, "task", fake_task)
