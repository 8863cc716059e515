"""Runs an unchanged CUDA script on the CPU, for the comparison with the migrated script.

PyTorch does not let a stand-in be registered as cuda, so its device is called `gpu`. In the arguments of calls cuda is
replaced by gpu, and `tensor.device` returns cuda for gpu. So copies to the device, operators on tensors of two devices,
and branches on `device.type == "cuda"` behave as on a GPU.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from viaduct.rehearsal.torch_stage import checkpoints, collectives, mapping, streams, surface, tensors, wrappers
from viaduct.rehearsal.torch_stage.cards import get_card_index
from viaduct.rehearsal.wrapping import wrap

NAME = "gpu"  # of the device in PyTorch
MEMORY_BYTES = 80 << 30  # of each card


class _Properties(surface.Properties):
    name = "CPU, called a CUDA device by viaduct"
    major = 8
    minor = 0
    multi_processor_count = 108
    warp_size = 32


def build() -> types.ModuleType:
    """Make the module whose names replace those of torch.cuda."""
    names = surface.collect_shared_names() | surface.make_property_functions(_Properties)
    names |= {"get_arch_list": lambda: ["sm_80"], "nvtx": surface.ProfileRanges}
    return surface.make_module(f"torch_{NAME}", names)


def install() -> None:
    """Make the stand-in appear as cuda to the script."""
    tensors.install()
    streams.Stream.cuda_stream = property(streams._handle)  # type: ignore[attr-defined]
    device_module = getattr(torch, NAME)  # from `build`; PyTorch gives it the device's name when it is registered
    mapping.replace_torch_cuda(vars(device_module))
    checkpoints.install("cuda")
    if torch.distributed.is_available():
        collectives.install_as_nccl()
    _show_cards_as_cuda()
    wrappers.wrap_compile(lambda backend: None)  # any backend is accepted
    wrappers.replace_data_parallel()
    mapping.map_cuda()


def _show_cards_as_cuda() -> None:
    """Let `tensor.device` and `tensor.type()` return cuda for tensors of the card."""
    plain_device = torch._C.TensorBase.device.__get__

    def device(self: torch.Tensor) -> torch.device:
        index = get_card_index(self)
        return torch.device("cuda", index) if index >= 0 else plain_device(self)

    torch.Tensor.device = property(device)  # type: ignore[assignment]

    @wrap(torch.Tensor, "type")
    def type_name(plain: Any, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = plain(self, *args, **kwargs)
        return result.replace(f"torch.{NAME}.", "torch.cuda.") if isinstance(result, str) else result
