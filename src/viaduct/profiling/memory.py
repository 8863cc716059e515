"""Memory of the recorded steps: a timeline, and the owners of the bytes at the peak.

    before = find_live_tensors("cpu")                       # at the start of recording
    points, owners = describe_memory(raw_events, trace, before)

The profiler sees allocations (blocks) and releases. Tensors from before the recording are found among Python's objects.
On an accelerator the allocator also reports its total; the part of it without a known owner is "not identified". The
owner of a block follows from the operator that allocated it and from its lifetime: a block of a forward pass is an
activation of its module, a block of a backward pass that outlives the pass is a gradient.
"""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from viaduct.profiling.events import OPERATOR, Event
from viaduct.profiling.record import MemoryOwner, MemoryPoint, thin_points
from viaduct.profiling.trace_context import Trace

ALLOCATION = "[memory]"  # name of torch.profiler's events for allocations and releases
HOST_DEVICE_TYPE = 0  # "Device Type" of the CPU in a trace
MAX_POINTS = 1000  # largest number of points of the timeline
# Owners of memory, as the report names them.
PARAMETERS, GRADIENTS, STATE, OTHERS = "parameters", "gradients", "optimizer state", "other tensors"
BATCHES, UNIDENTIFIED = "batches", "allocated before recording, not identified"
TEMPORARY = {"backward": "temporary tensors of the backward pass", "update": "temporary tensors of the update"}

Storages = dict[int, int]  # address -> bytes


@dataclass(frozen=True)
class Block:
    """One allocation of memory while steps were recorded."""

    start: float
    end: float  # time of its release; infinity if it was not seen
    bytes: int
    thread: Any  # (process, thread), as in events.Event


def find_live_tensors(device: str) -> dict[str, Storages]:
    """Return the storages of Python's tensors on a device by owner: PARAMETERS, GRADIENTS, STATE, OTHERS."""
    # `isinstance` may run code of a user's proxy object, so types are compared.
    by_owner: dict[str, Storages] = {owner: {} for owner in (PARAMETERS, GRADIENTS, STATE, OTHERS)}
    objects = gc.get_objects()
    tensors = [value for value in objects if issubclass(type(value), torch.Tensor)]
    for tensor in tensors:
        if issubclass(type(tensor), nn.Parameter):
            add_storage(by_owner[PARAMETERS], tensor, device)
            add_storage(by_owner[GRADIENTS], tensor.grad, device)
        add_storage(by_owner[OTHERS], tensor, device)
    for optimizer in (value for value in objects if issubclass(type(value), torch.optim.Optimizer)):
        for state in getattr(optimizer, "state", {}).values():
            for tensor in state.values() if isinstance(state, dict) else ():
                add_storage(by_owner[STATE], tensor, device)
    seen: set[int] = set()  # a storage counts for its first owner only; "other tensors" come last
    for owner, storages in by_owner.items():
        by_owner[owner] = {address: size for address, size in storages.items() if address not in seen}
        seen |= set(by_owner[owner])
    return by_owner


def add_storage(storages: Storages, tensor: Any, device: str) -> None:
    """Add the storage of a tensor on the device, if it has one."""
    try:
        if tensor is not None and tensor.device.type == device:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    except Exception:  # fake, wrapped, sparse and deleted tensors may raise anything here
        return


def select_alive(before: dict[str, Storages], after: dict[str, Storages]) -> dict[str, Storages]:
    """Return the storages of `before` that are also in `after`."""
    alive = {address for storages in after.values() for address in storages}
    return filter_storages(before, lambda address: address in alive)


def filter_storages(by_owner: dict[str, Storages], is_kept: Callable[[int], bool]) -> dict[str, Storages]:
    return {
        owner: {address: size for address, size in storages.items() if is_kept(address)}
        for owner, storages in by_owner.items()
    }


def describe_memory(
    raw: Iterable[dict[str, Any]], trace: Trace, before: dict[str, Storages], rank: int = 0
) -> tuple[list[MemoryPoint], list[MemoryOwner]]:
    """Return the timeline of the recorded steps and the owners of its peak; [] and [] without allocations."""
    allocations = list_allocations(raw, trace.device)
    if not allocations:
        return [], []
    initial = sum(sum(storages.values()) for storages in before.values())
    points = make_points(allocations, trace, initial, rank)
    if not points:
        return [], []
    peak = max(points, key=lambda point: point.allocated)
    owners = sum_owners(list_blocks(allocations), trace, drop_released(before, allocations, peak.time_us), peak, rank)
    return thin_points(points, MAX_POINTS), owners


def list_allocations(raw: Iterable[dict[str, Any]], device: str) -> list[dict[str, Any]]:
    """Return the allocations and releases on the device, in order of time; of several cards only the busiest."""
    by_card: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for event in raw:
        args = event.get("args") or {}
        if event.get("name") == ALLOCATION and (args.get("Device Type") == HOST_DEVICE_TYPE) == (device == "cpu"):
            by_card[args.get("Device Id")].append(event)
    busiest = max(by_card.values(), key=len, default=[])
    return sorted(busiest, key=lambda event: float(event["ts"]))


def make_points(allocations: list[dict[str, Any]], trace: Trace, initial: int, rank: int) -> list[MemoryPoint]:
    """Return the bytes in use after each allocation and release within the recorded steps.

    An accelerator's allocator reports its total. On the CPU the total is `initial`, the bytes of tensors from before
    recording, plus all allocations and minus all releases since then.
    """
    points, running = [], initial
    for event in allocations:
        args = event["args"]
        running += int(args.get("Bytes", 0))
        total, reserved = args.get("Total Allocated"), args.get("Total Reserved")
        allocated = running if trace.device == "cpu" or not isinstance(total, int) else total
        if trace.is_in_step(event["ts"]):
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
    """Return the storages from before recording that were still allocated at the moment `until`."""
    released = {
        event["args"].get("Addr") for event in allocations if event["args"]["Bytes"] < 0 and event["ts"] <= until
    }
    return filter_storages(before, lambda address: address not in released)


def sum_owners(
    blocks: list[Block], trace: Trace, before: dict[str, Storages], peak: MemoryPoint, rank: int
) -> list[MemoryOwner]:
    """Return the owners of all bytes at the peak, the largest first."""
    totals: dict[str, int] = {owner: sum(storages.values()) for owner, storages in before.items()}
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
    """Names the owner of a block, by the operator that allocated it and the time of its release."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.by_thread: dict[Any, list[Event]] = defaultdict(list)
        for event in trace.operators:
            self.by_thread[event.thread].append(event)
        self.starts = {thread: [event.start for event in events] for thread, events in self.by_thread.items()}
        ends = [event.end for event in trace.operators if trace.contexts[id(event)].phase == "backward"]
        self.backward_ends = [  # of each recorded step
            max((end for end in ends if start <= end < stop), default=start) for start, stop in trace.step_spans
        ]

    def name_owner(self, block: Block) -> str:
        """Return "activations of layer1", GRADIENTS, STATE, BATCHES, temporary tensors or OTHERS."""
        operator = self.find_operator(block)
        context = self.trace.contexts[id(operator)] if operator is not None else None
        if context is None or context.phase == "other":
            return OTHERS
        if context.phase == "data":
            return BATCHES
        if context.phase == "forward":
            return f"activations of {context.module}" if context.module else "activations outside of modules"
        if block.end <= self.find_temporary_end(block, context.phase):
            return TEMPORARY[context.phase]
        return GRADIENTS if context.phase == "backward" else STATE

    def find_operator(self, block: Block) -> Event | None:
        """Return the innermost operator that was running when a block was allocated."""
        latest = bisect_right(self.starts.get(block.thread, []), block.start) - 1
        event = self.by_thread[block.thread][latest] if latest >= 0 else None
        while event is not None and event.end < block.start:
            event = event.find_enclosing(OPERATOR)
        return event

    def find_temporary_end(self, block: Block, phase: str) -> float:
        """Return the end of the backward pass or, for a block of the update, of the step, in which it was allocated.

        A block that is released by then is temporary. The result is -inf for a block outside the recorded steps.
        """
        for (start, stop), backward_end in zip(self.trace.step_spans, self.backward_ends, strict=True):
            if start <= block.start < stop:
                return backward_end if phase == "backward" else stop
        return float("-inf")
