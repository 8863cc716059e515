"""Devices that need a vendor's plug-in for torch: torch_npu (Ascend) and torch_mlu (Cambricon).

One class serves both; what differs is in the records of cards/. A plug-in that fails while it loads is not imported
again in this process: it leaves its name registered in torch, and a second error would hide the first.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import torch

from viaduct.cards.card import Card
from viaduct.devices.base import GIB, check_index, describe_hidden_cards, select_known, summarise_error
from viaduct.devices.hardware import find_package_version, find_software_versions
from viaduct.devices.plugin_match import match_plugin, strip_local
from viaduct.errors import MissingDevice

_broken: dict[str, str] = {}  # package of a plug-in -> the reason why it does not load in this process


class NotLoaded(Exception):
    """Raised for a plug-in that cannot be used; the message has two lines, the reason and a hint."""


def find_broken_plugins() -> dict[str, str]:
    """Return the installed plug-ins that this process could not load, each with the reason."""
    return dict(_broken)


class PluginDevice:
    """Cards of one vendor: an implementation of `base.Device`, which describes the public methods."""

    def __init__(self, card: Card) -> None:
        self.NAME = card.name
        self._card = card
        self._no_card_hint = (
            f"`{card.monitor_command}` shows the cards and the driver; a container also needs {card.container_files}."
        )

    def is_available(self) -> bool:
        return self.find_problem() is None

    def find_problem(self) -> str | None:
        try:
            cards = self._load().device_count()
        except NotLoaded as error:
            return str(error)
        except Exception as error:
            return f"{self._card.plugin} cannot count its cards: {summarise_error(error)}\n{self._no_card_hint}"
        if cards > 0:
            return None
        if hidden := describe_hidden_cards(self._card):
            return hidden
        return f"{self._card.plugin} {self._find_version()} sees no card\n{self._no_card_hint}"

    def count_cards(self) -> int:
        return int(self._vendor.device_count()) if self.is_available() else 0

    def select(self, index: int = 0) -> torch.device:
        check_index(self.NAME, index, self.count_cards(), self.find_problem())
        self._vendor.set_device(index)
        return torch.device(self.NAME, index)

    def synchronize(self) -> None:
        self._vendor.synchronize()

    def get_peak_memory(self) -> int:
        return int(self._vendor.max_memory_allocated())

    def reset_peak_memory(self) -> None:
        self._vendor.init()  # before that there is no peak to reset
        self._vendor.reset_peak_memory_stats()

    def get_free_memory(self) -> int:
        return int(self._vendor.mem_get_info()[0])

    def list_native_dtypes(self) -> tuple[str, ...]:
        # Older models lack bf16 (cards/npu.py, cards/mlu.py). A plug-in without this function is older than the first
        # model that has it.
        can_bf16 = getattr(self._vendor, "is_bf16_supported", lambda: False)
        return ("bf16", "fp16") if can_bf16() else ("fp16",)

    def list_emulated_dtypes(self) -> tuple[str, ...]:
        return ()

    def set_tf32(self, allowed: bool) -> None:
        return None  # torch.npu.conv.allow_hf32 and torch.backends.cnnl.allow_tf32 keep the vendors' defaults

    def get_collective_backend(self) -> str:
        return self._card.backend

    def get_graph_class(self) -> object | None:
        return getattr(self._vendor, self._card.graph_class, None) if self.is_available() else None

    def get_versions(self) -> dict[str, str]:
        software = find_software_versions(self._card)
        return select_known({"torch": torch.__version__, self._card.plugin: self._find_version(), **software})

    def describe_card(self) -> str:
        return f"{self._vendor.get_device_name()}, {self._vendor.mem_get_info()[1] / GIB:.0f} GiB"

    def get_random_state(self) -> torch.Tensor | None:
        state: torch.Tensor = self._vendor.get_rng_state()
        return state

    def set_random_state(self, state: torch.Tensor | None) -> None:
        if state is not None:
            self._vendor.set_rng_state(state)

    @property
    def _vendor(self) -> Any:
        """The plug-in's module torch.npu or torch.mlu; raises MissingDevice if it does not load."""
        try:
            return self._load()
        except NotLoaded as error:
            reason, *hints = str(error).splitlines()
            raise MissingDevice(f"no {self.NAME} to run on: {reason}.", *hints) from error

    def _load(self) -> Any:
        """Import the plug-in and return torch.npu or torch.mlu.

        Raise NotLoaded if the import fails, has failed before in this process, or is known to fail with this torch.
        """
        package = self._card.plugin
        if package not in _broken and package not in sys.modules:
            match = match_plugin(package, torch.__version__)
            if match is not None and not match.is_loadable:
                _broken[package] = str(match)  # no import is tried: it would fail, or end the process
        if package in _broken:
            raise NotLoaded(f"{_broken[package]}\n{self._advise()}")
        try:
            import_module(package)
            return vars(torch)[self.NAME]
        except Exception as error:
            # The vendor's start-up code may raise anything.
            if isinstance(error, ModuleNotFoundError) and error.name == package:
                install = f"Install {self._card.software} and {self._matching_plugin}."
                raise NotLoaded(f"{package} is not installed\n{install}") from error
            match = match_plugin(package, torch.__version__)
            releases = ""
            if match:
                releases = f" ({package} {match.version} for torch {match.built_for}; this is torch {match.torch})"
            _broken[package] = f"{package} is installed but does not load: {summarise_error(error)}{releases}"
            raise NotLoaded(f"{_broken[package]}\n{self._advise()}") from error

    @property
    def _matching_plugin(self) -> str:
        return f"the {self._card.plugin} made for torch {strip_local(torch.__version__)}"

    def _advise(self) -> str:
        """Return what to do about a plug-in that does not load."""
        match = match_plugin(self._card.plugin, torch.__version__)
        if match and not match.is_exact:
            return match.hint
        return f"{self._card.repair_hint}, and use {self._matching_plugin}."

    def _find_version(self) -> str | None:
        """Return the plug-in's version, also if it does not load; None if it is not installed."""
        loaded = getattr(sys.modules.get(self._card.plugin), "__version__", None)
        return str(loaded) if loaded else find_package_version(self._card.plugin)
