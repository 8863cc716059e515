"""Compare the losses of several ranks with those of one, over 50 steps with SyncBN and the same global batch.

    python benchmarks/rank_equality.py                            1, 2 and 4 gloo ranks on the CPU, several rates
    python benchmarks/rank_equality.py --rates 0.01 --ranks 2     one of them
    python benchmarks/rank_equality.py --data shapes --batch 64   a harder task, in small batches
    python benchmarks/rank_equality.py --activation silu          a smooth activation

Several ranks compute the same as one, but add in another order. Training amplifies rounding: a change in the last bit
of one fp32 number may change the loss 50 steps later by a hundredth. Therefore each rate has a column for a single
rank whose initial weights were changed by one part in 2**23. A difference of that size is explained by rounding.

The amplification comes from activations close to the kink of a ReLU. The same network with SiLU, which is smooth,
does not show it (`--activation silu`). `colours` is a task with ten colours and noise, easy to learn.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rank_processes import train_on_ranks
from run_description import write_record
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from viaduct import devices
from viaduct.models.resnet_cifar import small_resnet
from viaduct.recipes import (
    Arrays,
    Checkpoint,
    Cosine,
    Evaluation,
    ImageSet,
    Log,
    Parallel,
    Precision,
    Recipe,
    Sgd,
    Shapes,
    Split,
)

SECONDS = 300.0


def tiny_resnet(classes: int) -> nn.Module:
    return small_resnet(classes, blocks=(1, 1, 1))


class WithoutKinks(TorchFunctionMode):
    """Replace every call of ReLU by SiLU."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, inputs: Any = (), keywords: dict[str, Any] | None = None
    ) -> Any:
        return F.silu(inputs[0]) if function is F.relu else function(*inputs, **(keywords or {}))


class Smooth(nn.Module):
    """Network that runs with SiLU instead of ReLU."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        with WithoutKinks():
            logits: Tensor = self.inner(x)
        return logits


def build_network(classes: int, activation: str, nudged: bool = False) -> nn.Module:
    """Build a tiny ResNet; `nudged`: change its first kernel in the last bit."""
    inner = tiny_resnet(classes)
    if nudged:
        with torch.no_grad():
            next(inner.parameters()).mul_(1 + 2**-23)
    return Smooth(inner) if activation == "silu" else inner


def colour_images(count: int, seed: int) -> Split:
    generator = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.int64) % 10
    colours = np.random.default_rng(5).integers(40, 216, (10, 3))
    return Split(
        (colours[labels][:, None, None] + generator.integers(-40, 40, (count, 16, 16, 3))).astype(np.uint8), labels
    )


def make_colours(path: Path | None) -> ImageSet:
    return ImageSet(colour_images(2560, 1), colour_images(64, 2), tuple("abcdefghij"))


def make_recipe(rate: float, options: argparse.Namespace) -> Recipe:
    usual: dict[str, Any] = {"global_batch": options.batch, "size": 16, "pad": 2, "flip": True}
    if options.data == "colours":
        data: Any = Arrays(**usual, classes=10, make=make_colours)
    else:
        data = Shapes(**usual, train_images=2560, validation_images=64)
    steps = options.steps
    return Recipe(
        model=partial(build_network, activation=options.activation),
        data=data,
        optimizer=Sgd(lr=rate, momentum=options.momentum, weight_decay=1e-4),
        schedule=Cosine(warmup_epochs=5 * options.batch / 2560),  # five steps
        precision=Precision("fp32"),
        steps=steps,
        parallel=Parallel(sync_norm=True, hang_seconds=60),
        evaluation=Evaluation(every_epochs=0),
        checkpoint=Checkpoint(every_minutes=0),
        log=Log(every_steps=steps),
        seed=options.seed,
    )


def measure_losses(ranks: int, recipe: Recipe) -> list[float]:
    """Train and return the losses of all steps."""
    with tempfile.TemporaryDirectory() as folder:
        run = train_on_ranks(recipe, ranks, Path(folder), SECONDS)
        return [loss for record in run.read_records("log") for loss in record["losses"]]


def largest_difference(ours: list[float], theirs: list[float]) -> float:
    """Return the largest relative difference."""
    return max(abs(our - their) / abs(their) for our, their in zip(ours, theirs, strict=True))


def measure(rate: float, options: argparse.Namespace) -> tuple[dict[str, str], dict[str, list[float]]]:
    recipe = make_recipe(rate, options)
    nudged = partial(build_network, activation=options.activation, nudged=True)
    runs = {"alone": measure_losses(1, recipe), "last bit": measure_losses(1, replace(recipe, model=nudged))}
    runs |= {f"{ranks} ranks": measure_losses(ranks, recipe) for ranks in options.ranks}
    alone = runs["alone"]
    row = {"rate": f"{rate:g}", "first loss": f"{alone[0]:.3f}", "mean of the last 5": f"{sum(alone[-5:]) / 5:.3f}"}
    row |= {name: f"{largest_difference(losses, alone):.1e}" for name, losses in runs.items() if name != "alone"}
    return row, runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.001, 0.002, 0.003, 0.01, 0.03])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--data", choices=["colours", "shapes"], default="colours")
    parser.add_argument("--activation", choices=["relu", "silu"], default="relu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, samples = [], {}
    for rate in options.rates:
        row, samples[f"{rate:g}"] = measure(rate, options)
        rows.append(row)
        print("  ".join(f"{name}: {value}" for name, value in row.items()), flush=True)
    if options.out:
        title = f"Several ranks against one, {options.activation}: the largest relative difference of a loss"
        note = (
            f"{options.steps} steps in fp32 on {options.data}, SyncBN, global batch {options.batch}, "
            f"momentum {options.momentum:g}, seed {options.seed}, {options.activation}; "
            "`last bit` is one rank whose first kernel differs by one part in 2^23."
        )
        write_record(options.out, devices.get("cpu"), title, rows, {"losses": samples}, note)


if __name__ == "__main__":
    main()
