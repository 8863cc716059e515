"""Names of NVIDIA's cards, as PyTorch spells them."""

from __future__ import annotations

import pytest

from viaduct.cards import CUDA


def test_the_names_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    assert hasattr(torch.cuda, CUDA.graph_class)
    assert hasattr(torch.cuda, CUDA.range_module)
    assert hasattr(torch.profiler.ProfilerActivity, CUDA.profiler_activity)
    assert torch.distributed.Backend.default_device_backend_map[CUDA.device] == CUDA.backend
    assert all(hasattr(torch, dtype) for dtype in CUDA.dtypes)
