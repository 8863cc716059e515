"""The memory functions of torch.npu and torch.mlu: they count the bytes of the tensors that are alive.

There is no caching allocator beneath, so what is reserved is what is allocated; `empty_cache` has nothing to give back.
"""

from __future__ import annotations

import collections
from typing import Any

from viaduct.rehearsal.torch_stage.cards import Meter, cards, index_of

_MIB = 1 << 20
_POOLS = ("all", "large_pool", "small_pool")


def _meter(device: Any) -> Meter:
    return cards.meters[index_of(device)]


def memory_allocated(device: Any = None) -> int:
    """Return the bytes of the tensors that are alive on the card."""
    return _meter(device).alive


def max_memory_allocated(device: Any = None) -> int:
    """Return the most bytes that were alive at once."""
    return _meter(device).peak


def memory_reserved(device: Any = None) -> int:
    """Return the allocated bytes: the stand-in keeps no cache."""
    return _meter(device).alive


def max_memory_reserved(device: Any = None) -> int:
    """Return the peak of the allocated bytes: the stand-in keeps no cache."""
    return _meter(device).peak


def memory_cached(device: Any = None) -> int:
    """Return memory_reserved under its former name."""
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """Return max_memory_reserved under its former name."""
    return max_memory_reserved(device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Set the peak to what is allocated now."""
    meter = _meter(device)
    meter.peak = meter.alive


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Set the counts of allocations and releases to 0."""
    meter = _meter(device)
    meter.taken = meter.returned = meter.bytes_taken = meter.bytes_returned = 0


def reset_max_memory_allocated(device: Any = None) -> None:
    """Reset the peak, under its former name."""
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Any = None) -> None:
    """Reset the peak, under its former name."""
    reset_peak_memory_stats(device)


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Return the counters in the layout of torch.cuda."""
    meter = _meter(device)
    count = {
        "current": meter.taken - meter.returned,
        "peak": meter.taken - meter.returned,
        "allocated": meter.taken,
        "freed": meter.returned,
    }
    size = {
        "current": meter.alive,
        "peak": meter.peak,
        "allocated": meter.bytes_taken,
        "freed": meter.bytes_returned,
    }
    nothing = dict.fromkeys(size, 0)
    stats: dict[str, Any] = {"num_alloc_retries": 0, "num_ooms": 0, "max_split_size": -1}
    for kind, row in {"allocation": count, "segment": count, "active": count, "inactive_split": nothing}.items():
        stats[kind] = {pool: row if pool == "all" else nothing for pool in _POOLS}
    for kind, row in {"allocated_bytes": size, "reserved_bytes": size, "active_bytes": size}.items():
        stats[kind] = {pool: row if pool == "all" else nothing for pool in _POOLS}
    stats["inactive_split_bytes"] = dict.fromkeys(_POOLS, nothing)
    return stats


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Return the counters under dotted names, in order."""
    flat: dict[str, Any] = collections.OrderedDict()

    def lay(prefix: str, value: Any) -> None:
        """Add a value, or the values of a nested dict, under dotted names."""
        if isinstance(value, dict):
            for name, part in value.items():
                lay(f"{prefix}.{name}" if prefix else name, part)
        else:
            flat[prefix] = value

    lay("", memory_stats_as_nested_dict(device))
    return collections.OrderedDict(sorted(flat.items()))


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Return the counters as a table."""
    meter = _meter(device)
    rows = [
        ("Allocated memory", meter.alive, meter.peak, meter.bytes_taken, meter.bytes_returned),
        ("Reserved memory", meter.alive, meter.peak, meter.bytes_taken, meter.bytes_returned),
    ]
    head = f"| {'Metric':<18} | {'Cur Usage':>12} | {'Peak Usage':>12} | {'Tot Alloc':>12} | {'Tot Freed':>12} |"
    rule = "-" * len(head)
    lines = [
        f"| {name:<18} | " + " | ".join(f"{value / _MIB:>8.1f} MiB" for value in values) + " |"
        for name, *values in rows
    ]
    title = f"{cards.name.upper()} memory summary, device ID {index_of(device)} (a stand-in on the CPU)"
    return "\n".join([rule, title, rule, head, rule, *lines, rule]) + "\n"


def memory_snapshot(mempool_id: Any = None) -> list[dict[str, Any]]:
    """Return one segment for each card that holds memory, without blocks."""
    return [
        {"device": index, "total_size": meter.alive, "allocated_size": meter.alive, "blocks": []}
        for index, meter in enumerate(cards.meters)
        if meter.alive
    ]


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return the free and total bytes; the total is that of the real card."""
    return cards.memory - _meter(device).alive, cards.memory


def empty_cache() -> None:
    """Do nothing: the stand-in keeps no cache."""
    pass


def host_empty_cache() -> None:
    """Do nothing: the stand-in keeps no cache."""
    pass


def get_allocator_backend() -> str:
    return "native"


_fraction: dict[int, float] = {}


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Store the fraction after the checks that torch.cuda makes; it is not enforced."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _fraction[index_of(device)] = fraction


def get_per_process_memory_fraction(device: Any = None) -> float:
    return _fraction.get(index_of(device), 1.0)
