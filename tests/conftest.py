"""What holds for every test: one thread, one way to draw examples, no state left behind.

Imports nothing that statistics, verdicts and canaries do without: tests/test_collection.py.
"""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from slow import ROOT, all_are_wanted, changed_files, is_touched

# Models this small only lose time in waiting for a second thread. Said before torch is imported,
# so that it holds for what a module's fixture makes, to the last bit, and in programs of their own.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

# A busy machine fails nothing: no limit in seconds, neither for a test nor for drawing its example.
# Each test draws from a seed of its own, always the same: what fails belongs to the change that
# shows it, not to whoever runs next. A failure prints what `@reproduce_failure` takes. Elsewhere is
# searched with --hypothesis-profile=default.
settings.register_profile(
    "always_the_same",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("always_the_same")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests of what was not changed, where that was asked for."""
    if all_are_wanted():
        return
    changed = changed_files()
    left_out = [
        item
        for item in items
        if item.get_closest_marker("slow")
        and not is_touched(item.path.relative_to(ROOT).as_posix(), changed)
    ]
    config.hook.pytest_deselected(items=left_out)
    passed_over = set(left_out)
    items[:] = [item for item in items if item not in passed_over]


@pytest.fixture(autouse=True)
def own_threads() -> Iterator[None]:
    """Where a test asks for more threads, they are its own."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_accelerate() -> Iterator[None]:
    """A Trainer's precision and device hold for the rest of a process; here, for its test."""
    yield
    state = sys.modules.get("accelerate.state")
    if state is not None and state.AcceleratorState._shared_state:
        state.AcceleratorState._reset_state(reset_partial_state=True)
