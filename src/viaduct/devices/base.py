"""Interface of a device, and the facts about a device that other packages read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from viaduct.errors import MissingDevice

if TYPE_CHECKING:
    import torch

GIB = 2**30

_MAY_BE_BUSY = "Another process may hold it: look with nvidia-smi, npu-smi or cnmon."


@runtime_checkable
class Device(Protocol):
    """Functions of a device, in the order in which cpu.py, cuda.py and plugin.py define them."""

    NAME: str

    def available(self) -> bool:
        """Return True if a card can be used now."""

    def missing(self) -> str | None:
        """Return None if a card can be used; else a line that says what is missing and one that says how to get it."""

    def count(self) -> int:
        """Return the number of cards that this process sees."""

    def select(self, index: int = 0) -> torch.device:
        """Make a card the current one; MissingDevice if there is no such card."""

    def synchronize(self) -> None:
        """Wait until the current card has finished all queued work."""

    def memory_used(self) -> int:
        """Return the peak of allocated bytes since the start or `reset_memory`."""

    def reset_memory(self) -> None:
        """Reset the peak of `memory_used` to the bytes allocated now."""

    def memory_free(self) -> int:
        """Return the bytes that can still be allocated."""

    def autocast_dtypes(self) -> tuple[str, ...]:
        """Return those of bf16 and fp16 that the hardware has instructions for, best first."""

    def software_dtypes(self) -> tuple[str, ...]:
        """Return the reduced precisions that run in software, slower than fp32; used only on request."""

    def allow_tf32(self, allowed: bool) -> None:
        """Set whether fp32 convolutions may round their inputs to TF32; has an effect on NVIDIA cards only.

        There False also sets fp32 matrix products to full precision; True leaves them as they are.
        """

    def collective_backend(self) -> str:
        """Return the name of the torch.distributed backend for these cards."""

    def graph_capture(self) -> object | None:
        """Return the class that captures a graph of kernels; None if the device has none."""

    def versions(self) -> dict[str, str]:
        """Return the versions of torch and of the vendor's installed software."""

    def description(self) -> str:
        """Return name and memory of the current card."""

    def random_state(self) -> torch.Tensor | None:
        """Return the card's RNG state as bytes on the CPU; None if the device has no generator of its own."""

    def set_random_state(self, state: torch.Tensor | None) -> None:
        """Restore the card's RNG state from `random_state`."""


@dataclass(frozen=True)
class Facts:
    """One device as `viaduct devices` shows it and a run records it."""

    name: str
    present: bool
    versions: dict[str, str]
    count: int = 0
    description: str | None = None
    memory_free_bytes: int | None = None
    precisions: tuple[str, ...] = ()
    collective: str | None = None
    graph_capture: str | None = None
    missing: str | None = None


def facts(device: Device) -> Facts:
    """Return the facts about a device; if asking it raises, the error becomes the `missing` reason."""
    missing = device.missing()
    if missing is None:
        try:
            return _collect_facts(device)
        except Exception as error:
            missing = f"{device.NAME} is here but does not answer: {first_line(error)}\n{_MAY_BE_BUSY}"
    return Facts(device.NAME, False, device.versions(), missing=missing)


def _collect_facts(device: Device) -> Facts:
    graph = device.graph_capture()
    return Facts(
        name=device.NAME,
        present=True,
        versions=device.versions(),
        count=device.count(),
        description=device.description(),
        memory_free_bytes=device.memory_free(),
        precisions=device.autocast_dtypes(),
        collective=device.collective_backend(),
        graph_capture=getattr(graph, "__name__", None),
    )


def check_index(name: str, index: int, count: int, missing: str | None) -> None:
    """Raise MissingDevice unless `name:index` is one of `count` cards."""
    if missing is not None:
        what, *hints = missing.splitlines()
        raise MissingDevice(f"no {name} to run on: {what}.", *hints)
    if not 0 <= index < count:
        visible = f"{name}:0" if count == 1 else f"{name}:0 to {name}:{count - 1}"
        raise MissingDevice(f"no {name}:{index} here.", f"This process sees {count}: {visible}.")


def first_line(error: BaseException) -> str:
    """Return an error's class and first line, without URLs that vendors put there."""
    lines = str(error).strip().splitlines() or [""]
    return re.sub(r"\s*\b\w+://\S+", "", f"{type(error).__name__}: {lines[0]}").rstrip(" :")


def find_in_file(path: Path, pattern: str) -> str | None:
    """Return the first group of `pattern` in a file; None if there is no file or no match."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    match = re.search(pattern, text, re.MULTILINE | re.IGNORECASE)
    return match[1].strip() if match else None


def select_known(versions: dict[str, str | None]) -> dict[str, str]:
    """Return the versions that are known, without those that are None."""
    return {name: version for name, version in versions.items() if version}
