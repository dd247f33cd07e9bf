"""One small run for all tests that only read it."""

import pytest
from made_results import small_run

from lmexposure.reporting import ReportData, report_data
from lmexposure.studies import RunFiles, open_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    """A whole run, with its manifest and training."""
    return open_run(small_run(tmp_path_factory.mktemp("whole") / "mine"))


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    """A measurement alone."""
    return open_run(small_run(tmp_path_factory.mktemp("measured") / "m", whole=False))


@pytest.fixture(scope="session")
def data(run: RunFiles) -> ReportData:
    return report_data(run)
