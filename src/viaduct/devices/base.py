"""What every device file must offer, and what the rest of viaduct learns about a device."""

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
    """The functions of a device file, in the order in which they stand there."""

    NAME: str

    def available(self) -> bool:
        """Whether a card can be used here and now."""

    def missing(self) -> str | None:
        """None, or a line that says what is missing and a line that says how to get it."""

    def count(self) -> int:
        """How many cards this process sees."""

    def select(self, index: int = 0) -> torch.device:
        """Make a card the current one; MissingDevice if there is no such card."""

    def synchronize(self) -> None:
        """Wait until the current card has done all it was given."""

    def memory_used(self) -> int:
        """Most bytes allocated at once since the start or `reset_memory`."""

    def reset_memory(self) -> None:
        """Let `memory_used` start again from what is allocated now."""

    def memory_free(self) -> int:
        """Bytes that could still be allocated."""

    def autocast_dtypes(self) -> tuple[str, ...]:
        """The reduced precisions the hardware has instructions for, out of bf16 and fp16, best first."""

    def software_dtypes(self) -> tuple[str, ...]:
        """The reduced precisions that are computed in software, slower than fp32; used only when asked for."""

    def allow_tf32(self, allowed: bool) -> None:
        """Whether fp32 convolutions may round what they are given to TF32, on cards of NVIDIA."""

    def collective_backend(self) -> str:
        """The torch.distributed backend that speaks to these cards."""

    def graph_capture(self) -> object | None:
        """The class that captures a graph of kernels, if the device has one."""

    def versions(self) -> dict[str, str]:
        """Torch and the vendor's software under it, as far as it is installed."""

    def description(self) -> str:
        """The current card in a few words."""

    def random_state(self) -> torch.Tensor | None:
        """The state of the card's own random numbers as bytes on the CPU; None where it has none of its own."""

    def set_random_state(self, state: torch.Tensor | None) -> None:
        """Continue the card's random numbers from `random_state`."""


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
    """All there is to know about a device; one that fails to answer is reported, not raised."""
    missing = device.missing()
    if missing is None:
        try:
            return _ask(device)
        except Exception as error:
            missing = f"{device.NAME} is here but does not answer: {first_line(error)}\n{_MAY_BE_BUSY}"
    return Facts(device.NAME, False, device.versions(), missing=missing)


def _ask(device: Device) -> Facts:
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
        there = f"{name}:0" if count == 1 else f"{name}:0 to {name}:{count - 1}"
        raise MissingDevice(f"no {name}:{index} here.", f"This process sees {count}: {there}.")


def first_line(error: BaseException) -> str:
    """An error's kind and first line, without the addresses vendors like to put there."""
    lines = str(error).strip().splitlines() or [""]
    return re.sub(r"\s*\b\w+://\S+", "", f"{type(error).__name__}: {lines[0]}").rstrip(" :")


def find_in_file(path: Path, pattern: str) -> str | None:
    """The first group of `pattern` in a file; None if the file or the match is not there."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    found = re.search(pattern, text, re.MULTILINE | re.IGNORECASE)
    return found[1].strip() if found else None


def known(versions: dict[str, str | None]) -> dict[str, str]:
    """The versions that could be found out."""
    return {name: version for name, version in versions.items() if version}
