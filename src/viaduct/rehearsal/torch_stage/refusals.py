"""Functions of PyTorch that the card does not support; each call is reported as a limit."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch

from viaduct.rehearsal import limits
from viaduct.rehearsal.torch_stage import wrappers
from viaduct.rehearsal.torch_stage.cards import cards

# Backends of torch.compile that generate no code, and so work on any device.
_PORTABLE_BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "eager_noexcept")


def install() -> None:
    """Wrap unsupported functions so that their use is reported."""
    torch.nn.DataParallel.__init__ = _report_data_parallel(wrappers.init_data_parallel)  # type: ignore[method-assign]
    torch.nn.DataParallel.forward = wrappers.forward_data_parallel  # type: ignore[method-assign]
    torch.serialization._validate_device = _report_cuda_checkpoint(torch.serialization._validate_device)
    wrappers.wrap_compile(_check_backend)
    for name in ("_lazy_init", "set_device", "Stream", "Event", "get_device_properties"):
        setattr(torch.cuda, name, _refuse_cuda(name, getattr(torch.cuda, name)))
    classes: Any = ((torch.amp.autocast_mode.autocast, "autocast"), (torch.amp.GradScaler, "GradScaler"))
    for kind, name in classes:
        kind.__init__ = _report_cuda_precision(name, kind.__init__)


def _report_data_parallel(function: Any) -> Any:
    """Wrap the constructor of DataParallel to report its use."""

    @functools.wraps(function)
    def init(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        limits.report_violation("data-parallel", device=cards.device_name)
        function(self, module, device_ids, output_device, dim)

    return init


def _report_cuda_checkpoint(function: Any) -> Any:
    """Wrap torch.load's check of a device to report a storage of CUDA."""

    @functools.wraps(function)
    def validate(location: Any, backend_name: str) -> Any:
        if backend_name == "cuda" and not torch.cuda.is_available():
            limits.report_violation("map-location", device=cards.device_name, location=location)
        return function(location, backend_name)

    return validate


def _check_backend(backend: Any) -> None:
    """Report a backend of torch.compile that is neither portable nor called like the card."""
    if isinstance(backend, str) and backend not in (*_PORTABLE_BACKENDS, cards.device_name):
        limits.report_violation("compile", device=cards.device_name, backend=backend)


def _report_cuda_precision(name: str, function: Any) -> Any:
    """Wrap the constructor of autocast or GradScaler to report objects that are made for CUDA."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        device = bound.arguments.get("device_type", bound.arguments.get("device"))
        if device == "cuda" and bound.arguments["enabled"]:
            limits.report_violation("cuda-left", "precision", device=cards.device_name, name=name)
        function(self, *args, **kwargs)

    return init


def _refuse_cuda(name: str, value: Any) -> Any:
    """Wrap a function or class of torch.cuda, which fails without CUDA, so that its use is reported first."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        case = "request" if name == "_lazy_init" else ""  # PyTorch calls _lazy_init for any use of a CUDA device
        limits.report_violation("cuda-left", case, device=cards.device_name, name=name)
        return value(*args, **kwargs)

    if isinstance(value, type):  # stays a type: PyTorch uses it in isinstance
        return type(name, (value,), {"__new__": lambda cls, *args, **kwargs: refuse(*args, **kwargs)})
    return functools.wraps(value)(refuse)
