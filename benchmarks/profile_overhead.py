"""Measure how much the step trace of `viaduct profile run` slows a script down.

    python benchmarks/profile_overhead.py [--network resnet18|mlp|tiny] [--steps 10] [--turns 9]

Only the step trace is active, with its log and its system sampler, as in the timed steps of a profile; the operator
profiler is off. Untraced and traced steps take turns in the same process. The script prints medians over the turns of
the ratio traced / untraced, in wall-clock time and in CPU time of all threads. The latter is also valid on a busy
machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from viaduct.profiling.collector import Plan
from viaduct.profiling.script_job import ScriptJob
from viaduct.profiling.session import Session

WARMUP = 3


def build_network(name: str) -> tuple[nn.Module, torch.Tensor]:
    """Return a network and one batch for it."""
    if name == "resnet18":
        from viaduct.models import build

        return build("resnet18_v2", classes=10), torch.randn(8, 3, 64, 64)
    if name == "mlp":
        return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 10)), torch.randn(128, 512)
    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(20))), torch.randn(8, 16)


class Seconds(NamedTuple):
    """Wall-clock and CPU time of some steps."""

    clock: float
    processor: float


Train = Callable[[int], Seconds]


def make_training(name: str) -> Train:
    """Return a training loop: a function of the number of steps that returns their times."""
    network, batch = build_network(name)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9)
    images = batch.repeat(16, *(1 for _ in batch.shape[1:]))
    loader = DataLoader(TensorDataset(images), batch_size=len(batch))

    def feed() -> Iterator[torch.Tensor]:
        while True:
            for (images,) in loader:
                yield images

    batches = feed()

    def train(steps: int) -> Seconds:
        began, work = time.perf_counter(), time.process_time()
        for _ in range(steps):
            value = network(next(batches)).float().pow(2).mean()
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        return Seconds(time.perf_counter() - began, time.process_time() - work)

    return train


def measure_turn(train: Train, steps: int, traced_first: bool) -> tuple[Seconds, Seconds]:
    """Return the times of untraced and of traced steps."""
    seconds = {}
    for traced in (traced_first, not traced_first):
        if traced:
            seconds[True] = measure_traced(train, steps)
        else:
            train(WARMUP)
            seconds[False] = train(steps)
    return seconds[False], seconds[True]


def measure_traced(train: Train, steps: int) -> Seconds:
    """Return the times of traced steps; the trace identifies the network in warm-up steps."""
    with tempfile.TemporaryDirectory() as record:
        job = ScriptJob("benchmark", (), False, record, record, Plan(WARMUP, 10**6, 0))
        with Session(job, lambda: None) as session:
            train(WARMUP)
            seconds = train(steps)
        session.finish()
        assert session.collector.ended_steps == WARMUP + steps
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="mlp", choices=["resnet18", "mlp", "tiny"])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=9)
    given = parser.parse_args()
    train = make_training(given.network)
    train(WARMUP)
    turns = [measure_turn(train, given.steps, bool(turn % 2)) for turn in range(given.turns)]
    for kind in Seconds._fields:
        pairs = [(getattr(untraced, kind), getattr(traced, kind)) for untraced, traced in turns]
        ratios = [traced / untraced for untraced, traced in pairs]
        step_us = median(untraced for untraced, _ in pairs) / given.steps * 1e6
        added_us = median(traced - untraced for untraced, traced in pairs) / given.steps * 1e6
        print(
            f"{given.network}, {kind} time: an untraced step takes {step_us:,.0f} µs, tracing adds {added_us:,.0f} µs; "
            f"traced / untraced {median(ratios):.4f} (turns from {min(ratios):.3f} to {max(ratios):.3f})"
        )


if __name__ == "__main__":
    main()
