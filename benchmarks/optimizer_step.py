"""Measure an optimizer step over ResNet-50's weights, and the cost of a THOR refresh.

    python benchmarks/optimizer_step.py                                 CPU: batch 4, 64x64
    python benchmarks/optimizer_step.py --device cuda                   batch 256, 224x224

The first table shows `optimizer.step()` alone, on constant gradients; the ratio is relative to torch's SGD with its
defaults. The second table shows a whole step, forward and backward included, uncompiled, in the precision that `auto`
selects on the device: with SGD, with THOR between refreshes, and with a refresh. Its last column spreads each refresh
over --frequency steps. Times are medians; the device is synchronized before and after each.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from run_description import write_record
from torch import Tensor, nn

from viaduct import devices, models
from viaduct.devices.base import Device
from viaduct.devices.timing import Clock, Sample
from viaduct.recipes import Lars, Precision, Recipe, RmsProp, Sgd, Shapes, Thor
from viaduct.training.networks import place_model
from viaduct.training.optim import build_optimizer
from viaduct.training.precision import Computation, plan_precision
from viaduct.training.thor import ThorOptimizer

CLASSES = 1001
PARTS = {
    "Sgd": Sgd(1e-4, weight_decay=1e-4),
    "Lars, contrib": Lars(1e-4),
    "Lars, resnext": Lars(1e-4, form="resnext"),
    "RmsProp": RmsProp(1e-4, weight_decay=1e-4),
    "Thor, between refreshes": Thor(1e-4),
}


@dataclass(frozen=True)
class Bench:
    """Network on a device, with a clock."""

    room: Device
    device: torch.device
    model: nn.Module
    repeats: int

    def milliseconds(self, run: Callable[[], None]) -> float:
        run()  # the first makes buffers and looks for the quickest kernels
        clock = Clock(self.room, self.device.type)
        return 1000 * Sample([clock.measure_seconds(run) for _ in range(self.repeats)]).median

    def optimizer(self, part: Any) -> torch.optim.Optimizer:
        recipe = Recipe(model="resnet50_v1", data=Shapes(global_batch=8, size=32), optimizer=part)
        return build_optimizer(recipe, self.model)


def fill_gradients(model: nn.Module) -> None:
    """Fill gradients with values too small to change the weights noticeably, in the weights' memory format."""
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter).mul_(1e-4)


def measure_optimizer_steps(bench: Bench) -> dict[str, float]:
    fill_gradients(bench.model)
    plain = torch.optim.SGD(bench.model.parameters(), 1e-4, momentum=0.9, weight_decay=1e-4)
    found = {"torch SGD": bench.milliseconds(plain.step)}
    for name, part in PARTS.items():
        found[name] = bench.milliseconds(bench.optimizer(part).step)
    bench.model.zero_grad(set_to_none=True)
    return found


def measure_whole_steps(bench: Bench, batch: int, size: int) -> dict[str, float]:
    plan = plan_precision(Precision(), bench.room)
    computation = Computation(bench.model, plan, bench.device)
    images = torch.randn(batch, 3, size, size, device=bench.device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, CLASSES, (batch,), device=bench.device)
    found = {}
    for name, part, watched in (
        ("Sgd", PARTS["Sgd"], False),
        ("Thor, between refreshes", Thor(1e-6), False),
        ("Thor, refresh", Thor(1e-6), True),
    ):
        step = make_step(computation, bench.optimizer(part), images, labels, watched)
        found[name] = bench.milliseconds(step)
    return found


def make_step(
    computation: Computation, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, watched: bool
) -> Callable[[], None]:
    def run() -> None:
        watch = nullcontext()
        if watched and isinstance(optimizer, ThorOptimizer):
            watch = optimizer.record_factors(computation.network, 1.0)  # type: ignore[assignment]
        with watch:
            loss = F.cross_entropy(computation(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return run


def make_rows(found: dict[str, float], frequency: int) -> list[dict[str, str]]:
    """Return one row per variant; a refresh is also spread over the steps between refreshes."""
    base = next(iter(found.values()))
    rows = []
    for name, value in found.items():
        rows.append({"variant": name, "ms": f"{value:.3f}", "ratio": f"{value / base:.3f}", "spread": ""})
        if name == "Thor, refresh":
            between = found["Thor, between refreshes"]
            spread = between + (value - between) / frequency
            rows[-1]["spread"] = f"{spread:.3f} ms, ratio {spread / base:.3f} at frequency {frequency}"
    return rows


def print_rows(title: str, rows: list[dict[str, str]]) -> None:
    print(title)
    for row in rows:
        print(f"  {row['variant']:26s} {row['ms']:>10s} ms  ratio {row['ratio']:>7s}  {row['spread']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=0, help="0: 4 on the CPU, 256 elsewhere")
    parser.add_argument("--size", type=int, default=0, help="0: 64 on the CPU, 224 elsewhere")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--frequency", type=int, default=50, help="steps from one refresh to the next")
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    room, device = devices.pick(options.device)
    small = device.type == "cpu"
    batch, size = options.batch or (4 if small else 256), options.size or (64 if small else 224)
    torch.backends.cudnn.benchmark = True
    model = place_model(models.build("resnet50_v1", classes=CLASSES), device)
    bench = Bench(room, device, model, options.repeats)
    alone = make_rows(measure_optimizer_steps(bench), options.frequency)
    print_rows("optimizer.step() over ResNet-50's weights", alone)
    whole_step = make_rows(measure_whole_steps(bench, batch, size), options.frequency)
    print_rows(f"a whole step, uncompiled: batch {batch}, {size}x{size}", whole_step)
    if options.out:
        title = f"Optimizer steps over ResNet-50's weights; whole steps with batch {batch}, {size}x{size}"
        rows = [{**row, "variant": f"step() alone: {row['variant']}"} for row in alone]
        rows += [{**row, "variant": f"whole step: {row['variant']}"} for row in whole_step]
        write_record(options.out, room, title, rows)


if __name__ == "__main__":
    main()
