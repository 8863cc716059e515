"""Load a vendor's torch plug-in, and say what is wrong with one that will not load.

The import of a plug-in that is not installed is tried again each time. A plug-in that fails while it loads is not tried
again: half loaded, it leaves its name registered in torch, and the second error would hide the first.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from viaduct.devices.base import first_line
from viaduct.devices.fitting import find_fit
from viaduct.devices.hardware import package_version
from viaduct.errors import MissingDevice

_broken: dict[str, str] = {}


@dataclass(frozen=True)
class Vendor:
    """Names and hints that the messages about a vendor's plug-in use."""

    package: str
    device: str
    install: str  # hint if the plug-in is not installed
    repair: str  # hint if it does not load
    look: str  # hint if it sees no card
    hiders: tuple[str, ...]  # environment variables that may hide cards
    unhide: str  # hint if one of them is set


class NotLoaded(Exception):
    """Reason why a plug-in cannot be used, and a hint, as two lines."""


def missing(vendor: Vendor) -> str | None:
    """Return None if the plug-in loads and sees a card; else what is missing and how to get it."""
    try:
        cards = _load(vendor).device_count()
    except NotLoaded as why:
        return str(why)
    except Exception as error:
        return f"{vendor.package} cannot count its cards: {first_line(error)}\n{vendor.look}"
    if cards > 0:
        return None
    for variable in vendor.hiders:
        if variable in os.environ:
            return f"no card visible; {variable}={os.environ[variable]!r}\n{vendor.unhide}"
    return f"{vendor.package} {version(vendor.package)} sees no card\n{vendor.look}"


def api(vendor: Vendor) -> Any:
    """Return the plug-in's `torch.npu` or `torch.mlu` module."""
    try:
        return _load(vendor)
    except NotLoaded as why:
        what, *hints = str(why).splitlines()
        raise MissingDevice(f"no {vendor.device} to run on: {what}.", *hints) from why


def version(package: str) -> str | None:
    """Return the plug-in's version, also if it does not load."""
    loaded = getattr(sys.modules.get(package), "__version__", None)
    if loaded:
        return str(loaded)
    return package_version(package)


def broken() -> dict[str, str]:
    """Return the installed plug-ins that failed to load, each with its first error."""
    return dict(_broken)


def _load(vendor: Vendor) -> Any:
    package = vendor.package
    if package not in _broken and package not in sys.modules:
        _refuse_misfit(package)
    if package in _broken:
        raise NotLoaded(f"{_broken[package]}\n{_repair(vendor)}")
    try:
        import_module(package)
        return vars(torch)[vendor.device]
    except Exception as error:
        # Importing a plug-in runs the vendor's start-up code, which may raise anything: that error is the reason.
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            raise NotLoaded(f"{package} is not installed\n{vendor.install}") from error
        _broken[package] = f"{package} is installed but does not load: {first_line(error)}{_built_for(package)}"
        raise NotLoaded(f"{_broken[package]}\n{_repair(vendor)}") from error


def _refuse_misfit(package: str) -> None:
    """Keep a plug-in for another minor release of torch from loading: it would fail, or end the process."""
    fit = find_fit(package, torch.__version__)
    if fit is not None and not fit.is_loadable:
        _broken[package] = str(fit)


def _built_for(package: str) -> str:
    fit = find_fit(package, torch.__version__)
    return f" ({fit.package} {fit.version} for torch {fit.built_for}; this is torch {fit.torch})" if fit else ""


def _repair(vendor: Vendor) -> str:
    fit = find_fit(vendor.package, torch.__version__)
    return vendor.repair if fit is None or fit.is_exact else fit.hint
