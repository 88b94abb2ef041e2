"""Device, number type and batch size follow what the machine has."""

from __future__ import annotations

import pytest
import torch

from headwatch_indexer import devices


def test_cuda_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA card is taken where torch sees one, then Apple's, then the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices.best_device() == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert devices.best_device() == "mps"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert devices.best_device() == "cpu"


@pytest.mark.parametrize(("free_gib", "tokens"), [(0.1, 4096), (2, 5461), (10, 27306), (139, 131_072)])
def test_batch_follows_free_gpu_memory(monkeypatch: pytest.MonkeyPatch, free_gib: float, tokens: int) -> None:
    """A batch takes a quarter of the free memory, within limits; on a CPU its size is fixed."""
    free = int(free_gib * 2**30)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2 * free))
    assert devices.batch_tokens("cuda", 384) == tokens
    assert devices.batch_tokens("cpu", 384) == devices.CPU_BATCH_TOKENS


@pytest.mark.parametrize(("capable", "dtype"), [(True, "bfloat16"), (False, "float16")])
def test_number_type_of_a_card(monkeypatch: pytest.MonkeyPatch, capable: bool, dtype: str) -> None:
    """bfloat16 where the card has it, float16 elsewhere."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: capable)
    assert devices.fastest_dtype("cuda:0") == dtype


def test_number_type_of_this_cpu() -> None:
    """A CPU computes in what a short trial shows to be fastest."""
    assert devices.fastest_dtype("cpu") in ("float32", "bfloat16")
