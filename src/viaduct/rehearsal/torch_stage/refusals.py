"""Functions of PyTorch that the card does not support; each call is reported as a limit."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch

from viaduct.rehearsal import limits
from viaduct.rehearsal.torch_stage import wrappers
from viaduct.rehearsal.torch_stage.cards import cards
from viaduct.rehearsal.wrapping import wrap

# Backends of torch.compile that generate no code, and so work on any device.
_PORTABLE_BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "eager_noexcept")


def install() -> None:
    """Wrap unsupported functions so that their use is reported."""
    wrappers.replace_data_parallel()
    wrap(torch.nn.DataParallel, "__init__")(_report_data_parallel)
    wrap(torch.serialization, "_validate_device")(_report_cuda_checkpoint)
    wrappers.wrap_compile(_check_backend)
    for name in ("_lazy_init", "set_device", "Stream", "Event", "get_device_properties"):
        setattr(torch.cuda, name, _refuse_cuda(name, getattr(torch.cuda, name)))
    for kind in (torch.amp.autocast_mode.autocast, torch.amp.GradScaler):
        _report_cuda_precision(kind)


def _report_data_parallel(plain: Any, *args: Any, **kwargs: Any) -> None:
    limits.report_violation("data-parallel", device=cards.device_name)
    plain(*args, **kwargs)


def _report_cuda_checkpoint(plain: Any, location: Any, backend_name: str) -> Any:
    """Report a storage of CUDA, and check the device of a storage as torch.load does."""
    if backend_name == "cuda" and not torch.cuda.is_available():
        limits.report_violation("map-location", device=cards.device_name, location=location)
    return plain(location, backend_name)


def _check_backend(backend: Any) -> None:
    """Report a backend of torch.compile that is neither portable nor called like the card."""
    if isinstance(backend, str) and backend not in (*_PORTABLE_BACKENDS, cards.device_name):
        limits.report_violation("compile", device=cards.device_name, backend=backend)


def _report_cuda_precision(kind: Any) -> None:
    """Wrap the constructor of autocast or GradScaler to report objects that are made for CUDA."""
    signature = inspect.signature(kind.__init__)

    @wrap(kind, "__init__")
    def init(plain: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        device = bound.arguments.get("device_type", bound.arguments.get("device"))
        if device == "cuda" and bound.arguments["enabled"]:
            limits.report_violation("cuda-left", "precision", device=cards.device_name, name=kind.__name__)
        plain(*args, **kwargs)


def _refuse_cuda(name: str, value: Any) -> Any:
    """Wrap a function or class of torch.cuda, which fails without CUDA, so that its use is reported first."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        case = "request" if name == "_lazy_init" else ""  # PyTorch calls _lazy_init for any use of a CUDA device
        limits.report_violation("cuda-left", case, device=cards.device_name, name=name)
        return value(*args, **kwargs)

    if isinstance(value, type):  # stays a type: PyTorch uses it in isinstance
        return type(name, (value,), {"__new__": lambda cls, *args, **kwargs: refuse(*args, **kwargs)})
    return functools.wraps(value)(refuse)
