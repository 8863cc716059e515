"""Ceilings of a device, and how near an operator comes to them.

    ceilings = load_ceilings("cpu", ["float32"])          # measured, then read from the user's cache folder
    compute_roofline_share(flops=2e9, bytes=3e7, dtypes="float32", time_us=900.0, ceilings=ceilings)

The ceilings are the rates of a large copy and of a large matrix product in each dtype (devices/ceilings.py). They hold
for one device, torch and number of threads, and are never used for another. On a machine that is busy with other work
they come out lower, so the first three profiles on a device each measure them, and the best count. Importing this
module does not import torch.
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

from viaduct.profiling.record import Ceilings

SCHEMA = 1
MEASUREMENTS = 3  # before a cached figure is final
DTYPES_WITH_CEILING = ("float32", "bfloat16", "float16", "float64")
"""Dtypes with a ceiling of their own; others have none."""

Key = dict[str, Any]


def compute_roofline_share(
    flops: float | None, bytes: float | None, dtypes: str, time_us: float, ceilings: Ceilings | None
) -> float | None:
    """Return the least time that the operations or the bytes need on this device, divided by the time taken.

    None if work, time or ceiling is not known; more than 1 if caches save memory traffic. Of `dtypes`
    ("int64, float32") the first that has a ceiling counts.
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
class CachedCeilings:
    """Ceilings in the cache: the best of the measurements so far."""

    bandwidth: float
    flops: dict[str, float]
    counts: dict[str, int]  # measurements of each dtype


def load_ceilings(device: str, dtypes: Sequence[str]) -> Ceilings:
    """Return the device's ceilings from the cache; those that are not final there are measured now."""
    key = describe_setting(device)
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = cache / "viaduct" / f"ceilings-{digest}.json"
    known = read_cache(path, key) or CachedCeilings(0.0, {}, {})
    wanted = [dtype for dtype in DTYPES_WITH_CEILING if dtype in dtypes]
    to_measure = [dtype for dtype in wanted if known.counts.get(dtype, 0) < MEASUREMENTS]
    if to_measure or not known.bandwidth:
        new = measure_ceilings(device, to_measure)
        known = CachedCeilings(
            max(known.bandwidth, new.bandwidth),
            known.flops | {dtype: max(rate, known.flops.get(dtype, 0.0)) for dtype, rate in new.flops.items()},
            known.counts | {dtype: known.counts.get(dtype, 0) + 1 for dtype in new.flops},
        )
        write_cache(path, key, known)
    return Ceilings(known.bandwidth, {dtype: known.flops[dtype] for dtype in wanted if dtype in known.flops})


def describe_setting(device: str) -> Key:
    """Return everything that ceilings depend on: cached ones are used for an equal description only."""
    import torch

    from viaduct import devices

    here = devices.get(device)
    threads = torch.get_num_threads() if device == "cpu" else None
    key: Key = {"device": device, "description": here.describe_card(), "threads": threads}
    return key | {"versions": here.get_versions(), "tf32": device == "cuda" and uses_tf32()}


def uses_tf32() -> bool:
    """Return True if float32 convolutions may be rounded to TF32, which makes them several times as fast."""
    import torch

    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # newer releases refuse the old name once the new one was used
        settings = getattr(torch.backends.cudnn, "conv", None)
        return getattr(settings, "fp32_precision", "") == "tf32"


def measure_ceilings(device: str, dtypes: Sequence[str]) -> Ceilings:
    """Measure a copy, and a matrix product of each dtype that the device has; the random state does not change."""
    import torch

    from viaduct import devices
    from viaduct.devices import ceilings
    from viaduct.devices.timing import Clock

    here = devices.get(device)
    card = torch.device(device) if device == "cpu" else torch.device(device, getattr(torch, device).current_device())
    clock = Clock(here, device)
    flops: dict[str, float] = {}
    cards = [] if card.index is None else [card.index]
    with torch.random.fork_rng(devices=cards, device_type="cuda" if device == "cpu" else device), torch.no_grad():
        bandwidth = ceilings.measure_copy_rate(clock, here, card)
        for dtype in dtypes:
            try:
                flops[dtype] = ceilings.measure_matmul_rate(clock, card, getattr(torch, dtype), uses_tf32())
            except RuntimeError as error:
                logging.getLogger(__name__).info("no matrix product in %s on %s: %s", dtype, device, error)
    return Ceilings(bandwidth, flops)


def read_cache(path: Path, key: Key) -> CachedCeilings | None:
    """Return cached ceilings; None if there are none, they are damaged, or they are those of another device."""
    try:
        content = json.loads(path.read_text())
        flops = {str(name): float(rate) for name, rate in content["flops"].items()}
        counts = {str(name): int(count) for name, count in content["counts"].items()}
        known = CachedCeilings(float(content["bandwidth"]), flops, counts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    is_ours = content.get("schema") == SCHEMA and content.get("key") == key and flops.keys() == counts.keys()
    is_sound = all(isfinite(rate) and rate > 0 for rate in (known.bandwidth, *flops.values()))
    return known if is_ours and is_sound else None


def write_cache(path: Path, key: Key, known: CachedCeilings) -> None:
    """Write ceilings to the cache; if the folder cannot be written they are measured again next time."""
    from viaduct.atomic_files import replace_file

    content = {"schema": SCHEMA, "key": key, **asdict(known)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path, durable=False) as file:
            file.write(json.dumps(content, indent=1).encode())
    except OSError as error:
        logging.getLogger(__name__).info("ceilings are not kept: %s", error)
