"""A stand-in for an NPU or MLU in PyTorch: a device of this process with the CPU's memory and arithmetic.

`install` gives PyTorch the device npu or mlu, the modules of the vendor's plug-in and the limits of the card.
`install_cuda_as_cpu` gives it a device that an unchanged CUDA script takes for a GPU. A process can have only one such
device.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch

from viaduct.cards import CARDS
from viaduct.devices.strided_pointwise import replace_faulty_weight_gradients
from viaduct.errors import BadValue
from viaduct.rehearsal.torch_stage.cards import MemoryMeter, cards


def install(name: str, count: int = 8) -> None:
    """Install the device `name` (npu or mlu) with `count` cards, unless it is installed already."""
    if name not in CARDS:
        raise BadValue(f"a rehearsal is on npu or mlu, not on {name!r}.", "viaduct rehearse SCRIPT --on npu")
    if not _prepare(name, count):
        return
    vendor = importlib.import_module(f"{__name__}.{name}")  # npu.py or mlu.py
    _register(name, vendor.build(), vendor.MEMORY_BYTES)
    from viaduct.rehearsal.torch_stage import checkpoints, collectives, mapping, refusals, tensors

    tensors.install()  # functions and methods that take a device
    checkpoints.install()  # torch.save and torch.load
    refusals.install()  # reports of functions that the card does not support
    if torch.distributed.is_available():
        collectives.install()
    mapping.make_vendor_patch_importable(vendor.PACKAGE)  # such as torch_npu.contrib.transfer_to_npu


def install_cuda_as_cpu(count: int = 8) -> None:
    """Install a device with `count` cards that a CUDA script sees as cuda, unless it is installed already."""
    from viaduct.rehearsal.torch_stage import original

    if _prepare(original.NAME, count):
        _register(original.NAME, original.build(), original.MEMORY_BYTES)
        original.install()


def _prepare(name: str, count: int) -> bool:
    """Set up the process's cards; return False if it has them already.

    Raise BadValue for a wrong count, or if the process has another device or the vendor's plug-in.
    """
    if cards.device_name == name:
        return False
    if cards.device_name:
        raise BadValue(
            f"this process has a device {cards.device_name!r} already, and cannot have {name!r}.", "Start another."
        )
    if not 1 <= count <= 64:
        raise BadValue(f"a machine has 1 to 64 cards, not {count}.")
    if f"torch_{name}" in sys.modules:
        raise BadValue(f"torch_{name} is loaded already: with the plug-in there is nothing to stand in for.")
    cards.device_name, cards.accepted_types, cards.count = name, {name}, count
    cards.memory_meters = [MemoryMeter() for _ in range(count)]
    replace_faulty_weight_gradients()  # a workaround for a bug of the CPU, which computes for the device
    return True


def _register(name: str, device_module: Any, memory_bytes: int) -> None:
    """Register the device with PyTorch: its name, its module, its kernels; `memory_bytes` are those of each card."""
    from viaduct.rehearsal.torch_stage import accelerator, casting, generators, kernels, pinning

    cards.memory_bytes = memory_bytes
    backends: Any = torch.utils.backend_registration
    backends.rename_privateuse1_backend(name)
    backends.generate_methods_for_privateuse1_backend()
    torch_module: Any = torch
    torch_module._register_device_module(name, device_module)
    sys.modules[f"torch.{name}"] = device_module
    accelerator.register()
    kernels.register()
    casting.register()
    pinning.register()
    pinning.install()
    generators.install()
    accelerator.install()
