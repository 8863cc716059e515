"""The modules of torch_mlu, and its names that torch.cuda does not have: cnpx, cncl."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch

from viaduct.cards import MLU
from viaduct.rehearsal.torch_stage import profiling, streams, surface
from viaduct.rehearsal.torch_stage.cards import cards

NAME = MLU.name  # of the device in PyTorch
PACKAGE = MLU.plugin  # the vendor's plug-in
MEMORY = 80 << 30  # bytes of each card


class _Properties(surface.Properties):
    name = "MLU590-M9"
    major = 5
    minor = 0
    multi_processor_count = 48


class cnpx:
    """torch.mlu.cnpx, which marks ranges in a profile as torch.cuda.nvtx does."""

    _ranges = 0  # ranges that are open

    @staticmethod
    def mark(msg: str) -> None:
        pass

    @classmethod
    def range_push(cls, msg: str) -> int:
        cls._ranges += 1
        return cls._ranges - 1

    @classmethod
    def range_pop(cls) -> int:
        cls._ranges = max(cls._ranges - 1, 0)
        return cls._ranges

    @staticmethod
    @contextlib.contextmanager
    def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
        with torch.profiler.record_function(msg.format(*args, **kwargs)):
            yield


class cncl:
    """Version and availability of the collective library: torch.mlu.cncl."""

    @staticmethod
    def version() -> tuple[int, int, int]:
        return (1, 16, 0)

    @staticmethod
    def is_available(tensors: Any) -> bool:
        return all(tensor.device.type == cards.name for tensor in tensors)


def build() -> types.ModuleType:
    """Make torch_mlu with its submodules, and return the module that becomes torch.mlu."""
    streams.Stream.mlu_stream = property(streams._handle)  # type: ignore[attr-defined]
    surface.make_module(PACKAGE, {"__version__": torch.__version__.partition("+")[0]}, package=True)
    names = surface.collect_shared_names() | surface.make_property_functions(_Properties)
    names |= surface.collect_defined_names(__name__)
    device = surface.make_device_module(f"{PACKAGE}.mlu", names)
    surface.make_submodules(f"{PACKAGE}.mlu")
    contents = {**profiling.make_module_contents(), "emit_cnpx": profiling.emit_cnpx}
    surface.make_module(f"{PACKAGE}.profiler", contents, package=True)
    surface.make_module(f"{PACKAGE}.utils", {}, package=True)
    _make_backends()
    return device


def _make_backends() -> None:
    """Make torch.backends.mlu, cnnl and mlufusion, whose attributes scripts set without effect."""
    matmul = types.SimpleNamespace(allow_tf32=False)
    surface.make_module("torch.backends.mlu", {"matmul": matmul, "is_built": lambda: True})
    surface.make_module("torch.backends.cnnl", {"allow_tf32": True, "enabled": True, "is_available": lambda: True})
    surface.make_module("torch.backends.mlufusion", {"enabled": False})
    torch.autograd.profiler.emit_cnpx = profiling.emit_cnpx  # type: ignore[attr-defined]
