"""Whether this machine's CPU computes in bfloat16 or float16, or only imitates it at a loss."""

import logging

import torch

_LOG = logging.getLogger(__name__)
# As `torch.cpu.get_capabilities` names them, on x86 and ARM.
_NEEDS_ONE_OF = {
    torch.bfloat16: {"avx512_bf16", "amx_bf16", "bf16"},
    torch.float16: {"avx512_fp16", "amx_fp16", "fp16_arith"},
}


def is_native(dtype: torch.dtype, device: str | torch.device) -> bool | None:
    """Whether products in `dtype` are no slower on this device than in float32.

    Without instructions of its own a CPU is about 3.5 times slower in bfloat16 than in float32.

    Returns:
        None where the machine does not say: a version of torch without the question.
    """
    if torch.device(device).type != "cpu" or dtype not in _NEEDS_ONE_OF:
        return True
    able = _capabilities()
    return bool(able & _NEEDS_ONE_OF[dtype]) if able else None


def warn_imitated(dtype: torch.dtype, device: str | torch.device) -> None:
    """Tell whoever asked for a precision that it makes this machine slower."""
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
