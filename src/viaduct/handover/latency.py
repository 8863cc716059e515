"""How long an answer takes: throughput and percentiles by batch size, warm-up left out.

    measure_latency(engine, batch=8, warm_up=100, repeats=300)

A call is timed from prepared images on the host to their logits on the host. Images are noise: the time of a network
does not depend on what is on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from viaduct.errors import BadValue
from viaduct.handover.engine import Engine

PERCENTILES = (50, 90, 95, 99)
LARGEST_BATCH = 65_536


def read_batches(text: str) -> list[int]:
    """Return the batch sizes of a flag: 1,8,64."""
    parts = [part.strip() for part in text.split(",")]
    wrong = next((part for part in parts if not part.isdecimal() or not 1 <= int(part) <= LARGEST_BATCH), None)
    if wrong is not None:
        raise BadValue(
            f"--batch {text}: {wrong!r} is not a number of images from 1 to {LARGEST_BATCH:,}.", "Try: --batch 1,8,64"
        )
    return [int(part) for part in parts]


def measure_latency(
    engine: Engine,
    batch: int,
    *,
    warm_up: int,
    repeats: int,
    seconds: float = 30.0,
    tell: Callable[[int], object] = lambda done: None,
) -> dict[str, Any]:
    """Return throughput and the distribution of call times of a batch size, in milliseconds.

    Warm-up and measurement each end after so many calls, or after so many seconds, whichever comes first; how many
    calls there were is part of the answer.
    """
    inputs = torch.randn(batch, 3, engine.size, engine.size, generator=torch.Generator().manual_seed(0))
    inputs = inputs.contiguous(memory_format=torch.channels_last)
    warmed = sum(1 for _ in time_calls(engine, inputs, warm_up, seconds))
    taken = []
    for call in time_calls(engine, inputs, repeats, seconds):
        taken.append(call)
        tell(len(taken))
    return {"batch": batch, "warm_up_calls": warmed, **summarise_calls(batch, taken)}


def time_calls(engine: Engine, inputs: torch.Tensor, most: int, seconds: float) -> Iterator[float]:
    """Yield the seconds of each call, at least one unless none are asked for."""
    end = time.perf_counter() + seconds
    for _ in range(most):
        began = time.perf_counter()
        engine.run(inputs)
        finished = time.perf_counter()
        yield finished - began
        if finished > end:
            return


def summarise_calls(batch: int, taken: list[float]) -> dict[str, Any]:
    """Return images/s, mean and percentiles of call times; a percentile that too few calls show is None."""
    times = np.array(taken) * 1000
    figures: dict[str, Any] = {
        "calls": len(taken),
        "images_per_s": batch * len(taken) / float(sum(taken)),
        "mean_ms": float(times.mean()),
        "fastest_ms": float(times.min()),
        "slowest_ms": float(times.max()),
    }
    for percent in PERCENTILES:
        enough = len(taken) * (100 - percent) >= 100  # at least one call lies beyond it
        figures[f"p{percent}_ms"] = float(np.percentile(times, percent)) if enough else None
    return figures
