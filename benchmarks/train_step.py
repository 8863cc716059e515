"""Compare images/s of a ResNet-50 training step with a plain PyTorch loop.

    python benchmarks/train_step.py                                   CPU: batch 8, 224x224
    python benchmarks/train_step.py --device cuda --batch 256 --same  the loop's own cost: the same network in both

The plain loop is eager, fp32, NCHW, as in a tutorial. With --same it gets viaduct's network, precision and
compilation, so that only the loop differs. Each variant runs in a new process; the processes take turns in short
windows. The table shows medians, and for each variant the median of the ratios to the first one within a turn.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from run_description import write_record

from viaduct import devices, models
from viaduct.devices.timing import Clock, Sample, compute_speedup, take_turns
from viaduct.recipes import Arrays, Checkpoint, Evaluation, ImageSet, Log, Precision, Recipe, Sgd, Split
from viaduct.training.callbacks import MetricsFile, NanStop
from viaduct.training.loop import Training
from viaduct.training.observing import TensorBoard
from viaduct.training.rundir import RunDir

CLASSES = 1001
Run = Callable[[int], None]


def make_noise(count: int, size: int) -> ImageSet:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    split = Split(images, generator.integers(0, CLASSES, count))
    return ImageSet(split, split, tuple(map(str, range(CLASSES))))


def make_recipe(batch: int, size: int) -> tuple[Recipe, ImageSet]:
    images = make_noise(max(2 * batch, 64), size)
    recipe = Recipe(
        model="resnet50_v1",
        data=Arrays(batch, size, classes=CLASSES, make=lambda path: images),
        optimizer=Sgd(lr=1e-4, weight_decay=1e-4),
        steps=10**9,
        evaluation=Evaluation(every_epochs=0),
        checkpoint=Checkpoint(every_minutes=0),
        log=Log(every_steps=100),
    )
    return recipe, images


def prepare_training(options: argparse.Namespace, precision: str, mode: str) -> Training:
    recipe, images = make_recipe(options.batch, options.size)
    recipe = replace(recipe, precision=Precision(compute=precision), mode=mode)
    room, device = devices.pick(options.device)
    watchers = [NanStop(), MetricsFile(), TensorBoard()]
    training = Training(recipe, RunDir(Path(tempfile.mkdtemp())), images, room, device, watchers)
    training.emit("start")
    training.computation.train(True)
    return training


def make_viaduct_loop(training: Training) -> Run:
    batches = itertools.chain.from_iterable(training.train_batches.epoch(epoch) for epoch in itertools.count())

    def run(steps: int) -> None:
        for _ in range(steps):
            training.advance(batches)
        training.log()

    return run


def make_plain_loop(options: argparse.Namespace) -> Run:
    """Return the training loop of a tutorial; only the network is viaduct's."""
    device = torch.device(options.device)
    model = models.build("resnet50_v1", classes=CLASSES).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(options.batch, 3, options.size, options.size, device=device)
    labels = torch.randint(0, CLASSES, (options.batch,), device=device)

    def run(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()

    return run


def make_bare_loop(training: Training, options: argparse.Namespace) -> Run:
    """Return a minimal loop with the training's own network, precision, compilation and optimizer."""
    device = training.torch_device
    images = torch.randn(options.batch, 3, options.size, options.size, device=device)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, CLASSES, (options.batch,), device=device)

    def run(steps: int) -> None:
        for _ in range(steps):
            F.cross_entropy(training.computation(images), labels).backward()
            training.optimizer.step()
            training.optimizer.zero_grad(set_to_none=True)

    return run


def build_variants(name: str, options: argparse.Namespace) -> list[tuple[str, Run]]:
    """Return the variants that one process measures; those of --same share a network."""
    if name == "plain":
        return [("plain PyTorch, fp32", make_plain_loop(options))]
    if name == "same":
        training = prepare_training(options, "auto", options.mode)
        ours = f"viaduct, {training.precision_plan.compute}, {options.mode}"
        return [("bare loop, same network", make_bare_loop(training, options)), (ours, make_viaduct_loop(training))]
    precision, mode = name.split("/")
    training = prepare_training(options, precision, mode)
    spelled = f"auto = {training.precision_plan.compute}" if precision == "auto" else precision
    return [(f"viaduct, {spelled}, {mode}", make_viaduct_loop(training))]


def serve_variants(name: str, options: argparse.Namespace, pipe: Connection) -> None:
    """Measure variants in this process, one window of each per request."""
    kind = torch.device(options.device).type
    clock, variants = Clock(devices.get(kind), kind), dict(build_variants(name, options))
    pipe.send(list(variants))
    while pipe.recv():
        turn = take_turns(variants, clock, options.steps, windows=1)
        pipe.send([seconds for (seconds,) in turn.values()])


def measure(names: list[str], options: argparse.Namespace) -> dict[str, list[float]]:
    """Return seconds per step of each variant, turn by turn, after one warm-up turn."""
    context = get_context("spawn")
    seconds: dict[str, list[float]] = {}
    workers = []
    for name in names:
        parent_end, child_end = context.Pipe()
        worker = context.Process(target=serve_variants, args=(name, options, child_end), daemon=True)
        worker.start()
        child_end.close()  # so that a process that dies is noticed
        workers.append((parent_end, parent_end.recv()))
    for turn in range(options.turns + 1):
        for pipe, spelled in workers:
            pipe.send(True)
            for variant, sample in zip(spelled, pipe.recv(), strict=True):
                if turn:
                    seconds.setdefault(variant, []).append(sample)
    for pipe, _ in workers:
        pipe.send(False)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=5, help="steps in a window")
    parser.add_argument("--turns", type=int, default=7, help="windows of each variant")
    parser.add_argument("--same", action="store_true", help="measure the loop alone")
    parser.add_argument("--mode", default="graph", choices=["eager", "graph"], help="with --same")
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    room, _ = devices.pick(options.device)
    names = ["same"] if options.same else ["plain", "fp32/eager", "auto/eager", "auto/graph"]
    seconds = measure(names, options)
    first = next(iter(seconds.values()))
    rows: list[dict[str, Any]] = []
    for name, samples in seconds.items():
        seconds_per_step, times = Sample(samples).median, f"{compute_speedup(first, samples):.3f}"
        rate = options.batch / seconds_per_step
        rows.append({"variant": name, "images/s": f"{rate:,.1f}", "ms/step": f"{1000 * seconds_per_step:.2f}"})
        rows[-1]["ratio"] = times
        print(f"{name:32s} {rows[-1]['images/s']:>10s} images/s {rows[-1]['ms/step']:>9s} ms/step  ratio {times}")
    if options.out:
        what = "The loop's own cost" if options.same else "A ResNet-50 step against the plain PyTorch loop"
        title = f"{what}: batch {options.batch}, {options.size}x{options.size}"
        write_record(options.out, room, title, rows, {"seconds_per_step": seconds})


if __name__ == "__main__":
    main()
