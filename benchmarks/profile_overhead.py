"""What the step trace of `viaduct profile run` costs a script: the same steps bare and watched, taking turns.

    python benchmarks/profile_overhead.py [--network resnet18|mlp|tiny] [--steps 10] [--turns 9]

Only the step trace is on (no operator profiler), with its log and its system sampler, as in the timed steps of a
profile. Bare and watched steps run in the same process on the same memory. Printed are medians over the turns of
watched / bare, by the clock and in processor time of all threads: the latter holds on a machine that is busy, too.
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
    """Time of some steps."""

    clock: float
    processor: float


Train = Callable[[int], Seconds]


def make_training(name: str) -> Train:
    """Return a function that takes so many steps and says how long they took; it is an ordinary training loop."""
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


def measure_turn(train: Train, steps: int, watched_first: bool) -> tuple[Seconds, Seconds]:
    """Return the seconds of the bare and of the watched steps."""
    seconds = {}
    for watched in (watched_first, not watched_first):
        if watched:
            seconds[True] = measure_watched(train, steps)
        else:
            train(WARMUP)
            seconds[False] = train(steps)
    return seconds[False], seconds[True]


def measure_watched(train: Train, steps: int) -> Seconds:
    """Return the seconds of watched steps after warm-up steps, which learn the network."""
    with tempfile.TemporaryDirectory() as record:
        job = ScriptJob("benchmark", (), False, record, record, WARMUP, 10**6, 0)
        with Session(job, lambda: None) as session:
            train(WARMUP)
            seconds = train(steps)
        session.finish()
        assert session.collector.taken == WARMUP + steps
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
        pairs = [(getattr(bare, kind), getattr(watched, kind)) for bare, watched in turns]
        ratios = [watched / bare for bare, watched in pairs]
        step_us = median(bare for bare, _ in pairs) / given.steps * 1e6
        added_us = median(watched - bare for bare, watched in pairs) / given.steps * 1e6
        print(
            f"{given.network}, {kind} time: a bare step takes {step_us:,.0f} µs, watching adds {added_us:,.0f} µs; "
            f"watched / bare {median(ratios):.4f} (turns from {min(ratios):.3f} to {max(ratios):.3f})"
        )


if __name__ == "__main__":
    main()
