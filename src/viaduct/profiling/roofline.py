"""Ceilings of a device (its peak memory bandwidth and FLOP/s), and the share of them that an operator reaches.

    ceilings = load_ceilings("cpu", ["float32"])          # measured, then read from the user's cache folder
    compute_roofline_share(flops=2e9, bytes=3e7, dtypes="float32", time_us=900.0, ceilings=ceilings)

The ceilings are the rates of a large copy and of a large matrix product in each dtype (devices/ceilings.py). They are
cached for one device, torch version and number of threads. A busy machine gives lower rates, so each of the first three
profiles on a device measures them, and the best are kept. Importing this module does not import torch.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from viaduct.json_records import Damaged, decode_record, load_object
from viaduct.profiling.record import Ceilings

SCHEMA = 1
MEASUREMENTS = 3  # number of measurements after which the best rate is final
DTYPES_WITH_CEILING = ("float32", "bfloat16", "float16", "float64")  # only these dtypes have a ceiling

Key = dict[str, Any]


def compute_roofline_share(
    flops: float | None, bytes: float | None, dtypes: str, time_us: float, ceilings: Ceilings | None
) -> float | None:
    """Return the least time that the operations or the bytes need on this device, divided by the time taken.

    None if work, time or ceiling is not known; more than 1 if caches save memory traffic. Of several `dtypes`
    ("int64, float32"), the first that has a ceiling is used.
    """
    if ceilings is None or flops is None or bytes is None or time_us <= 0 or ceilings.bandwidth <= 0:
        return None
    names = [name.strip().removeprefix("torch.") for name in dtypes.split(",")]
    peak = next((ceilings.flops[name] for name in names if ceilings.flops.get(name, 0) > 0), 0.0)
    if flops > 0 and not peak:
        return None
    computing_us = flops / peak * 1e6 if peak else 0.0
    moving_us = bytes / ceilings.bandwidth * 1e6
    return max(computing_us, moving_us) / time_us


@dataclass(frozen=True)
class CachedCeilings(Ceilings):
    """Ceilings in the cache: the best of the measurements so far."""

    counts: dict[str, int]  # measurements of each dtype


def load_ceilings(device: str, dtypes: Sequence[str]) -> Ceilings:
    """Return the device's ceilings from the cache, after measuring those that are not final."""
    key = describe_setting(device)
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = cache / "viaduct" / f"ceilings-{digest}.json"
    cached = read_cache(path, key) or CachedCeilings(0.0, {}, {})
    dtypes = [dtype for dtype in DTYPES_WITH_CEILING if dtype in dtypes]
    to_measure = [dtype for dtype in dtypes if cached.counts.get(dtype, 0) < MEASUREMENTS]
    if to_measure or not cached.bandwidth:
        new = measure_ceilings(device, to_measure)
        cached = CachedCeilings(
            max(cached.bandwidth, new.bandwidth),
            cached.flops | {dtype: max(rate, cached.flops.get(dtype, 0.0)) for dtype, rate in new.flops.items()},
            cached.counts | {dtype: cached.counts.get(dtype, 0) + 1 for dtype in new.flops},
        )
        write_cache(path, key, cached)
    return Ceilings(cached.bandwidth, {dtype: cached.flops[dtype] for dtype in dtypes if dtype in cached.flops})


def describe_setting(device: str) -> Key:
    """Return what ceilings depend on, as the key of the cache: device, its description, versions, threads, TF32."""
    import torch

    from viaduct import devices

    profiled_device = devices.get(device)
    threads = torch.get_num_threads() if device == "cpu" else None
    key: Key = {"device": device, "description": profiled_device.describe_card(), "threads": threads}
    return key | {"versions": profiled_device.get_versions(), "tf32": device == "cuda" and uses_tf32()}


def uses_tf32() -> bool:
    """Return True if float32 convolutions may use TF32, which is several times as fast."""
    import torch

    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # newer releases refuse the old name once the new one was used
        settings = getattr(torch.backends.cudnn, "conv", None)
        return getattr(settings, "fp32_precision", "") == "tf32"


def measure_ceilings(device: str, dtypes: Sequence[str]) -> Ceilings:
    """Measure a copy, and a matrix product of each supported dtype, without changing the random state."""
    import torch

    from viaduct import devices
    from viaduct.devices import ceilings
    from viaduct.devices.timing import Clock

    profiled_device = devices.get(device)
    card = torch.device(device) if device == "cpu" else torch.device(device, getattr(torch, device).current_device())
    clock = Clock(profiled_device, device)
    flops: dict[str, float] = {}
    cards = [] if card.index is None else [card.index]
    device_type = "cuda" if device == "cpu" else device  # fork_rng takes no "cpu", and saves the CPU's state anyway
    with torch.random.fork_rng(devices=cards, device_type=device_type), torch.no_grad():
        bandwidth = ceilings.measure_copy_rate(clock, profiled_device, card)
        for dtype in dtypes:
            try:
                flops[dtype] = ceilings.measure_matmul_rate(clock, card, getattr(torch, dtype), uses_tf32())
            except RuntimeError as error:
                logging.getLogger(__name__).info("no matrix product in %s on %s: %s", dtype, device, error)
    return Ceilings(bandwidth, flops)


def read_cache(path: Path, key: Key) -> CachedCeilings | None:
    """Return cached ceilings; None if the file is missing, damaged, or of another device."""
    try:
        content = load_object(path)
        cached: CachedCeilings = decode_record(CachedCeilings, content)
    except (OSError, Damaged):
        return None
    is_current = content.get("schema") == SCHEMA and content.get("key") == key
    is_current = is_current and cached.flops.keys() == cached.counts.keys()
    is_sound = all(isfinite(rate) and rate > 0 for rate in (cached.bandwidth, *cached.flops.values()))
    return cached if is_current and is_sound else None


def write_cache(path: Path, key: Key, ceilings: CachedCeilings) -> None:
    """Write ceilings to the cache; an error is only logged, as they can be measured again."""
    from viaduct.atomic_files import write_file

    content = {"schema": SCHEMA, "key": key, **asdict(ceilings)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(content, indent=1).encode(), durable=False)
    except OSError as error:
        logging.getLogger(__name__).info("ceilings are not cached: %s", error)
