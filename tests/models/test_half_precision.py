"""Whether a CPU computes in bfloat16 is asked of it, and a user who asks for more is told."""

from typing import Any

import pytest
import torch

from lmexposure.models import is_native, warn_imitated


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


def test_who_asks_for_it_is_told(cpu_with: Any, caplog: pytest.LogCaptureFixture) -> None:
    cpu_with("avx512_bf16")
    warn_imitated(torch.bfloat16, "cpu")
    assert not caplog.records
    cpu_with()
    warn_imitated(torch.bfloat16, "cpu")
    assert "no instructions for bfloat16: it is several times slower here" in caplog.text
