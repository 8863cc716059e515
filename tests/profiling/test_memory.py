from __future__ import annotations

from typing import Any

import torch
from torch import nn

from profiling.traces import MAIN, annotate, make_event, read_trace
from viaduct.profiling.memory import describe_memory, find_live_tensors, select_alive

STEP = [
    annotate("enumerate(DataLoader)#next", 0, 50),
    make_event("aten::stack", 10, 30),
    annotate("viaduct.module:conv", 100, 50),
    make_event("aten::conv2d", 110, 30, Sequence_number=1),
    make_event("autograd::engine::evaluate_function: ConvolutionBackward0", 200, 100, Sequence_number=1),
    annotate("Optimizer.step#SGD.step", 400, 50),
    make_event("aten::zeros_like", 410, 20),
]


def allocate(address: int, size: int, start: float, end: float | None = None, kind: int = 0, **args: Any) -> list[Any]:
    """Return an allocation, and its release where it ends."""
    marks = [(start, size)] + ([(end, -size)] if end is not None else [])
    return [
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": MAIN, "ts": time,
         "args": {"Bytes": change, "Addr": address, "Device Type": kind, "Device Id": -1 if kind == 0 else 0, **args}}
        for time, change in marks
    ]  # fmt: skip


def test_nothing_is_reported_where_nothing_was_allocated() -> None:
    assert describe_memory(STEP, read_trace(*STEP), {}) == ([], [])


def test_a_block_belongs_to_what_allocated_it_and_to_how_long_it_lived() -> None:
    blocks = [
        *allocate(1, 10, 20, 900),  # a batch
        *allocate(2, 200, 120, 290),  # an activation
        *allocate(3, 3000, 210, 280),  # within the backward pass
        *allocate(4, 40000, 220, 800),  # outlives it
    ]
    points, owners = describe_memory(blocks, read_trace(*STEP), {"parameters": {77: 500000}})
    assert max(point.allocated for point in points) == 543210
    assert {owner.name: owner.bytes for owner in owners} == {
        "parameters": 500000, "gradients": 40000, "temporary tensors of the backward pass": 3000,
        "activations of conv": 200, "batches": 10,
    }  # fmt: skip


def test_blocks_that_outlive_the_update_are_optimizer_state() -> None:
    _, owners = describe_memory(allocate(1, 64, 415), read_trace(*STEP), {})
    assert [(owner.name, owner.bytes) for owner in owners] == [("optimizer state", 64)]


def test_bytes_without_a_known_owner_are_not_identified() -> None:
    events = allocate(5, 100, 120, None, 1, **{"Total Allocated": 1000, "Total Reserved": 2000})
    points, owners = describe_memory(events, read_trace(*STEP, device="cuda"), {"parameters": {1: 300}})
    assert [(point.allocated, point.reserved) for point in points] == [(1000, 2000)]
    assert {owner.name: owner.bytes for owner in owners} == {
        "allocated before recording, not identified": 600, "parameters": 300, "activations of conv": 100,
    }  # fmt: skip


def test_gradients_from_before_that_were_released_are_not_at_the_peak() -> None:
    release = allocate(9, -300, 20, None, 1, **{"Total Allocated": 500, "Total Reserved": 2000})
    events = release + allocate(5, 1000, 120, None, 1, **{"Total Allocated": 1500, "Total Reserved": 2000})
    _, owners = describe_memory(
        events, read_trace(*STEP, device="cuda"), {"gradients": {9: 300}, "parameters": {1: 500}}
    )
    assert {owner.name: owner.bytes for owner in owners} == {"parameters": 500, "activations of conv": 1000}


def test_the_peak_survives_thinning() -> None:
    events = [mark for number in range(3000) for mark in allocate(number, 1 + 7 * (number == 1234), number / 10, 301)]
    points, _ = describe_memory(events, read_trace(*STEP), {})
    assert len(points) <= 1000
    assert max(point.allocated for point in points) == 3007


def test_live_tensors_are_found_by_owner() -> None:
    network = nn.Linear(30, 20)
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    network(torch.ones(1, 30)).sum().backward()
    optimizer.step()
    found = find_live_tensors("cpu")
    gradient = network.weight.grad
    assert gradient is not None
    state = optimizer.state[network.weight]["momentum_buffer"]
    for kind, tensor in (("parameters", network.weight), ("gradients", gradient), ("optimizer state", state)):
        assert found[kind][tensor.untyped_storage().data_ptr()] == 30 * 20 * 4
    addresses = [address for storages in found.values() for address in storages]
    assert len(addresses) == len(set(addresses))


def test_released_storages_do_not_count() -> None:
    before, after = {"gradients": {1: 10, 2: 20}}, {"gradients": {3: 10}, "other tensors": {2: 20}}
    assert select_alive(before, after) == {"gradients": {2: 20}}
