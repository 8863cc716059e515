"""Devices to train on: cpu, cuda, mlu (torch_mlu) and npu (torch_npu), all with the functions of `base.Device`.

    device, torch_device = devices.pick("auto")
    model.to(torch_device)
    device.synchronize()

The modules cpu.py and cuda.py are devices themselves; the devices mlu and npu are made by plugin.py. Importing this
package does not import torch; `get` imports it, together with the requested device's file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from viaduct.cards import CARDS, CUDA
from viaduct.errors import BadValue, UnknownName

if TYPE_CHECKING:
    import torch

    from viaduct.devices import cpu, cuda
    from viaduct.devices.base import Device
    from viaduct.devices.plugin import PluginDevice

    # mypy checks here that every device implements the interface.
    _CHECKED: tuple[Device, ...] = (cpu, cuda, PluginDevice(CARDS["npu"]))

# `auto` takes the last available device of this list. The vendors' cards are behind CUDA, because helper modules of
# both vendors (transfer_to_npu, gpu_migration) make torch.cuda work on their own cards.
_NAMES = ("cpu", CUDA.name, *sorted(CARDS))
_AUTOLOAD_VARIABLE = "TORCH_DEVICE_BACKEND_AUTOLOAD"  # torch imports no plug-ins by itself if it is 0
_NAME_HINT = "NVIDIA is 'cuda', Ascend 'npu', Cambricon 'mlu'; `viaduct devices` shows what is here."


def names() -> tuple[str, ...]:
    """Return the names of all supported devices, present or not."""
    return _NAMES


@cache
def get(name: str) -> Device:
    """Return the device called `name`, present or not."""
    if name not in _NAMES:
        raise UnknownName("device", name, _NAMES, _NAME_HINT)
    with _disable_plugin_autoload():
        if name not in CARDS:
            return cast("Device", import_module(f"viaduct.devices.{name}"))
        from viaduct.devices.plugin import PluginDevice

        return PluginDevice(CARDS[name])


def pick(name: str, local_rank: int | None = None) -> tuple[Device, torch.device]:
    """Return the device that `auto`, `npu` or `cuda:1` names, and its torch.device; make its card the current one.

    `local_rank` is the number of the card, so that each rank on a machine has a card of its own; all ranks share the
    CPU. With `local_rank` the name must not have a number.
    """
    if name == "auto":
        device = _find_preferred_device()
        _warn_about_broken_plugins()
        return device, device.select(_choose_index(device, local_rank))
    kind, colon, digits = name.partition(":")
    if kind not in _NAMES:
        raise UnknownName("device", name, ("auto", *_NAMES), _NAME_HINT)
    if colon and not digits.isdecimal():
        raise BadValue(f"device {name!r} ends in {digits!r}.", f"Name a card by its number: {kind}:0.")
    if colon and local_rank is not None:
        raise BadValue(
            f"device {name!r} is one card, but every rank needs its own.",
            f"Give --device {kind}; CUDA_VISIBLE_DEVICES, or the vendor's own variable, selects the cards.",
        )
    device = get(kind)
    return device, device.select(int(digits or _choose_index(device, local_rank)))


def check_ranks(name: str, ranks: int) -> None:
    """Raise unless this process sees a card for each of `ranks` ranks, or the device is the CPU, which all ranks share.

    No card is made current.
    """
    kind, colon, _ = name.partition(":")
    if colon or kind not in ("auto", *_NAMES):
        pick(name, local_rank=0)  # always raises, because the name is that of a single card, or unknown
    device = _find_preferred_device() if kind == "auto" else get(kind)
    if device.NAME != "cpu":
        from viaduct.devices.base import check_index

        check_index(device.NAME, ranks - 1, device.count_cards(), device.find_problem())


def _choose_index(device: Device, local_rank: int | None) -> int:
    return 0 if local_rank is None or device.NAME == "cpu" else local_rank  # all ranks share the CPU


def _find_preferred_device() -> Device:
    """Return the available device that `auto` stands for."""
    return next(device for device in map(get, reversed(_NAMES)) if device.is_available())


def _warn_about_broken_plugins() -> None:
    """Log a warning for each plug-in that is installed but does not load."""
    from viaduct.devices.plugin import find_broken_plugins

    for reason in find_broken_plugins().values():
        logging.getLogger(__name__).warning("device auto passes over a plug-in: %s", reason)


@contextmanager
def _disable_plugin_autoload() -> Iterator[None]:
    """Keep `import torch` from importing installed plug-ins: a broken one would prevent torch from loading."""
    before = os.environ.get(_AUTOLOAD_VARIABLE)
    os.environ[_AUTOLOAD_VARIABLE] = "0"
    try:
        yield
    finally:
        del os.environ[_AUTOLOAD_VARIABLE]
        if before is not None:
            os.environ[_AUTOLOAD_VARIABLE] = before
