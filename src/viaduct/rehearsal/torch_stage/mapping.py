"""Maps cuda to the card: for the vendors' run-time patches, and for an original CUDA script on the stand-in.

A TorchFunctionMode replaces CUDA devices among the arguments of calls into torch. torch.cuda's functions become the
card's own, `.cuda()` becomes `.npu()`, nccl the card's backend. A script that compares device strings itself is not
helped, nor is it by the vendors' patches.
"""

from __future__ import annotations

import functools
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
from viaduct.rehearsal.torch_stage.cards import card_of, cards
from viaduct.rehearsal.torch_stage.dispatch import library

_PATCHES = {card.module: card.patches[0] for card in CARDS.values()}
_CUDA = re.compile(r"cuda(?::(\d+))?")
_NUMBERED = {torch.Tensor.to, torch.Tensor.cuda}


def card_for(device: Any) -> Any:
    """Return the card that a CUDA device stands for, and anything else unchanged."""
    if isinstance(device, str):
        match = _CUDA.fullmatch(device)
        if match is None:
            return device
        return torch.device(cards.name, int(match[1]) if match[1] else cards.current)
    if isinstance(device, torch.device) and device.type == "cuda":
        return torch.device(cards.name, cards.current if device.index is None else device.index)
    return device


class CudaMeansCard(TorchFunctionMode):
    """Replaces CUDA devices in the arguments of calls into torch, but for torch.device itself."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:
            return func(*args, **(kwargs or {}))  # stays cuda: the script may compare it
        if kwargs:
            if "device" in kwargs:
                device = kwargs["device"]
                number = isinstance(device, int) and not isinstance(device, bool)
                kwargs = {**kwargs, "device": torch.device(cards.name, device) if number else card_for(device)}
            return func(*self._map_arguments(args), **kwargs)
        return func(*self._map_arguments(args))

    def _map_arguments(self, args: Any) -> Any:
        for value in args:
            if isinstance(value, str | torch.device):
                return tuple(card_for(value) for value in args)
        return args


def map_cuda() -> None:
    """Map cuda to the card, in this thread and in those that it starts."""
    cards.names.add("cuda")
    mode: Any = CudaMeansCard()
    mode.__enter__()
    run = threading.Thread.run

    def run_mapped(self: threading.Thread) -> None:
        with CudaMeansCard():
            run(self)

    threading.Thread.run = run_mapped  # type: ignore[method-assign]
    library("_").fallback(_make_on_card, "CUDA")
    _methods()
    _default_device()
    _precision()
    _loading()
    _traced_tensors()


def _make_on_card(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a tensor on the card that PyTorch's own functions, which the mode does not see, request on CUDA."""
    args = tuple(card_for(value) if isinstance(value, torch.device) else value for value in args)
    return operator(*args, **{name: card_for(value) for name, value in kwargs.items()})


def _methods() -> None:
    own = getattr(torch.Tensor, cards.name)

    def cuda(self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        return own(self, card_for(device), non_blocking, **kwargs)

    def storage_cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        return getattr(self, cards.name)(card_for(device))

    def module_cuda(self: Any, device: Any = None) -> Any:
        return self._apply(lambda tensor: tensor.cuda(device))

    torch.Tensor.cuda = cuda  # type: ignore[method-assign, assignment]
    torch.nn.Module.cuda = module_cuda  # type: ignore[method-assign]
    torch.UntypedStorage.cuda = torch.TypedStorage.cuda = storage_cuda  # type: ignore[method-assign]
    torch.Tensor.is_cuda = property(lambda self: card_of(self) >= 0)  # type: ignore[assignment]


def _default_device() -> None:
    """Wrap set_default_device: its mode lies beneath all others, so that it must be given the card itself."""
    from torch.utils._device import DeviceContext as context

    begin = context.__init__

    def init(self: Any, device: Any) -> None:
        begin(self, card_for(device))

    context.__init__ = init  # type: ignore[method-assign]


def torch_cuda(names: dict[str, Any]) -> None:
    """torch.cuda's functions are the device's."""
    parts = (torch.cuda, torch.cuda.random, torch.cuda.memory, torch.cuda.streams, torch.cuda.graphs)
    for name, value in names.items():
        for part in parts:
            if not name.startswith("__") and (part is torch.cuda or name in vars(part)):
                setattr(part, name, value)
    torch.cuda._lazy_init = control._lazy_init
    precision: Any = torch.cuda.amp
    precision.autocast, precision.GradScaler = amp.autocast, amp.GradScaler
    precision.custom_fwd, precision.custom_bwd = amp.custom_fwd, amp.custom_bwd
    precision.common.amp_definitely_not_available = amp.amp_definitely_not_available


def _precision() -> None:
    """Make autocast('cuda') and GradScaler('cuda') the card's."""
    classes: Any = ((torch.amp.autocast_mode.autocast, "device_type"), (torch.amp.GradScaler, "device"))
    for cls, parameter in classes:
        cls.__init__ = _first_mapped(cls.__init__, parameter)
    for name in ("is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype"):
        setattr(torch, name, _wrap_names(getattr(torch, name)))


def _first_mapped(function: Any, parameter: str) -> Any:
    @functools.wraps(function)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if args:
            args = (_name(args[0]), *args[1:])
        elif parameter in kwargs:
            kwargs[parameter] = _name(kwargs[parameter])
        elif parameter == "device":
            kwargs[parameter] = cards.name
        function(self, *args, **kwargs)

    return init


def _wrap_names(function: Any) -> Any:
    return functools.wraps(function)(lambda *args: function(*(_name(value) for value in args)))


def _name(device: Any) -> Any:
    return cards.name if isinstance(device, str) and _CUDA.fullmatch(device) else device


def _loading() -> None:
    load = torch.load

    @functools.wraps(load)
    def load_mapped(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return load(f, _location(map_location), *args, **kwargs)

    load_script: Any = torch.jit.load

    @functools.wraps(load_script)
    def mapped_script(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return load_script(f, _location(map_location), *args, **kwargs)

    torch.load, torch.jit.load = load_mapped, mapped_script


def _traced_tensors() -> None:
    """Name the card in tensors that are only traced (export, FlexAttention): PyTorch ends the process over CUDA."""
    from torch._subclasses.fake_tensor import FakeTensor

    make: Any = FakeTensor.__new__

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return make(cls, *map(card_for, args), **{name: card_for(value) for name, value in kwargs.items()})

    FakeTensor.__new__ = staticmethod(new)  # type: ignore[method-assign]


def _location(where: Any) -> Any:
    if isinstance(where, dict):
        return {key: _map_location(value) for key, value in where.items()}
    return where if callable(where) else _map_location(where)


def _map_location(where: Any) -> Any:
    placed = card_for(where)
    return str(placed) if isinstance(where, str) and placed is not where else placed


def offer(package: str) -> None:
    """Make the vendor's patch importable; its import maps cuda to the card."""
    sys.meta_path.insert(0, _Finder(_PATCHES[package]))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname == self.name else None

    def exec_module(self, module: types.ModuleType) -> None:
        """Map cuda to the card, as importing the vendor's patch does."""
        device = getattr(torch, cards.name)
        torch_cuda(vars(device))
        collectives.translate_nccl()
        map_cuda()
        torch.serialization.register_package(4, lambda storage: None, _cuda_file)


def _cuda_file(storage: Any, location: str) -> Any:
    """Restore a storage of CUDA on the card; None for other locations."""
    restored: Any = torch.serialization.default_restore_location
    return restored(storage, _map_location(location)) if location.startswith("cuda") else None
