"""Maps cuda to the card, for the vendors' patches and for an original CUDA script on the stand-in.

A patch is a module such as torch_npu.contrib.transfer_to_npu, whose import lets a CUDA script run on the card. A
TorchFunctionMode replaces CUDA devices in arguments of calls into torch. torch.cuda's functions become the card's,
`.cuda()` becomes `.npu()`, and nccl becomes the card's backend. Device strings in the script's own comparisons are not
changed, as with the vendors' patches.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import re
import sys
import threading
import types
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from viaduct.cards import CARDS
from viaduct.rehearsal.torch_stage import amp, collectives, control
from viaduct.rehearsal.torch_stage.cards import cards, get_card_index
from viaduct.rehearsal.torch_stage.dispatch import make_library
from viaduct.rehearsal.wrapping import wrap

# By plug-in (torch_npu, torch_mlu): the patch module, torch_npu.contrib.transfer_to_npu or torch_mlu's gpu_migration.
_VENDOR_PATCHES = {card.plugin: card.patch_modules[0] for card in CARDS.values()}
_CUDA = re.compile(r"cuda(?::(\d+))?")  # "cuda" or "cuda:1"


def map_to_card(device: Any) -> Any:
    """Return the card for a CUDA device, and other values unchanged."""
    if isinstance(device, str):
        match = _CUDA.fullmatch(device)
        if match is None:
            return device
        return torch.device(cards.device_name, int(match[1]) if match[1] else cards.current_index)
    if isinstance(device, torch.device) and device.type == "cuda":
        return torch.device(cards.device_name, cards.current_index if device.index is None else device.index)
    return device


class CudaToCardMode(TorchFunctionMode):
    """Replaces CUDA devices in positional arguments and `device` of calls into torch, except for torch.device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:
            return func(*args, **(kwargs or {}))  # still cuda, since the script may compare it
        if kwargs and "device" in kwargs:
            device = kwargs["device"]
            is_index = isinstance(device, int) and not isinstance(device, bool)
            kwargs = {**kwargs, "device": torch.device(cards.device_name, device) if is_index else map_to_card(device)}
        return func(*map(map_to_card, args), **(kwargs or {}))


def map_cuda() -> None:
    """Map cuda to the card in this thread and the threads that it starts."""
    cards.accepted_types.add("cuda")
    mode: Any = CudaToCardMode()
    mode.__enter__()

    @wrap(threading.Thread, "run")
    def run_mapped(plain: Any, self: threading.Thread) -> None:
        with CudaToCardMode():
            plain(self)

    make_library("_").fallback(_run_on_card, "CUDA")
    _map_methods()
    _map_default_device()
    _map_autocast()
    _map_load()
    _map_fake_tensors()


def _run_on_card(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator on the card for functions of PyTorch that request CUDA and bypass CudaToCardMode."""
    args = tuple(map_to_card(value) if isinstance(value, torch.device) else value for value in args)
    return operator(*args, **{name: map_to_card(value) for name, value in kwargs.items()})


def _map_methods() -> None:
    """Make `.cuda()` of tensors, storages and modules move them to the card, and `is_cuda` True there."""
    move = getattr(torch.Tensor, cards.device_name)

    def cuda(self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        return move(self, map_to_card(device), non_blocking, **kwargs)

    def storage_cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        return getattr(self, cards.device_name)(map_to_card(device))

    def module_cuda(self: Any, device: Any = None) -> Any:
        return self._apply(lambda tensor: tensor.cuda(device))

    torch.Tensor.cuda = cuda  # type: ignore[method-assign, assignment]
    torch.nn.Module.cuda = module_cuda  # type: ignore[method-assign]
    torch.UntypedStorage.cuda = torch.TypedStorage.cuda = storage_cuda  # type: ignore[method-assign]
    torch.Tensor.is_cuda = property(lambda self: get_card_index(self) >= 0)  # type: ignore[assignment]


def _map_default_device() -> None:
    """Map the device of set_default_device, which PyTorch adds to calls after CudaToCardMode has seen them."""
    from torch.utils._device import DeviceContext

    @wrap(DeviceContext, "__init__")
    def init(plain: Any, self: Any, device: Any) -> None:
        plain(self, map_to_card(device))


def replace_torch_cuda(names: dict[str, Any]) -> None:
    """Replace torch.cuda's functions by the device's."""
    modules = (torch.cuda, torch.cuda.random, torch.cuda.memory, torch.cuda.streams, torch.cuda.graphs)
    for name, value in names.items():
        for module in modules:
            if not name.startswith("__") and (module is torch.cuda or name in vars(module)):
                setattr(module, name, value)
    torch.cuda._lazy_init = control._lazy_init
    cuda_amp: Any = torch.cuda.amp
    cuda_amp.autocast, cuda_amp.GradScaler = amp.autocast, amp.GradScaler
    cuda_amp.custom_fwd, cuda_amp.custom_bwd = amp.custom_fwd, amp.custom_bwd
    cuda_amp.common.amp_definitely_not_available = amp.amp_definitely_not_available


def _map_autocast() -> None:
    """Map the device of autocast('cuda') and GradScaler('cuda') to the card."""

    @wrap(torch.amp.autocast_mode.autocast, "__init__")
    def init_autocast(plain: Any, self: Any, device_type: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, _map_name(device_type), *args, **kwargs)

    @wrap(torch.amp.GradScaler, "__init__")
    def init_scaler(plain: Any, self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        plain(self, _map_name(device), *args, **kwargs)

    for name in ("is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype"):
        wrap(torch, name)(lambda plain, *args: plain(*map(_map_name, args)))


def _map_name(device: Any) -> Any:
    return cards.device_name if isinstance(device, str) and _CUDA.fullmatch(device) else device


def _map_load() -> None:
    """Replace CUDA by the card in the map_location of torch.load and torch.jit.load."""
    for module in (torch, torch.jit):

        @wrap(module, "load")
        def load(plain: Any, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            return plain(f, _map_location(map_location), *args, **kwargs)


def _map_fake_tensors() -> None:
    """Replace CUDA by the card in traced tensors (export, FlexAttention); PyTorch would abort the process."""
    from torch._subclasses.fake_tensor import FakeTensor

    plain_new: Any = FakeTensor.__new__

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return plain_new(cls, *map(map_to_card, args), **{name: map_to_card(value) for name, value in kwargs.items()})

    FakeTensor.__new__ = staticmethod(new)  # type: ignore[method-assign]


def _map_location(location: Any) -> Any:
    """Return a map_location or a storage's location with CUDA devices replaced; strings stay strings."""
    if isinstance(location, dict):
        return {key: _map_location(value) for key, value in location.items()}
    device = map_to_card(location)
    return str(device) if isinstance(location, str) and device is not location else device


def make_vendor_patch_importable(package: str) -> None:
    """Make the vendor's patch importable; its import maps cuda to the card."""
    sys.meta_path.insert(0, _PatchFinder(_VENDOR_PATCHES[package]))


class _PatchFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder and loader of one module: the vendor's patch."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname == self.name else None

    def exec_module(self, module: types.ModuleType) -> None:
        """Map cuda to the card, as importing the vendor's patch does."""
        device = getattr(torch, cards.device_name)
        replace_torch_cuda(vars(device))
        collectives.translate_nccl()
        map_cuda()
        # Priority 4 comes before that of checkpoints.py (5) and PyTorch's own (from 10 on).
        torch.serialization.register_package(4, lambda storage: None, _restore_cuda_storage)


def _restore_cuda_storage(storage: Any, location: str) -> Any:
    """Restore a storage that was saved on CUDA on the card; return None for other locations."""
    restore: Any = torch.serialization.default_restore_location
    return restore(storage, _map_location(location)) if location.startswith("cuda") else None
