"""How far the losses of several ranks part from those of one, over 50 steps with SyncBN and the same global batch.

    python benchmarks/rank_equality.py                            1, 2 and 4 gloo ranks on the CPU, several rates
    python benchmarks/rank_equality.py --rates 0.01 --ranks 2     one of them
    python benchmarks/rank_equality.py --data shapes --batch 64   what is harder to learn, in small batches
    python benchmarks/rank_equality.py --activation silu          without kinks

Ranks compute the same as one, but add up in another order. Training makes much of little: what the last bit of an
fp32 number is may decide about the hundredth of a loss 50 steps later. So each rate has a column for one rank alone
whose first weights were changed by one part in 2**23: that much is rounding, whoever rounds.

What makes it grow are activations at the kink of a ReLU, which one bit turns on or off: the same network with SiLU,
which is smooth, does not show it (`--activation silu`). `colours` are ten colours with noise, easy to learn.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from run_description import describe_run
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
    Loaded,
    Log,
    Parallel,
    Precision,
    Recipe,
    Sgd,
    Shapes,
    Split,
)
from viaduct.training.rundir import RunDir
from viaduct.training.session import Request, run_training

SECONDS = 300.0


def tiny_resnet(classes: int) -> nn.Module:
    return small_resnet(classes, blocks=(1, 1, 1))


class WithoutKinks(TorchFunctionMode):
    """SiLU wherever a network asks for ReLU."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, inputs: Any = (), keywords: dict[str, Any] | None = None
    ) -> Any:
        return F.silu(inputs[0]) if function is F.relu else function(*inputs, **(keywords or {}))


class Smooth(nn.Module):
    """A network without kinks."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        with WithoutKinks():
            logits: Tensor = self.inner(x)
        return logits


def network(classes: int, activation: str, nudged: bool = False) -> nn.Module:
    """A tiny ResNet; `nudged`: with its first kernel changed in the last bit."""
    inner = tiny_resnet(classes)
    if nudged:
        with torch.no_grad():
            next(inner.parameters()).mul_(1 + 2**-23)
    return Smooth(inner) if activation == "silu" else inner


def colour_images(count: int, seed: int) -> Split:
    chance = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.int64) % 10
    colours = np.random.default_rng(5).integers(40, 216, (10, 3))
    return Split(
        (colours[labels][:, None, None] + chance.integers(-40, 40, (count, 16, 16, 3))).astype(np.uint8), labels
    )


def colours(path: Path | None) -> ImageSet:
    return ImageSet(colour_images(2560, 1), colour_images(64, 2), tuple("abcdefghij"))


def recipe_at(rate: float, options: argparse.Namespace) -> Recipe:
    usual: dict[str, Any] = {"global_batch": options.batch, "size": 16, "pad": 2, "flip": True}
    easy = options.data == "colours"
    data = (
        Arrays(**usual, classes=10, make=colours) if easy else Shapes(**usual, train_images=2560, validation_images=64)
    )
    steps = options.steps
    return Recipe(
        model=partial(network, activation=options.activation),
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


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def be_rank(rank: int, ranks: int, port: int, run: Path, recipe: Recipe) -> None:
    torch.set_num_threads(1)
    for stream in (1, 2):  # runs speak of themselves
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    if ranks > 1:
        environment = {
            "RANK": rank,
            "WORLD_SIZE": ranks,
            "LOCAL_RANK": rank,
            "LOCAL_WORLD_SIZE": ranks,
            "MASTER_PORT": port,
        }
        os.environ.update({name: str(value) for name, value in environment.items()} | {"MASTER_ADDR": "127.0.0.1"})
    run_training(
        Request(Loaded("recipe", recipe, "A recipe.", None), RunDir(run), None, "cpu", "never", "rank_equality")
    )


def losses_of(ranks: int, recipe: Recipe) -> list[float]:
    """The losses of all steps, as the run wrote them down."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        run, port = Path(folder, "run"), free_port()
        workers = [context.Process(target=be_rank, args=(rank, ranks, port, run, recipe)) for rank in range(ranks)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(SECONDS)
            worker.kill()
        if any(worker.exitcode != 0 for worker in workers):
            raise SystemExit(f"a run on {ranks} ranks failed")
        return [loss for record in RunDir(run).records("log") for loss in record["losses"]]


def largest_difference(ours: list[float], theirs: list[float]) -> float:
    """The largest relative difference."""
    return max(abs(our - their) / abs(their) for our, their in zip(ours, theirs, strict=True))


def measure(rate: float, options: argparse.Namespace) -> tuple[dict[str, str], dict[str, list[float]]]:
    recipe = recipe_at(rate, options)
    nudged = partial(network, activation=options.activation, nudged=True)
    runs = {"alone": losses_of(1, recipe), "last bit": losses_of(1, replace(recipe, model=nudged))}
    runs |= {f"{ranks} ranks": losses_of(ranks, recipe) for ranks in options.ranks}
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
        room, _ = devices.pick("cpu")
        record = {
            "kind": "benchmark",
            "title": f"Several ranks against one, {options.activation}: the largest relative difference of a loss",
            "note": f"{options.steps} steps in fp32 on {options.data}, SyncBN, global batch {options.batch}, "
            f"momentum {options.momentum:g}, seed {options.seed}, {options.activation}; "
            "`last bit` is one rank whose first kernel differs by one part in 2^23.",
            **describe_run(room),
            "columns": list(rows[0]),
            "rows": rows,
            "samples": {"losses": samples},
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
