"""Threads, by size and by the user's word; and whether a CPU computes in bfloat16."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lmexposure.models import computing_threads, threads_for, warn_imitated
from lmexposure.models.weights import is_native

SMALL: Any = SimpleNamespace(size=40_200)
LARGE: Any = SimpleNamespace(size=10**6)


@pytest.fixture
def three() -> Iterator[None]:
    """A process that computes with three threads; nothing is computed with them here."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three")
def test_a_small_model_has_one_thread_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert (threads_for(SMALL), threads_for(LARGE)) == (1, 3)
    assert (threads_for(SMALL, asked=2), threads_for(LARGE, asked=2)) == (2, 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert (threads_for(SMALL), threads_for(SMALL, asked=2)) == (3, 2)
    assert not caplog.records


@pytest.mark.usefixtures("three")
def test_what_was_begun_goes_on_with_its_own(caplog: pytest.LogCaptureFixture) -> None:
    assert threads_for(LARGE, recorded=8) == 8
    assert not caplog.records
    assert threads_for(LARGE, asked=2, recorded=8) == 8
    assert "goes on with threads=8, as it began, and not with 2" in caplog.text


@pytest.mark.usefixtures("three")
def test_the_process_has_its_threads_back() -> None:
    with computing_threads(2):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 3
    with pytest.raises(KeyError), computing_threads(1):
        raise KeyError
    assert torch.get_num_threads() == 3


@pytest.fixture
def cpu_with(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the CPU say that it has these instructions and no others."""

    def has(*names: str) -> None:
        able = {"avx2": True, "avx512_f": False, "l2_cache_size": 1 << 20}
        monkeypatch.setattr(
            torch.cpu, "get_capabilities", lambda: able | dict.fromkeys(names, True), raising=False
        )

    return has


@pytest.mark.parametrize(
    ("names", "dtype", "native"),
    [
        ((), torch.bfloat16, False),
        (("avx512_bf16",), torch.bfloat16, True),
        (("amx_bf16",), torch.bfloat16, True),
        (("bf16",), torch.bfloat16, True),
        (("avx512_bf16",), torch.float16, False),
        (("amx_fp16",), torch.float16, True),
        ((), torch.float32, True),
    ],
)
def test_the_machine_is_asked(cpu_with: Any, names: Any, dtype: torch.dtype, native: bool) -> None:
    cpu_with(*names)
    assert is_native(dtype, "cpu") is native
    assert is_native(dtype, torch.device("cuda:0")) is True


def test_a_machine_that_does_not_say_is_believed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert is_native(torch.bfloat16, "cpu") is None
    warn_imitated(torch.bfloat16, "cpu")
    assert not caplog.records
