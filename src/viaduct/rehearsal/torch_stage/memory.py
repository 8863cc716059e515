"""The memory functions of torch.npu and torch.mlu, which count the bytes of the tensors that are alive.

The stand-in has no caching allocator, so reserved bytes are the allocated ones, and `empty_cache` frees nothing.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

from viaduct.rehearsal.torch_stage.cards import MemoryMeter, cards, resolve_card_index

_MIB = 1 << 20


def _find_meter(device: Any) -> MemoryMeter:
    return cards.memory_meters[resolve_card_index(device)]


def memory_allocated(device: Any = None) -> int:
    """Return the bytes of the tensors that are alive on the card."""
    return _find_meter(device).current_bytes


def max_memory_allocated(device: Any = None) -> int:
    return _find_meter(device).peak_bytes


memory_reserved = memory_cached = memory_allocated
max_memory_reserved = max_memory_cached = max_memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Set the peak to the bytes that are allocated now."""
    meter = _find_meter(device)
    meter.peak_bytes = meter.current_bytes


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Set the totals of allocations and releases to 0."""
    meter = _find_meter(device)
    meter.allocations = meter.releases = meter.bytes_allocated = meter.bytes_released = 0


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Return the counters in the layout of torch.cuda; those of the large and the small pool are 0."""
    meter = _find_meter(device)
    # The peak of the number of allocations is not measured; the current number stands for it.
    count = {"current": meter.current_tensors, "peak": meter.current_tensors}
    count |= {"allocated": meter.allocations, "freed": meter.releases}
    size = {"current": meter.current_bytes, "peak": meter.peak_bytes}
    size |= {"allocated": meter.bytes_allocated, "freed": meter.bytes_released}
    zeros = dict.fromkeys(size, 0)
    rows = {
        **dict.fromkeys(("allocation", "segment", "active"), count),
        **dict.fromkeys(("allocated_bytes", "reserved_bytes", "active_bytes"), size),
        **dict.fromkeys(("inactive_split", "inactive_split_bytes"), zeros),
    }
    by_pool = {kind: {"all": row, "large_pool": zeros, "small_pool": zeros} for kind, row in rows.items()}
    return {"num_alloc_retries": 0, "num_ooms": 0, "max_split_size": -1, **by_pool}


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Return the counters under dotted names, sorted."""

    def flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict):
            for name, inner in value.items():
                yield from flatten(f"{prefix}.{name}" if prefix else name, inner)
        else:
            yield prefix, value

    return collections.OrderedDict(sorted(flatten("", memory_stats_as_nested_dict(device))))


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Return a table of the counters; `abbreviated` changes nothing."""
    meter = _find_meter(device)
    columns = (meter.current_bytes, meter.peak_bytes, meter.bytes_allocated, meter.bytes_released)
    cells = " | ".join(f"{value / _MIB:>8.1f} MiB" for value in columns)
    head = f"| {'Metric':<18} | {'Cur Usage':>12} | {'Peak Usage':>12} | {'Tot Alloc':>12} | {'Tot Freed':>12} |"
    rule = "-" * len(head)
    lines = [f"| {name:<18} | {cells} |" for name in ("Allocated memory", "Reserved memory")]
    title = (
        f"{cards.device_name.upper()} memory summary, device ID {resolve_card_index(device)} (a stand-in on the CPU)"
    )
    return "\n".join([rule, title, rule, head, rule, *lines, rule]) + "\n"


def memory_snapshot(mempool_id: Any = None) -> list[dict[str, Any]]:
    """Return one segment for each card that holds memory, without blocks."""
    return [
        {"device": index, "total_size": meter.current_bytes, "allocated_size": meter.current_bytes, "blocks": []}
        for index, meter in enumerate(cards.memory_meters)
        if meter.current_bytes
    ]


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return the free and total bytes; the total is that of the real card."""
    return cards.memory_bytes - _find_meter(device).current_bytes, cards.memory_bytes


def empty_cache() -> None:
    """Do nothing: the stand-in keeps no cache."""


host_empty_cache = empty_cache


def get_allocator_backend() -> str:
    return "native"


_fractions: dict[int, float] = {}  # by card


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Store the fraction after the checks that torch.cuda makes; it is not enforced."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _fractions[resolve_card_index(device)] = fraction


def get_per_process_memory_fraction(device: Any = None) -> float:
    return _fractions.get(resolve_card_index(device), 1.0)
