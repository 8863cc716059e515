"""Memory of the recorded steps: a timeline, and who holds the bytes that are alive at the peak.

    before = find_live_tensors("cpu")                       # at the start of recording
    points, owners = describe_memory(raw_events, trace, before)

The profiler sees allocations and releases. Tensors that were there before are found among Python's objects; on CUDA the
allocator also says how many bytes it had given out, and what no Python object explains is "not identified". A block
belongs to what was running when it was allocated and to how long it lived: one from a forward pass is an activation of
its module, one from a backward pass that outlives the pass is a gradient.
"""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from viaduct.profiling.events import OPERATOR, Event
from viaduct.profiling.memory_points import thin_points
from viaduct.profiling.record import MemoryOwner, MemoryPoint
from viaduct.profiling.trace_context import Trace

ALLOCATION = "[memory]"
HOST = 0  # as traces number the kinds of devices
POINTS = 1000
PARAMETERS, GRADIENTS, STATE, OTHERS = "parameters", "gradients", "optimizer state", "other tensors"
BATCHES, UNIDENTIFIED = "batches", "allocated before recording, not identified"
TEMPORARY = {"backward": "temporary tensors of the backward pass", "update": "temporary tensors of the update"}

Storages = dict[int, int]  # address -> bytes


@dataclass(frozen=True)
class Block:
    """One allocation: when it was made, when released (infinity: not while recording), and its bytes."""

    start: float
    end: float
    bytes: int
    thread: Any


def find_live_tensors(device: str) -> dict[str, Storages]:
    """Return the storages of tensors that Python knows, by what they are; each storage once."""
    found: dict[str, Storages] = {kind: {} for kind in (PARAMETERS, GRADIENTS, STATE, OTHERS)}
    objects = gc.get_objects()
    tensors = [item for item in objects if issubclass(type(item), torch.Tensor)]
    for item in tensors:
        if issubclass(type(item), nn.Parameter):
            add_storage(found[PARAMETERS], item, device)
            add_storage(found[GRADIENTS], item.grad, device)
    for optimizer in (item for item in objects if issubclass(type(item), torch.optim.Optimizer)):
        for tensor in list_state(optimizer):
            add_storage(found[STATE], tensor, device)
    for item in tensors:
        add_storage(found[OTHERS], item, device)
    seen: set[int] = set()
    for kind, storages in found.items():
        found[kind] = {address: size for address, size in storages.items() if address not in seen}
        seen |= set(found[kind])
    return found


def list_state(optimizer: torch.optim.Optimizer) -> Iterator[Any]:
    """Yield the values that an optimizer keeps for its parameters."""
    for values in getattr(optimizer, "state", {}).values():
        if isinstance(values, dict):
            yield from values.values()


def add_storage(storages: Storages, tensor: Any, device: str) -> None:
    """Add the storage of a tensor that is on the device; tensors without memory of their own are left out."""
    try:
        if tensor is not None and tensor.device.type == device:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    except Exception:  # subclasses may refuse: fake, wrapped, sparse and deleted tensors
        return


def keep_alive_ones(before: dict[str, Storages], after: dict[str, Storages]) -> dict[str, Storages]:
    """Return the storages of `before` that are still alive: the profiler does not see when they are released."""
    alive = {address for storages in after.values() for address in storages}
    return {
        kind: {address: size for address, size in storages.items() if address in alive}
        for kind, storages in before.items()
    }


def describe_memory(
    raw: Iterable[dict[str, Any]], trace: Trace, before: dict[str, Storages], rank: int = 0
) -> tuple[list[MemoryPoint], list[MemoryOwner]]:
    """Return the timeline of the recorded steps and the owners of its peak; nothing where nothing was allocated."""
    allocations = list_allocations(raw, trace.device)
    if not allocations:
        return [], []
    known = sum(sum(storages.values()) for storages in before.values())
    points = make_points(allocations, trace, known, rank)
    if not points:
        return [], []
    peak = max(points, key=lambda point: point.allocated)
    owners = sum_owners(list_blocks(allocations), trace, drop_released(before, allocations, peak.time_us), peak, rank)
    return thin_points(points, POINTS), owners


def list_allocations(raw: Iterable[dict[str, Any]], device: str) -> list[dict[str, Any]]:
    """Return the allocations and releases on the device in order of time; of several cards those of the busiest."""
    found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for event in raw:
        args = event.get("args") or {}
        if event.get("name") == ALLOCATION and (args.get("Device Type") == HOST) == (device == "cpu"):
            found[args.get("Device Id")].append(event)
    busiest = max(found.values(), key=len, default=[])
    return sorted(busiest, key=lambda event: float(event["ts"]))


def make_points(allocations: list[dict[str, Any]], trace: Trace, known: int, rank: int) -> list[MemoryPoint]:
    """Return the bytes in use after each allocation and release within the recorded steps.

    An accelerator's allocator counts all that it gave out. The CPU's is followed from the start of recording, on top of
    the bytes that were known then.
    """
    points, running = [], known
    for event in allocations:
        args = event["args"]
        running += int(args.get("Bytes", 0))
        total, reserved = args.get("Total Allocated"), args.get("Total Reserved")
        allocated = running if trace.device == "cpu" or not isinstance(total, int) else total
        if trace.holds(event["ts"]):
            points.append(MemoryPoint(event["ts"], allocated, reserved if trace.device != "cpu" else None, rank))
    return points


def list_blocks(allocations: list[dict[str, Any]]) -> list[Block]:
    """Return the blocks that were allocated while recording."""
    open_blocks: dict[int, tuple[float, int, Any]] = {}
    blocks: list[Block] = []
    for event in allocations:
        address, size, time = int(event["args"].get("Addr", 0)), int(event["args"].get("Bytes", 0)), float(event["ts"])
        if size > 0:
            open_blocks[address] = (time, size, (event.get("pid"), event.get("tid")))
        elif address in open_blocks:
            start, allocated, thread = open_blocks.pop(address)
            blocks.append(Block(start, time, allocated, thread))
    return blocks + [Block(start, float("inf"), size, thread) for start, size, thread in open_blocks.values()]


def drop_released(before: dict[str, Storages], allocations: list[dict[str, Any]], until: float) -> dict[str, Storages]:
    """Return the storages from before that were not released up to a moment, as an accelerator's allocator reports."""
    released = {
        event["args"].get("Addr") for event in allocations if event["args"]["Bytes"] < 0 and event["ts"] <= until
    }
    return {
        kind: {address: size for address, size in storages.items() if address not in released}
        for kind, storages in before.items()
    }


def sum_owners(
    blocks: list[Block], trace: Trace, before: dict[str, Storages], peak: MemoryPoint, rank: int
) -> list[MemoryOwner]:
    """Return the owners of all bytes at the peak, the largest first."""
    totals: dict[str, int] = {kind: sum(storages.values()) for kind, storages in before.items()}
    namer = BlockNamer(trace)
    for block in blocks:
        if block.start <= peak.time_us < block.end:
            owner = namer.name_owner(block)
            totals[owner] = totals.get(owner, 0) + block.bytes
    if peak.allocated > sum(totals.values()):
        totals[UNIDENTIFIED] = peak.allocated - sum(totals.values())
    owners = [MemoryOwner(name, size, rank) for name, size in totals.items() if size > 0]
    return sorted(owners, key=lambda owner: -owner.bytes)


class BlockNamer:
    """Names of a block's owner, from the operator that allocated it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.by_thread: dict[Any, list[Event]] = defaultdict(list)
        for event in trace.operators:
            self.by_thread[event.thread].append(event)
        self.starts = {thread: [event.start for event in events] for thread, events in self.by_thread.items()}
        ends = [event.end for event in trace.operators if trace.contexts[id(event)].phase == "backward"]
        self.backward_ends = [
            max((end for end in ends if start <= end < stop), default=start) for start, stop in trace.windows
        ]

    def name_owner(self, block: Block) -> str:
        """Return what a block is: an activation of a module, a gradient, state of the optimizer, a batch."""
        operator = self.find_operator(block)
        context = self.trace.contexts[id(operator)] if operator is not None else None
        if context is None or context.phase == "other":
            return OTHERS
        if context.phase == "data":
            return BATCHES
        if context.phase == "forward":
            return f"activations of {context.module}" if context.module else "activations outside of modules"
        if block.end <= self.find_limit(block, context.phase):
            return TEMPORARY[context.phase]
        return GRADIENTS if context.phase == "backward" else STATE

    def find_operator(self, block: Block) -> Event | None:
        """Return the innermost operator that was running when a block was allocated."""
        number = bisect_right(self.starts.get(block.thread, []), block.start) - 1
        event = self.by_thread[block.thread][number] if number >= 0 else None
        while event is not None and event.end < block.start:
            event = event.find_around(OPERATOR)
        return event

    def find_limit(self, block: Block, phase: str) -> float:
        """Return the time up to which a block of a phase is temporary: the end of the backward pass or of the step."""
        for (start, stop), backward_end in zip(self.trace.windows, self.backward_ends, strict=True):
            if start <= block.start < stop:
                return backward_end if phase == "backward" else stop
        return float("-inf")
