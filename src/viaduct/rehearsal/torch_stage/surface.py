"""Makes the modules `torch.npu` and `torch.mlu` and their submodules from this folder's files."""

from __future__ import annotations

import importlib.machinery
import linecache
import sys
import types
from typing import Any

import torch

from viaduct.rehearsal import limits
from viaduct.rehearsal.torch_stage import amp, control, graphs, legacy, memory, seeds, streams
from viaduct.rehearsal.torch_stage.cards import cards, resolve_card_index

_SHARED = (control, memory, seeds, streams, graphs)  # their names are in torch.npu and torch.mlu
_PRIVATE = ("_lazy_init", "_is_in_bad_fork")  # names that PyTorch itself calls


class Properties:
    """Base class of the results of get_device_properties; the subclass of a card has its numbers."""

    name: str
    major: int
    minor: int

    def __init__(self) -> None:
        self.total_memory = cards.memory_bytes

    def __repr__(self) -> str:
        kind = f"_{cards.device_name.upper()}DeviceProperties"
        return f"{kind}(name='{self.name}', total_memory={self.total_memory >> 20}MB)"


class ProfileRanges:
    """torch.cuda.nvtx and torch.mlu.cnpx; only `range` is seen by torch's profiler."""

    _depth = 0  # ranges that are open

    @staticmethod
    def mark(msg: str) -> None:
        pass

    @classmethod
    def range_push(cls, msg: str) -> int:
        cls._depth += 1
        return cls._depth - 1

    @classmethod
    def range_pop(cls) -> int:
        cls._depth = max(cls._depth - 1, 0)
        return cls._depth

    @staticmethod
    def range(msg: str, *args: Any, **kwargs: Any) -> Any:
        return torch.profiler.record_function(msg.format(*args, **kwargs))


def make_property_functions(properties: type[Properties]) -> dict[str, Any]:
    """Return the three functions of torch.cuda that describe a device, for a card with these properties."""

    def get_device_name(device: Any = None) -> str:
        resolve_card_index(device)  # raises an error for another device
        return properties.name

    def get_device_properties(device: Any = None) -> Properties:
        resolve_card_index(device)
        return properties()

    def get_device_capability(device: Any = None) -> tuple[int, int]:
        resolve_card_index(device)
        return properties.major, properties.minor

    return {function.__name__: function for function in (get_device_name, get_device_properties, get_device_capability)}


def make_module(name: str, contents: dict[str, Any], package: bool = False) -> types.ModuleType:
    """Make a module of this name, add it to sys.modules and to its parent, and return it."""
    stand_in = types.ModuleType(name, f"A stand-in for {name}, made by viaduct rehearse.")
    stand_in.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=package)
    if package:
        stand_in.__path__ = []
    vars(stand_in).update(contents)
    sys.modules[name] = stand_in
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, stand_in)
    return stand_in


def collect_shared_names() -> dict[str, Any]:
    """Return the public names of the shared modules, and further names that scripts and PyTorch use."""
    names: dict[str, Any] = {}
    for module in _SHARED:
        names |= collect_defined_names(module.__name__)
        names |= {name: vars(module)[name] for name in _PRIVATE if name in vars(module)}
    names.update(legacy.make_types())
    names[f"{cards.name_in_script.upper()}Graph"] = names.pop("Graph")
    names["default_generators"] = (torch.default_generator,) * cards.count
    names["_utils"] = types.SimpleNamespace(_get_device_index=_get_device_index)
    return names


def collect_defined_names(module_name: str) -> dict[str, Any]:
    """Return the public functions and classes that a module defines itself, without `build`."""
    public = {name: value for name, value in vars(sys.modules[module_name]).items() if not name.startswith("_")}
    public.pop("build", None)
    return {name: value for name, value in public.items() if getattr(value, "__module__", None) == module_name}


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return a device's number as torch.cuda._utils._get_device_index does: -1 for the host if that is allowed."""
    if isinstance(device, str):
        device = torch.device(device)
    if allow_cpu and isinstance(device, torch.device) and device.type == "cpu":
        return -1
    if device is None and not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
    return resolve_card_index(device)


def make_plugin(package: str, functions: dict[str, Any], names: dict[str, Any]) -> types.ModuleType:
    """Make the vendor's package with these functions, and return its module with `names`, which becomes torch.npu."""
    setattr(streams.Stream, f"{cards.device_name}_stream", property(streams._handle))
    version = torch.__version__.partition("+")[0]
    make_module(package, {"__version__": version, **functions}, package=True)
    device_module = _make_device_module(f"{package}.{cards.device_name}", names)
    _make_submodules(device_module.__name__)
    make_module(f"{package}.utils", {}, package=True)
    return device_module


def _make_device_module(name: str, contents: dict[str, Any]) -> types.ModuleType:
    """Make the module that becomes torch.npu or torch.mlu; it reports the use of names that only torch.cuda has."""
    stand_in = make_module(name, contents, package=True)

    def refuse_missing(attribute: str) -> Any:
        caller = sys._getframe(1)
        if not attribute.startswith("_") and hasattr(torch.cuda, attribute) and _uses_name(caller):
            limits.report_violation("unsupported-name", device=cards.device_name, name=attribute)
        raise AttributeError(f"module '{name}' has no attribute {attribute!r}")

    stand_in.__getattr__ = refuse_missing  # type: ignore[method-assign]
    return stand_in


def _uses_name(frame: types.FrameType) -> bool:
    """Return True for a line of the script that uses a name, except for a test with hasattr or getattr."""
    if not limits.is_users_file(frame.f_code.co_filename):
        return False
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return "hasattr(" not in line and "getattr(" not in line


def _make_submodules(package: str) -> None:
    """Make `torch_npu.npu.amp` and the like, which scripts import by their full name."""
    amp_names = {name: getattr(amp, name) for name in ("autocast", "GradScaler", "custom_fwd", "custom_bwd")}
    make_module(f"{package}.amp", amp_names, package=True)
    make_module(f"{package}.amp.autocast_mode", amp_names)
    make_module(f"{package}.amp.grad_scaler", {"GradScaler": amp.GradScaler})
    make_module(f"{package}.amp.common", {"amp_definitely_not_available": amp.amp_definitely_not_available})
    for name, part in {"memory": memory, "random": seeds, "streams": streams}.items():
        make_module(f"{package}.{name}", {k: v for k, v in vars(part).items() if not k.startswith("_")})
