"""Compare a ResNet-50 training step on the stand-in device with the same step on the plain CPU.

    python benchmarks/stand_in_device.py [--batch 4] [--size 224] [--turns 5] [--on npu]

The two take turns in one process, so that a busy machine slows both; the ratio is that of the medians. At the end all
weights must be equal bit for bit; the exit code is 1 if they differ.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable

import torch

from viaduct.models import resnet
from viaduct.rehearsal.torch_stage import install, install_cuda_as_cpu


def main() -> None:
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    if options.on == "cuda":
        install_cuda_as_cpu()
    else:
        install(options.on)
    torch.manual_seed(0)
    model = resnet.variants["resnet50_v1"](1000)
    steps = {name: make_step(copy.deepcopy(model), name, options) for name in ("cpu", options.on)}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(options.turns + 1):
        for name, (step, _) in steps.items():
            start = time.perf_counter()
            step(turn)
            if turn:  # the first turn is warm-up
                seconds[name].append(time.perf_counter() - start)
    sys.exit(0 if print_ratios(options.on, seconds, steps) else 1)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--on", choices=("npu", "mlu", "cuda"), default="npu")
    return parser.parse_args()


def make_step(
    model: torch.nn.Module, name: str, options: argparse.Namespace
) -> tuple[Callable[[int], None], torch.nn.Module]:
    model = model.to(name).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-5)

    def step(turn: int) -> None:
        generator = torch.Generator().manual_seed(turn)
        images = torch.randn(options.batch, 3, options.size, options.size, generator=generator).to(name)
        labels = torch.randint(0, 1000, (options.batch,), generator=generator).to(name)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step, model


def print_ratios(
    on: str, seconds: dict[str, list[float]], steps: dict[str, tuple[Callable[[int], None], torch.nn.Module]]
) -> bool:
    """Print the times and their ratio; return True if the final weights are identical."""
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    weights = [[value.cpu() for value in model.state_dict().values()] for _, model in steps.values()]
    same = all(torch.equal(ours, theirs) for ours, theirs in zip(*weights, strict=True))
    for name, value in medians.items():
        print(f"{name}: {value * 1e3:.0f} ms a step (median of {len(seconds[name])})")
    print(f"{on} / cpu: {medians[on] / medians['cpu']:.3f}; weights {'identical' if same else 'DIFFER'}")
    return same


if __name__ == "__main__":
    main()
