"""What the machine itself can do: the best rate of a bare matrix multiplication."""

import time

import torch

__all__ = ["matmul_peak"]

# (rows, inner, columns): a square one, and those of GPT-2's and of the LSTM's layers.
_CPU_SHAPES = ((1024, 1024, 1024), (2048, 768, 3072), (1024, 400, 800))
_GPU_SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (32768, 768, 3072))
_TURNS = 4


def matmul_peak(device: str = "cpu", dtype: torch.dtype = torch.float32) -> float:
    """Floating-point operations a second, best over a few shapes and turns.

    Args:
        device: "cpu" or "cuda"; on the CPU with the threads that torch has now.
        dtype: of both factors and the product.
    """
    shapes = _CPU_SHAPES if device == "cpu" else _GPU_SHAPES
    return max(_rate(shape, device, dtype) for shape in shapes)


def _rate(shape: tuple[int, int, int], device: str, dtype: torch.dtype) -> float:
    n, k, m = shape
    a = torch.randn(n, k, device=device, dtype=dtype)
    b = torch.randn(k, m, device=device, dtype=dtype)
    out = torch.mm(a, b)
    best = 0.0
    for _ in range(_TURNS):
        _wait(device)
        begun = time.perf_counter()
        torch.mm(a, b, out=out)
        _wait(device)
        best = max(best, 2 * n * k * m / (time.perf_counter() - begun))
    return best


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()
