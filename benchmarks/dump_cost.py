"""Measure what a dump costs: ResNet-50 training steps in fp32 with a dump, beside one, and without.

    python benchmarks/dump_cost.py [--batch 8] [--size 224] [--turns 5] [--out FILE]
    python benchmarks/dump_cost.py --device cuda --batch 64

Each turn trains the same network for three steps without a dump, and for each variant three steps of which the second
is dumped. Turns alternate. Times are medians; ratios are relative to the step without a dump. The time of a dumped
step ends when the dump is complete on the disk.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from run_description import write_record

from viaduct import devices, models
from viaduct.comparison import Dump
from viaduct.devices.base import Device
from viaduct.devices.timing import Clock, Sample
from viaduct.training.networks import place_model

DUMPED = 1
VARIANTS: dict[str, dict[str, Any]] = {
    "module level": {},
    "module level, outputs": {"mode": "output"},
    "module level, statistics only": {"statistics_only": True},
    "operator level": {"level": "op"},
}


class Bench:
    def __init__(self, room: Device, device: torch.device, batch: int, size: int) -> None:
        self.clock = Clock(room, device.type)
        self.model = place_model(models.build("resnet50_v1", classes=1001), device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-4, momentum=0.9)
        images = torch.randn(batch, 3, size, size, device=device)
        self.images = images.to(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 1001, (batch,), device=device)

    def turn(self, folder: Path, options: dict[str, Any] | None) -> list[float]:
        """Return the seconds of three steps; with options, the second one is dumped."""
        dump = Dump(self.model, folder, steps=DUMPED, **options) if options is not None else nullcontext()
        with dump:
            return [self.clock.measure_wall_seconds(self.step) for _ in range(3)]

    def step(self) -> None:
        F.cross_entropy(self.model(self.images), self.labels).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def measure_dumps(bench: Bench, turns: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the seconds of each kind of step, and the megabytes of each dump."""
    samples: dict[str, list[float]] = {"no dump": []}
    sizes: dict[str, float] = {}
    bench.turn(Path(), None)
    for _ in range(turns):
        samples["no dump"] += bench.turn(Path(), None)
        for name, options in VARIANTS.items():
            folder = Path(tempfile.mkdtemp())
            _, dumped, after = bench.turn(folder, options)
            samples.setdefault(name, []).append(dumped)
            samples.setdefault("steps that are not dumped", []).append(after)
            sizes[name] = sum(path.stat().st_size for path in folder.rglob("*.npy")) / 1e6
            shutil.rmtree(folder)
    return samples, sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    room, device = devices.pick(options.device)
    samples, sizes = measure_dumps(Bench(room, device, options.batch, options.size), options.turns)
    base = Sample(samples["no dump"]).median
    rows = []
    for name, seconds in samples.items():
        typical = Sample(seconds).median
        row = {"step": name, "ms": f"{1000 * typical:.0f}", "ratio": f"{typical / base:.2f}"}
        rows.append({**row, "MB written": f"{sizes[name]:,.0f}" if name in sizes else ""})
        print(" ".join(f"{value:>30s}" for value in rows[-1].values()))
    if options.out:
        setting = f"fp32, batch {options.batch}, {options.size}x{options.size}"
        title = f"A ResNet-50 step with and without a dump: {setting}"
        write_record(options.out, room, title, rows, {"seconds": samples})


if __name__ == "__main__":
    main()
