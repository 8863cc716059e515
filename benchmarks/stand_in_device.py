"""What the stand-in device costs: a ResNet-50 training step on it, against the same step on the plain CPU.

    python benchmarks/stand_in_device.py [--batch 4] [--size 224] [--turns 5] [--on npu]

Steps of the two take turns in one process, so that a busy machine slows both; the ratio is of the medians. The weights
are compared at the end: they are the same bit for bit, or the figures mean nothing.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch

from viaduct.models import resnet
from viaduct.rehearsal.torch_stage import install, install_cuda_as_cpu


def main() -> None:
    options = read()
    torch.set_num_threads(options.threads)
    if options.on == "cuda":
        install_cuda_as_cpu()
    else:
        install(options.on)
    torch.manual_seed(0)
    model = resnet.variants["resnet50_v1"](1000)
    steps = {place: stepper(copy.deepcopy(model), place, options) for place in ("cpu", options.on)}
    seconds: dict[str, list[float]] = {place: [] for place in steps}
    for turn in range(options.turns + 1):
        for place, (step, _) in steps.items():
            begun = time.perf_counter()
            step(turn)
            if turn:  # the first warms up
                seconds[place].append(time.perf_counter() - begun)
    tell(options.on, seconds, steps)


def read() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--on", choices=("npu", "mlu", "cuda"), default="npu")
    return parser.parse_args()


def stepper(
    model: torch.nn.Module, place: str, options: argparse.Namespace
) -> tuple[Callable[[int], None], torch.nn.Module]:
    model = model.to(place).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-5)

    def step(turn: int) -> None:
        drawn = torch.Generator().manual_seed(turn)
        images = torch.randn(options.batch, 3, options.size, options.size, generator=drawn).to(place)
        labels = torch.randint(0, 1000, (options.batch,), generator=drawn).to(place)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step, model


def tell(
    on: str, seconds: dict[str, list[float]], steps: dict[str, tuple[Callable[[int], None], torch.nn.Module]]
) -> None:
    middle = {place: statistics.median(values) for place, values in seconds.items()}
    weights = [[value.cpu() for value in model.state_dict().values()] for _, model in steps.values()]
    same = all(torch.equal(one, other) for one, other in zip(*weights, strict=True))
    for place, value in middle.items():
        print(f"{place}: {value * 1e3:.0f} ms a step (median of {len(seconds[place])})")
    print(f"{on} / cpu: {middle[on] / middle['cpu']:.3f}; weights {'identical' if same else 'DIFFER'}")


if __name__ == "__main__":
    main()
