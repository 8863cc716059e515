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

from viaduct.cards.card import Card
from viaduct.devices.base import first_line
from viaduct.devices.fitting import find_fit, strip_local
from viaduct.devices.hardware import package_version
from viaduct.errors import MissingDevice

_broken: dict[str, str] = {}  # plug-in -> why it failed to load in this process


@dataclass(frozen=True)
class Vendor:
    """Card of a vendor, and what the messages about its plug-in say."""

    card: Card
    repair: str  # what to do if the plug-in does not load
    device_files: str  # that a container needs
    unhide: str  # hint if one of the variables that hide cards is set

    @property
    def matching_plugin(self) -> str:
        return f"the {self.card.module} made for torch {strip_local(torch.__version__)}"

    @property
    def look(self) -> str:
        """Hint if the plug-in sees no card."""
        return f"`{self.card.tool}` shows the cards and the driver; a container also needs {self.device_files}."


class NotLoaded(Exception):
    """Reason why a plug-in cannot be used, and a hint, as two lines."""


def missing(vendor: Vendor) -> str | None:
    """Return None if the plug-in loads and sees a card; else what is missing and how to get it."""
    try:
        cards = _load(vendor).device_count()
    except NotLoaded as why:
        return str(why)
    except Exception as error:
        return f"{vendor.card.module} cannot count its cards: {first_line(error)}\n{vendor.look}"
    if cards > 0:
        return None
    for variable in vendor.card.hiding:
        if variable in os.environ:
            return f"no card visible; {variable}={os.environ[variable]!r}\n{vendor.unhide}"
    return f"{vendor.card.module} {version(vendor.card.module)} sees no card\n{vendor.look}"


def api(vendor: Vendor) -> Any:
    """Return the plug-in's `torch.npu` or `torch.mlu` module."""
    try:
        return _load(vendor)
    except NotLoaded as why:
        what, *hints = str(why).splitlines()
        raise MissingDevice(f"no {vendor.card.name} to run on: {what}.", *hints) from why


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
    """Import the plug-in, and return its module in torch; raise `NotLoaded` if that fails, or has failed before."""
    package = vendor.card.module
    if package not in _broken and package not in sys.modules:
        fit = find_fit(package, torch.__version__)
        if fit is not None and not fit.is_loadable:  # it would fail while it loads, or end the process
            _broken[package] = str(fit)
    if package in _broken:
        raise NotLoaded(f"{_broken[package]}\n{_advise(vendor)}")
    try:
        import_module(package)
        return vars(torch)[vendor.card.name]
    except Exception as error:
        # Importing a plug-in runs the vendor's start-up code, which may raise anything: that error is the reason.
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            install = f"Install {vendor.card.software} and {vendor.matching_plugin}."
            raise NotLoaded(f"{package} is not installed\n{install}") from error
        fit = find_fit(package, torch.__version__)
        releases = f" ({package} {fit.version} for torch {fit.built_for}; this is torch {fit.torch})" if fit else ""
        _broken[package] = f"{package} is installed but does not load: {first_line(error)}{releases}"
        raise NotLoaded(f"{_broken[package]}\n{_advise(vendor)}") from error


def _advise(vendor: Vendor) -> str:
    """Return what to do about a plug-in that does not load."""
    fit = find_fit(vendor.card.module, torch.__version__)
    return f"{vendor.repair}, and use {vendor.matching_plugin}." if fit is None or fit.is_exact else fit.hint
