"""Compare a recipe's training step on the CPU with a plain PyTorch loop on the same work in one run.

    python benchmarks/cpu_step.py                                             ResNet-50: batch 8, 224x224
    python benchmarks/cpu_step.py --recipe resnet56_cifar10 --batch 128
    python benchmarks/cpu_step.py --recipe amoebanet_d_cifar10 --batch 4 --graph

The plain loop is eager, uses torch's SGD, and has the same network, precision and batch of noise. It is measured in
NCHW, the default of PyTorch, and in channels_last. viaduct takes the steps that `viaduct train` would take. Each
variant runs in a separate process, because viaduct's settings of the C allocator hold for a whole process. The
processes take turns in short windows. The table shows medians, and the median of the ratios within a turn. CPU time
is the sum over all threads of a process. OMP_WAIT_POLICY=active is refused, because waiting variants would then take
cores from the others.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from run_description import write_record
from torch import Tensor

from viaduct import devices
from viaduct.benching.ours import Ours, Setting
from viaduct.data.synthetic import SYNTHETIC
from viaduct.devices.timing import Clock, Sample, compute_speedup, take_turns
from viaduct.recipes import Recipe, load
from viaduct.training.networks import build_model
from viaduct.training.precision import DTYPES

COLUMNS = ["variant", "images/s", "ms/step", "spread", "times NCHW", "times channels_last", "CPU ms/step", "times CPU"]
Run = Callable[[int], object]
Turn = tuple[float, float]  # wall-clock and CPU seconds per step


@dataclass(frozen=True)
class Variant:
    """Variant to measure; `loop` is nchw, channels_last, eager or graph."""

    precision: str
    loop: str

    @property
    def is_plain(self) -> bool:
        return self.loop in ("nchw", "channels_last")

    @property
    def title(self) -> str:
        spelled = {"nchw": "NCHW", "channels_last": "channels_last"}.get(self.loop, self.loop)
        return f"{'plain PyTorch' if self.is_plain else 'viaduct'}, {self.precision}, {spelled}"


def choose_recipe(options: argparse.Namespace) -> Recipe:
    recipe: Recipe = load(options.recipe).recipe
    changes = {name: value for name, value in (("global_batch", options.batch), ("size", options.size)) if value}
    return replace(recipe, data=replace(recipe.data, **changes), kernels="off", sink=0)


def prepare_viaduct(recipe: Recipe, variant: Variant) -> Run:
    room, device = devices.pick("cpu")
    precision = replace(recipe.precision, compute=variant.precision)  # type: ignore[arg-type]
    recipe = replace(recipe, precision=precision, mode=variant.loop)  # type: ignore[arg-type]
    return Ours(Setting(recipe, SYNTHETIC, room, device, Path(tempfile.mkdtemp())))


def prepare_plain(recipe: Recipe, variant: Variant) -> Run:
    """Return the training loop of a tutorial; only the network is viaduct's."""
    layout = torch.channels_last if variant.loop == "channels_last" else torch.contiguous_format
    network: Any = build_model(recipe).train()
    network = network.to(memory_format=layout)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-6, momentum=0.9, weight_decay=1e-4)
    batch, size = recipe.data.global_batch, recipe.data.size
    images = torch.randn(batch, 3, size, size).to(memory_format=layout)
    labels = torch.randint(0, recipe.data.classes, (batch,))
    compute = DTYPES[variant.precision]

    def compute_loss() -> Tensor:
        with torch.autocast("cpu", compute, enabled=compute != torch.float32):
            output = network(images)
            heads = output if isinstance(output, tuple) else (output,)
            return torch.stack([F.cross_entropy(logits, labels) for logits in heads]).sum()

    def run(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            compute_loss().backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return run


def serve_variant(options: argparse.Namespace, variant: Variant, pipe: Connection) -> None:
    """Run a variant in this process: two warm-up steps, then one window per request."""
    torch.manual_seed(0)
    recipe = choose_recipe(options)
    run = prepare_plain(recipe, variant) if variant.is_plain else prepare_viaduct(recipe, variant)
    clock = Clock(devices.get("cpu"), "cpu")
    pipe.send(clock.measure_wall_seconds(lambda: run(1)))
    run(1)
    while pipe.recv():
        began = time.process_time()
        (seconds,) = take_turns({"": run}, clock, options.steps, windows=1)[""]
        pipe.send((seconds, (time.process_time() - began) / options.steps))


class Worker:
    """Process of a variant; the others sleep while it measures."""

    def __init__(self, options: argparse.Namespace, variant: Variant) -> None:
        context = get_context("spawn")
        self.pipe, child_end = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=serve_variant, args=(options, variant, child_end), daemon=True
        )
        self.process.start()
        child_end.close()  # so that a process that dies is noticed
        self.first_step: float = self.pipe.recv()

    def measure(self) -> Turn:
        self.pipe.send(True)
        clock, processor = self.pipe.recv()
        return clock, processor

    def stop(self) -> None:
        self.pipe.send(False)
        self.process.join()


def measure(variants: list[Variant], options: argparse.Namespace) -> tuple[dict[Variant, list[Turn]], list[float]]:
    """Return each variant's turns, and the seconds of its first step."""
    workers = {variant: Worker(options, variant) for variant in variants}
    turns: dict[Variant, list[Turn]] = {variant: [] for variant in variants}
    for number in range(options.turns):
        first = number % len(variants)
        for variant in variants[first:] + variants[:first]:
            turns[variant].append(workers[variant].measure())
    for worker in workers.values():
        worker.stop()
    return turns, [worker.first_step for worker in workers.values()]


def make_rows(turns: dict[Variant, list[Turn]], batch: int) -> list[dict[str, str]]:
    """Return one row per variant, compared with the plain loops of the same precision."""
    rows = []
    for variant, own in turns.items():
        sample = Sample([clock for clock, _ in own])
        row = {
            "variant": variant.title,
            "images/s": f"{batch / sample.median:,.1f}",
            "ms/step": f"{1000 * sample.median:,.0f}",
            "spread": f"{100 * sample.spread:.0f} %",
            "CPU ms/step": f"{1000 * Sample([processor for _, processor in own]).median:,.0f}",
        }
        for column, loop, index in (
            ("times NCHW", "nchw", 0),
            ("times channels_last", "channels_last", 0),
            ("times CPU", "nchw", 1),
        ):
            base = turns[Variant(variant.precision, loop)]
            row[column] = f"{compute_speedup([turn[index] for turn in base], [turn[index] for turn in own]):.2f}"
        rows.append({name: row[name] for name in COLUMNS})
    return rows


def print_rows(rows: list[dict[str, str]], first_steps: list[float]) -> None:
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in COLUMNS}
    print("  ".join(name.rjust(width) for name, width in widths.items()))
    for row in rows:
        print("  ".join(row[name].rjust(width) for name, width in widths.items()))
    named = (f"{row['variant']} {seconds:.1f}" for row, seconds in zip(rows, first_steps, strict=True))
    print(f"first step, seconds: {'; '.join(named)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="resnet50_imagenet")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=0, help="0: the recipe's")
    parser.add_argument("--steps", type=int, default=2, help="steps in a window")
    parser.add_argument("--turns", type=int, default=7, help="windows of each variant")
    parser.add_argument("--precision", default="", help="fp32, bf16 or both with a comma; usually what the CPU has")
    parser.add_argument("--graph", action="store_true", help="viaduct's compiled step, too")
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "active":
        parser.error("OMP_WAIT_POLICY=active: variants that wait for their turn would take cores from the others")
    room, recipe = devices.get("cpu"), choose_recipe(options)
    precisions = options.precision.split(",") if options.precision else ["fp32", *room.list_native_dtypes()]
    loops = ["nchw", "channels_last", "eager", *(["graph"] if options.graph else [])]
    variants = [Variant(precision, loop) for precision in precisions for loop in loops]
    turns, first_steps = measure(variants, options)
    size = recipe.data.size
    title = f"A training step on the CPU: {options.recipe}, batch {options.batch}, {size}x{size}"
    rows = make_rows(turns, options.batch)
    print(f"{title}; {room.describe_card()}")
    print_rows(rows, first_steps)
    if options.out:
        write_record(options.out, room, title, rows, {variant.title: own for variant, own in turns.items()})


if __name__ == "__main__":
    main()
