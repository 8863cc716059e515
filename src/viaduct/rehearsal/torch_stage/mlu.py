"""The modules of torch_mlu, with cnpx and cncl, the counterparts of torch.cuda.nvtx and nccl."""

from __future__ import annotations

import types
from typing import Any

import torch

from viaduct.cards import MLU
from viaduct.rehearsal.torch_stage import profiling, surface
from viaduct.rehearsal.torch_stage.cards import cards

PACKAGE = MLU.plugin  # torch_mlu, the vendor's plug-in
MEMORY_BYTES = 80 << 30  # of each card


class _Properties(surface.Properties):
    name = "MLU590-M9"
    major = 5
    minor = 0
    multi_processor_count = 48


class cncl:
    """Version and availability of the collective library: torch.mlu.cncl."""

    @staticmethod
    def version() -> tuple[int, int, int]:
        return (1, 16, 0)

    @staticmethod
    def is_available(tensors: Any) -> bool:
        return all(tensor.device.type == cards.device_name for tensor in tensors)


def build() -> types.ModuleType:
    """Make torch_mlu with its submodules, and return the module that becomes torch.mlu."""
    names = surface.collect_shared_names() | surface.make_property_functions(_Properties)
    names |= {MLU.range_module: surface.ProfileRanges, MLU.backend: cncl}
    device = surface.make_plugin(PACKAGE, {}, names)
    contents = {**profiling.make_module_contents(), "emit_cnpx": profiling.emit_cnpx}
    surface.make_module(f"{PACKAGE}.profiler", contents, package=True)
    _make_backends()
    return device


def _make_backends() -> None:
    """Make torch.backends.mlu, cnnl and mlufusion, whose attributes scripts set without effect."""
    matmul = types.SimpleNamespace(allow_tf32=False)
    surface.make_module("torch.backends.mlu", {"matmul": matmul, "is_built": lambda: True})
    surface.make_module("torch.backends.cnnl", {"allow_tf32": True, "enabled": True, "is_available": lambda: True})
    surface.make_module("torch.backends.mlufusion", {"enabled": False})
    torch.autograd.profiler.emit_cnpx = profiling.emit_cnpx  # type: ignore[attr-defined]
