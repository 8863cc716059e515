"""Interface of a device, and the facts about a device that other packages read."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from viaduct.cards import Card
from viaduct.errors import MissingDevice

if TYPE_CHECKING:
    import torch

GIB = 2**30

_MAY_BE_BUSY = "Another process may hold it: check with nvidia-smi, npu-smi or cnmon."


@runtime_checkable
class Device(Protocol):
    """Functions of a device, in the order in which cpu.py, cuda.py and plugin.py define them.

    The modules cpu.py and cuda.py are devices themselves; for the other devices the objects of plugin.py's class are. A
    card is one accelerator of this kind; the whole CPU counts as one card.
    """

    NAME: str

    def is_available(self) -> bool:
        """Return True if a card can be used now."""

    def find_problem(self) -> str | None:
        """Return None if a card can be used; else two lines: the reason why not, and what to do about it."""

    def count_cards(self) -> int:
        """Return the number of cards that this process sees."""

    def select(self, index: int = 0) -> torch.device:
        """Make a card the current one and return its torch device; raise MissingDevice if it does not exist."""

    def synchronize(self) -> None:
        """Wait until the current card has finished all queued work."""

    def get_peak_memory(self) -> int:
        """Return the most bytes allocated at a time since the process began or `reset_peak_memory` was called.

        On the CPU it is the most memory that the process had resident.
        """

    def reset_peak_memory(self) -> None:
        """Set the peak to the bytes allocated now; on the CPU only if the kernel allows it."""

    def get_free_memory(self) -> int:
        """Return the bytes that can still be allocated."""

    def list_native_dtypes(self) -> tuple[str, ...]:
        """Return which of bf16 and fp16 the hardware computes natively, the preferred one first."""

    def list_emulated_dtypes(self) -> tuple[str, ...]:
        """Return which of bf16 and fp16 are emulated, usually slowly; one is used only if the recipe asks for it."""

    def set_tf32(self, allowed: bool) -> None:
        """Allow or forbid TF32 in fp32 convolutions of an NVIDIA card; other devices keep their settings.

        False also forbids TF32 in matrix products; True does not change their setting.
        """

    def get_collective_backend(self) -> str:
        """Return the name of the torch.distributed backend for these cards."""

    def get_graph_class(self) -> object | None:
        """Return the class that captures device graphs, such as torch.cuda.CUDAGraph; None if the device has none."""

    def get_versions(self) -> dict[str, str]:
        """Return the versions of torch and of the vendor's installed software."""

    def describe_card(self) -> str:
        """Return name and memory of the current card."""

    def get_random_state(self) -> torch.Tensor | None:
        """Return the card's RNG state as bytes on the CPU; None if the device has no generator of its own."""

    def set_random_state(self, state: torch.Tensor | None) -> None:
        """Restore a state that `get_random_state` returned; None does nothing."""


@dataclass(frozen=True)
class DeviceFacts:
    """What `viaduct devices` shows about one device."""

    name: str
    present: bool  # True if a card can be used and has answered
    versions: dict[str, str]
    count: int = 0
    description: str | None = None
    memory_free_bytes: int | None = None
    precisions: tuple[str, ...] = ()  # dtypes besides fp32 that the hardware computes natively
    collective: str | None = None  # backend of torch.distributed
    graph_capture: str | None = None  # name of the class that captures device graphs
    missing: str | None = None  # two lines, why no card can be used and what to do; None if one can


def collect_facts(device: Device) -> DeviceFacts:
    """Return the facts about a device; if querying it fails, `missing` holds the error."""
    problem = device.find_problem()
    if problem is None:
        try:
            return _query_device(device)
        except Exception as error:
            problem = f"{device.NAME} is here but does not answer: {summarise_error(error)}\n{_MAY_BE_BUSY}"
    return DeviceFacts(device.NAME, False, device.get_versions(), missing=problem)


def _query_device(device: Device) -> DeviceFacts:
    graph = device.get_graph_class()
    return DeviceFacts(
        name=device.NAME,
        present=True,
        versions=device.get_versions(),
        count=device.count_cards(),
        description=device.describe_card(),
        memory_free_bytes=device.get_free_memory(),
        precisions=device.list_native_dtypes(),
        collective=device.get_collective_backend(),
        graph_capture=getattr(graph, "__name__", None),
    )


def check_index(name: str, index: int, count: int, problem: str | None) -> None:
    """Raise MissingDevice if the device has a problem (see `find_problem`), or has no card of this index."""
    if problem is not None:
        reason, *hints = problem.splitlines()
        raise MissingDevice(f"no {name} to run on: {reason}.", *hints)
    if not 0 <= index < count:
        visible = f"{name}:0" if count == 1 else f"{name}:0 to {name}:{count - 1}"
        raise MissingDevice(f"no {name}:{index} here.", f"This process sees {count}: {visible}.")


def describe_hidden_cards(card: Card) -> str | None:
    """Return two lines, the problem and what to do, if an environment variable lists visible cards; else None.

    `card` is the record of this kind of card.
    """
    order = " in ascending order" if card.needs_ascending_devices else ""  # in another order none would be visible
    for variable in card.visible_variables:
        if variable in os.environ:
            return f"no card visible; {variable}={os.environ[variable]!r}\nUnset it, or list card numbers{order}: 0,1."
    return None


def summarise_error(error: BaseException) -> str:
    """Return an error's class and up to 300 characters of its first line, without the URLs that vendors put there."""
    lines = str(error).strip().splitlines() or [""]
    return re.sub(r"\s*\b\w+://\S+", "", f"{type(error).__name__}: {lines[0][:300]}").rstrip(" :")


def find_in_file(path: Path, pattern: str) -> str | None:
    """Return the first group of `pattern` in a file; None if there is no file or no match."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    match = re.search(pattern, text, re.MULTILINE | re.IGNORECASE)
    return match[1].strip() if match else None


def select_known(versions: dict[str, str | None]) -> dict[str, str]:
    """Return the versions that are not None or empty."""
    return {name: version for name, version in versions.items() if version}
