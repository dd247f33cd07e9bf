"""One small run for all tests that only read it."""

import pytest
from made_results import small_run

from lmexposure.studies import Result


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A whole run, with its manifest and training."""
    return Result.read(small_run(tmp_path_factory.mktemp("whole") / "mine"))


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A measurement alone."""
    return Result.read(small_run(tmp_path_factory.mktemp("measured") / "m", whole=False))
