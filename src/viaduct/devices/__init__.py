"""One file a device, the same functions in each: cpu, cuda, mlu (torch_mlu), npu (torch_npu).

    device, place = devices.pick("auto")
    model.to(place)
    device.synchronize()

Importing this package does not import torch; `get` does, with the file of the device that was asked for.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, cast

from viaduct.errors import BadValue, UnknownName

if TYPE_CHECKING:
    import torch

    from viaduct.devices import cpu, cuda, mlu, npu
    from viaduct.devices.base import Device

    # mypy checks here that every file keeps the promise.
    _KEPT: tuple[Device, ...] = (cpu, cuda, mlu, npu)

# `auto` asks from the right: a vendor's card before CUDA, because both vendors' migration helpers
# patch torch.cuda to answer for their own card.
_NAMES = ("cpu", "cuda", "mlu", "npu")
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
_WHO_IS_WHO = "NVIDIA is 'cuda', Ascend 'npu', Cambricon 'mlu'; `viaduct devices` shows what is here."


def names() -> tuple[str, ...]:
    """Every device there is a file for, present or not."""
    return _NAMES


def get(name: str) -> Device:
    """The device called `name`, present or not."""
    if name not in _NAMES:
        raise UnknownName("device", name, _NAMES, _WHO_IS_WHO)
    with _plugins_waiting():
        return cast("Device", import_module(f"viaduct.devices.{name}"))


def pick(name: str, local_rank: int | None = None) -> tuple[Device, torch.device]:
    """The device for `auto`, `cpu`, `cuda`, `npu`, `mlu` or `cuda:1`, and its card, made current.

    Of several ranks on a machine each has the card of its number, among those that are visible.
    """
    if name == "auto":
        device = _best()
        return device, device.select(_card(device, local_rank))
    kind, colon, digits = name.partition(":")
    if kind not in _NAMES:
        raise UnknownName("device", name, ("auto", *_NAMES), _WHO_IS_WHO)
    if colon and not digits.isdecimal():
        raise BadValue(f"device {name!r} ends in {digits!r}.", f"Name a card by its number: {kind}:0.")
    if colon and local_rank is not None:
        raise BadValue(
            f"device {name!r} is one card, but every rank needs its own.",
            f"Say --device {kind}; which cards are used is said by CUDA_VISIBLE_DEVICES and its like.",
        )
    device = get(kind)
    return device, device.select(int(digits or _card(device, local_rank)))


def check_ranks(name: str, ranks: int) -> None:
    """Refuse `name` where not each of so many ranks on this machine has a card of its own; none is made current."""
    kind, colon, _ = name.partition(":")
    if colon or kind not in ("auto", *_NAMES):
        pick(name, local_rank=0)
    device = _first_here() if kind == "auto" else get(kind)
    if device.NAME != "cpu":
        from viaduct.devices.base import check_index

        check_index(device.NAME, ranks - 1, device.count(), device.missing())


def _card(device: Device, local_rank: int | None) -> int:
    return 0 if local_rank is None or device.NAME == "cpu" else local_rank  # all ranks share the one CPU


def _best() -> Device:
    device = _first_here()
    _say_what_is_broken()
    return device


def _first_here() -> Device:
    return next(device for device in map(get, reversed(_NAMES)) if device.available())


def _say_what_is_broken() -> None:
    """A plug-in that is installed and does not load was surely meant to be used."""
    from viaduct.devices.plugin import broken

    for why in broken().values():
        logging.getLogger(__name__).warning("passed over: %s", why)


@contextmanager
def _plugins_waiting() -> Iterator[None]:
    """Keep `import torch` from importing every installed plug-in: with one that is broken, torch would not load."""
    before = os.environ.get(_AUTOLOAD)
    os.environ[_AUTOLOAD] = "0"
    try:
        yield
    finally:
        del os.environ[_AUTOLOAD]
        if before is not None:
            os.environ[_AUTOLOAD] = before
