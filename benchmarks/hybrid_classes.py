"""Compare layouts of a classifier of 100,000 classes: one rank, two ranks (data), sharded over two ranks (hybrid).

    python benchmarks/hybrid_classes.py
    python benchmarks/hybrid_classes.py --classes 200000 --features 1024 --steps 30

Each layout trains the same recipe over gloo on the CPU, in separate processes. The losses of all steps are compared
with those of one rank. Measured are the bytes of the classifier's weights, gradients and momentum on each rank, and
each rank's peak resident memory until the last step. Times are recorded in the samples only, because the ranks share
the cores of one machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rank_processes import train_on_ranks
from run_description import write_record
from torch import nn

from viaduct import devices
from viaduct.recipes import (
    Arrays,
    Checkpoint,
    Evaluation,
    ImageSet,
    Log,
    Parallel,
    Precision,
    Recipe,
    Sgd,
    Split,
)
from viaduct.training.callbacks import Callback
from viaduct.training.loop import Training

LAYOUTS = {"1 rank, whole": (1, "data"), "2 ranks, data": (2, "data"), "2 ranks, hybrid": (2, "hybrid")}
SECONDS = 900.0
MIB = 2**20


def build_network(classes: int, features: int) -> nn.Module:
    """Build a small backbone with a large classifier."""
    layers = [nn.Conv2d(3, 32, 3, 2, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    layers += [nn.Conv2d(32, features, 3, 2, bias=False), nn.BatchNorm2d(features), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, classes))


def make_split(count: int, classes: int, seed: int) -> Split:
    """Make images of classes across the whole range; each class is a colour with noise."""
    generator = np.random.default_rng(seed)
    labels = np.linspace(0, classes - 1, 512).astype(np.int64)[generator.integers(0, 512, count)]
    colours = np.stack([labels * 7 % 176, labels * 13 % 176, labels * 29 % 176], 1) + 40
    noise = generator.integers(-20, 20, (count, 16, 16, 3))
    return Split((colours[:, None, None] + noise).astype(np.uint8), labels)


def make_images(path: Path | None, classes: int) -> ImageSet:
    return ImageSet(make_split(2048, classes, 1), make_split(64, classes, 2), ())


def make_recipe(mode: Any, options: argparse.Namespace, witness: Callback) -> Recipe:
    return Recipe(
        model=partial(build_network, features=options.features),
        data=Arrays(options.batch, 16, options.classes, make=partial(make_images, classes=options.classes)),
        optimizer=Sgd(lr=options.rate, momentum=0.9, weight_decay=1e-4),
        precision=Precision("fp32"),
        steps=options.steps,
        parallel=Parallel(mode=mode, sync_norm=True),
        evaluation=Evaluation(every_epochs=0),
        checkpoint=Checkpoint(every_minutes=0, keep_best=False),
        log=Log(every_steps=1),
        callbacks=(witness,),
    )


class Witness(Callback):
    """Record how much of the classifier each rank holds."""

    every_rank = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gradient_bytes = 0
        self.times: list[float] = []

    def start(self, training: Training) -> None:
        self.head = next(module for module in training.model.modules() if isinstance(module, nn.Linear))
        self.head.weight.register_post_accumulate_grad_hook(self.record_gradient)
        self.times.append(time.monotonic())

    def record_gradient(self, weight: torch.Tensor) -> None:
        assert weight.grad is not None
        self.gradient_bytes = weight.grad.nbytes

    def step(self, training: Training) -> None:
        self.times.append(time.monotonic())
        if training.step == training.steps:
            momentum = training.optimizer.state[self.head.weight]["momentum_buffer"].nbytes
            held = {"weights": self.head.weight.nbytes, "gradients": self.gradient_bytes, "momentum": momentum}
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            seconds = [after - before for before, after in zip(self.times, self.times[1:], strict=False)]
            record = {"held": held, "peak_rss": peak, "step_seconds": seconds}
            (self.folder / f"rank{training.group.rank}.json").write_text(json.dumps(record))


def measure(ranks: int, mode: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = train_on_ranks(make_recipe(mode, options, Witness(folder)), ranks, folder, SECONDS)
        losses = [loss for record in run.read_records("log") for loss in record["losses"]]
        scores = run.read_records("evaluation")
        return {
            "losses": losses,
            "evaluation": {key: scores[-1][key] for key in ("loss", "top1", "top5")},
            "ranks": [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(ranks)],
        }


def make_row(name: str, found: dict[str, Any], first: dict[str, Any]) -> dict[str, str]:
    difference = max(
        abs(loss - expected) / expected for loss, expected in zip(found["losses"], first["losses"], strict=True)
    )
    held = max(sum(rank["held"].values()) for rank in found["ranks"])
    return {
        "layout": name,
        "loss": f"{found['losses'][0]:.4f} → {found['losses'][-1]:.4f}",
        "largest relative difference": f"{difference:.1e}" if found is not first else "",
        "weights + gradients + momentum, MiB a rank": f"{held / MIB:.1f}",
        "peak RSS, MiB a rank": " / ".join(f"{rank['peak_rss'] / MIB:.0f}" for rank in found["ranks"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    found = {}
    rows = []
    for name, (ranks, mode) in LAYOUTS.items():
        found[name] = measure(ranks, mode, options)
        rows.append(make_row(name, found[name], next(iter(found.values()))))
        print("  ".join(f"{column}: {value}" for column, value in rows[-1].items()), flush=True)
    if options.out:
        sizes = f"{options.classes:,} classes, {options.features} features, global batch {options.batch}"
        note = f"{options.steps} steps in fp32 over gloo, one thread a rank; differences: to one rank's losses."
        write_record(options.out, devices.get("cpu"), f"A classifier of very many classes: {sizes}", rows, found, note)


if __name__ == "__main__":
    main()
