"""Stand-ins for `torch.npu` and `torch.mlu` with the documented names and return types."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType

import pytest
import torch

from viaduct.devices import plugin


class Graph:
    """Class in place of torch.npu.NPUGraph and torch.mlu.MLUGraph."""


@dataclass
class Card:
    """Two cards of 64 GiB that record the calls which change something."""

    cards: int = 2
    bf16: bool = True
    calls: list[str] = field(default_factory=list)
    state: torch.Tensor = field(default_factory=lambda: torch.zeros(16, dtype=torch.uint8))
    NPUGraph: type = Graph
    MLUGraph: type = Graph

    def device_count(self) -> int:
        return self.cards

    def init(self) -> None:
        self.calls.append("init")

    def set_device(self, device: int) -> None:
        self.calls.append(f"set_device({device})")

    def synchronize(self, device: int | None = None) -> None:
        self.calls.append("synchronize")

    def max_memory_allocated(self, device: int | None = None) -> int:
        return 3 * 2**30

    def reset_peak_memory_stats(self, device: int | None = None) -> None:
        self.calls.append("reset_peak_memory_stats")

    def mem_get_info(self, device: int | None = None) -> tuple[int, int]:
        return 60 * 2**30, 64 * 2**30

    def is_bf16_supported(self) -> bool:
        return self.bf16

    def get_device_name(self, device: int | None = None) -> str:
        return "Stand-in 910B"

    def get_rng_state(self, device: str | int = "current") -> torch.Tensor:
        return self.state

    def set_rng_state(self, new_state: torch.Tensor, device: str | int = "current") -> None:
        self.state = new_state


Install = Callable[..., Card]


@pytest.fixture(autouse=True)
def _no_plugin_was_broken_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_broken", {})


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return `install`: `install("npu", bf16=False)` makes torch_npu and torch.npu importable for one test."""

    def install_package(device: str, **options: object) -> Card:
        card, package = Card(**options), ModuleType(f"torch_{device}")
        package.__version__ = "2.11.0"
        monkeypatch.setitem(sys.modules, package.__name__, package)
        monkeypatch.setattr(torch, device, card, raising=False)
        return card

    return install_package
