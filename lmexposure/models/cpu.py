"""What a processor computes with: the number of threads, and half precision where it has it.

The last bits of a loss or a score depend on the number of threads, and not on how busy the machine
is. So the number is chosen once by the model's size and recorded, and work that is resumed goes on
with it.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from lmexposure.models.load import LoadedModel

_LOG = logging.getLogger(__name__)
# Below this size a second thread gains next to nothing: an operation ends before a thread wakes. An
# LSTM of 2 x 200 units has .7 million parameters, and gains 12 % on a quiet machine.
_WORTH_THREADS = 1_000_000
# As `torch.cpu.get_capabilities` names them, on x86 and ARM.
_NEEDS_ONE_OF = {
    torch.bfloat16: {"avx512_bf16", "amx_bf16", "bf16"},
    torch.float16: {"avx512_fp16", "amx_fp16", "fp16_arith"},
}


def threads_for(
    loaded: "LoadedModel", *, asked: int | None = None, recorded: int | None = None
) -> int:
    """The number of threads for a training or a measurement."""
    if recorded is not None:
        if asked not in (None, recorded):
            _LOG.warning(
                "this goes on with threads=%d, as it began, and not with %d: the last bits of its "
                "numbers depend on it",
                recorded,
                asked,
            )
        return recorded
    if asked is not None:
        return asked
    small = sum(parameter.numel() for parameter in loaded.model.parameters()) < _WORTH_THREADS
    return 1 if small and "OMP_NUM_THREADS" not in os.environ else torch.get_num_threads()


@contextmanager
def computing_threads(number: int) -> Iterator[None]:
    """Let torch compute with this number of threads; then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def training_places(device: str) -> int:
    """Cores of this machine, or GPUs where the models are trained on them."""
    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.device_count() if device in ("auto", "cuda") else 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_native(dtype: torch.dtype, device: str | torch.device) -> bool | None:
    """Whether products in `dtype` are no slower on this device than in float32."""
    if torch.device(device).type != "cpu" or dtype not in _NEEDS_ONE_OF:
        return True
    able = _capabilities()
    return bool(able & _NEEDS_ONE_OF[dtype]) if able else None


@contextmanager
def lstm_kernels(inputs: Tensor) -> Iterator[None]:
    """Let an LSTM read `inputs` without oneDNN where it has no kernel for autocast's precision."""
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    if dtype is None or inputs.device.type != "cpu" or _onednn_casts_lstm(dtype):
        yield
        return
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


@cache
def _onednn_casts_lstm(dtype: torch.dtype) -> bool:
    """Found by trying: without AVX-512 it is handed the LSTM all the same, and refuses it."""
    with torch.random.fork_rng(devices=[]):
        tried = torch.nn.LSTM(1, 1)
    try:
        with torch.autocast("cpu", dtype=dtype):
            tried(torch.zeros(1, 1, 1))
    except RuntimeError:
        return False
    return True


def warn_imitated(dtype: torch.dtype, device: str | torch.device) -> None:
    """Warn a user who asks for a precision that makes this machine slower."""
    if is_native(dtype, device) is False:
        _LOG.warning(
            "this CPU has no instructions for %s: it is several times slower here than float32, "
            "and saves memory alone; choose float32 for speed",
            str(dtype).removeprefix("torch."),
        )


def _capabilities() -> set[str]:
    """What the CPU has, by name; nothing where torch cannot tell."""
    try:
        return {name for name, has in torch.cpu.get_capabilities().items() if has is True}
    except (AttributeError, RuntimeError):  # older versions have no such function
        return set()
