"""Runs an unchanged CUDA script on the CPU: the side that a migrated script is compared with.

PyTorch does not let the name cuda be registered, so the stand-in is called `gpu`. CUDA devices in the arguments of
calls are replaced by it, and `tensor.device` answers cuda. So a copy to the device is a copy, tensors of two devices do
not mix, and a branch on `device.type == "cuda"` is taken as on a GPU.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch

from viaduct.rehearsal.torch_stage import checkpoints, collectives, compiling, mapping, parallel, streams, tensors
from viaduct.rehearsal.torch_stage.cards import card_of, cards, index_of
from viaduct.rehearsal.torch_stage.surface import module, shared

NAME = "gpu"
CARD = "CPU, called a CUDA device by viaduct"
MEMORY = 80 << 30


class _Properties:
    """Result of get_device_properties: compute capability 8.0, which has bf16 and no newer kernels."""

    name = CARD
    major = 8
    minor = 0
    multi_processor_count = 108
    warp_size = 32

    def __init__(self) -> None:
        self.total_memory = cards.memory


def get_device_name(device: Any = None) -> str:
    index_of(mapping.card_for(device))
    return CARD


def get_device_properties(device: Any = None) -> _Properties:
    index_of(mapping.card_for(device))
    return _Properties()


def get_device_capability(device: Any = None) -> tuple[int, int]:
    return _Properties.major, _Properties.minor


def get_arch_list() -> list[str]:
    return ["sm_80"]


class nvtx:
    """Marks in a profile."""

    @staticmethod
    def mark(msg: str) -> None:
        pass

    @staticmethod
    def range_push(msg: str) -> int:
        return 0

    @staticmethod
    def range_pop() -> int:
        return 0

    @staticmethod
    @contextlib.contextmanager
    def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
        yield


_OWN = (get_device_name, get_device_properties, get_device_capability, get_arch_list, nvtx)


def build() -> types.ModuleType:
    return module(f"torch_{NAME}", {**shared(), **{member.__name__: member for member in _OWN}})


def install() -> None:
    """Make the stand-in appear as cuda to the script."""
    tensors.install()
    streams.Stream.cuda_stream = property(streams._handle)  # type: ignore[attr-defined]
    mapping.torch_cuda(vars(getattr(torch, NAME)))
    checkpoints.install(written="cuda")
    if torch.distributed.is_available():
        collectives.install_as_nccl()
    _report_cuda()
    compiling.install(lambda backend: None)
    torch.nn.DataParallel.__init__ = parallel.init  # type: ignore[method-assign]
    torch.nn.DataParallel.forward = parallel.forward  # type: ignore[method-assign]
    mapping.map_cuda()


def _report_cuda() -> None:
    def device(self: torch.Tensor) -> torch.device:
        index = card_of(self)
        return torch.device("cuda", index) if index >= 0 else beneath(self)

    def type_name(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        answer = typed(self, *args, **kwargs)
        return answer.replace(f"torch.{NAME}.", "torch.cuda.") if isinstance(answer, str) else answer

    typed, beneath = torch.Tensor.type, torch._C.TensorBase.device.__get__
    torch.Tensor.device = property(device)  # type: ignore[assignment]
    torch.Tensor.type = type_name  # type: ignore[method-assign, assignment]
