"""Measurement of an engine's throughput and latency percentiles, after a warm-up.

    measure_latency(engine, batch=8, warm_up=100, repeats=300)

The time of a call includes copying the prepared images to the device and the logits back. The images are noise.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from viaduct.errors import BadValue
from viaduct.handover.engine import Engine

PERCENTILES = (50, 90, 95, 99)
MAX_BATCH = 65_536


def read_batches(text: str) -> list[int]:
    """Parse batch sizes, such as 1,8,64."""
    parts = [part.strip() for part in text.split(",")]
    wrong = next((part for part in parts if not part.isdecimal() or not 1 <= int(part) <= MAX_BATCH), None)
    if wrong is not None:
        raise BadValue(
            f"--batch {text}: {wrong!r} is not a number of images from 1 to {MAX_BATCH:,}.", "Try: --batch 1,8,64"
        )
    return [int(part) for part in parts]


def measure_latency(engine: Engine, batch: int, *, warm_up: int, repeats: int, seconds: float = 30.0) -> dict[str, Any]:
    """Return throughput and the distribution of call times, in milliseconds, for a batch size.

    Keys are batch, warm_up_calls and those of `summarise_calls`. Warm-up ends after `warm_up` calls, measurement after
    `repeats` calls; each ends earlier after `seconds`.
    """
    inputs = torch.randn(batch, 3, engine.size, engine.size, generator=torch.Generator().manual_seed(0))
    inputs = inputs.contiguous(memory_format=torch.channels_last)
    warm_up_calls = sum(1 for _ in time_calls(engine, inputs, warm_up, seconds))
    call_seconds = list(time_calls(engine, inputs, repeats, seconds))
    return {"batch": batch, "warm_up_calls": warm_up_calls, **summarise_calls(batch, call_seconds)}


def time_calls(engine: Engine, inputs: torch.Tensor, calls: int, seconds: float) -> Iterator[float]:
    """Yield the seconds of each call; end after `calls` calls, or after about `seconds`."""
    deadline = time.perf_counter() + seconds
    for _ in range(calls):
        start = time.perf_counter()
        engine.run(inputs)
        end = time.perf_counter()
        yield end - start
        if end > deadline:
            return


def summarise_calls(batch: int, call_seconds: list[float]) -> dict[str, Any]:
    """Return calls, images_per_s and, in ms, mean, fastest, slowest and percentiles; None if too few calls for one."""
    times = np.array(call_seconds) * 1000
    figures: dict[str, Any] = {
        "calls": len(times),
        "images_per_s": batch * len(times) / float(sum(call_seconds)),
        "mean_ms": float(times.mean()),
        "fastest_ms": float(times.min()),
        "slowest_ms": float(times.max()),
    }
    for percent in PERCENTILES:
        has_enough = len(times) * (100 - percent) >= 100  # at least one call is beyond the percentile
        figures[f"p{percent}_ms"] = float(np.percentile(times, percent)) if has_enough else None
    return figures
