"""What this machine computes an embedding best on: device, number type, batch size."""

from __future__ import annotations

import time
from typing import Any

CPU_BATCH_TOKENS = 2048  # measured: 1,024 to 4,096 padded tokens are equally fast, 8,192 is 15 % slower
GPU_BATCH_TOKENS = (4096, 131_072)


def best_device() -> str:
    """Choose cuda, mps or cpu."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def batch_tokens(device: str, dim: int) -> int:
    """Padded tokens a batch: a quarter of the free GPU memory at ~64 activations of 4 bytes a dimension."""
    if not device.startswith("cuda"):
        return CPU_BATCH_TOKENS
    import torch

    free_bytes, _ = torch.cuda.mem_get_info(device)
    least, most = GPU_BATCH_TOKENS
    return min(max(free_bytes // 4 // (dim * 64 * 4), least), most)


def fastest_dtype(device: str) -> str:
    """Choose what a device computes fastest at sufficient precision: float32, bfloat16 or float16."""
    import torch

    if device.startswith("cuda"):
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    if device.startswith("mps"):
        return "float16"
    # Feature flags do not tell: a CPU may emulate bfloat16, slowly. A few milliseconds of work do.
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        rows, weights = torch.ones(512, 384, dtype=dtype), torch.ones(384, 1536, dtype=dtype)
        torch.mm(rows, weights)
        seconds[dtype] = min(_seconds_to_multiply(rows, weights) for _ in range(7))
    return "bfloat16" if seconds[torch.bfloat16] * 1.2 < seconds[torch.float32] else "float32"


def _seconds_to_multiply(rows: Any, weights: Any) -> float:
    import torch

    start = time.perf_counter()
    torch.mm(rows, weights)
    return time.perf_counter() - start
