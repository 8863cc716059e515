"""Compare a training step of a timm or torchvision network on viaduct's kernels with torch.compile, in one process.

    python benchmarks/fuse_step.py
    python benchmarks/fuse_step.py --model torchvision:resnet50,timm:resnext50_32x4d --batch 128 --out figures.json

All variants train the same network from the same weights on the same noise, which is already on the card: bf16 under
autocast, channels_last, fused SGD. They take turns in short windows:

    viaduct             viaduct.fuse(network), its step captured and replayed by viaduct.sink
    sink alone          the unchanged network, its step captured and replayed by viaduct.sink
    torch.compile       the network compiled as a whole, in a plain loop
    reduce-overhead     the same with torch's own CUDA graphs

The script prints medians in milliseconds per step, and the median ratio of each other variant to viaduct's. It needs an
NVIDIA card, Triton, and torchvision or timm; it exits with 2 if one of them is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from run_description import describe_run
from torch import Tensor, nn

import viaduct
from viaduct import devices, models
from viaduct.devices.timing import Clock, Sample, compute_speedup, take_turns, warm_up
from viaduct.errors import ViaductError
from viaduct.training.networks import place_model

OURS = "viaduct"
MODELS = "torchvision:resnet50,torchvision:resnext50_32x4d,timm:resnet50,timm:resnext50_32x4d"
CLASSES = 1000
WARM_UP_STEPS = 10
CLOSE = 0.05  # largest difference of the first loss between variants
NOTE = "Inputs lie on the card; all variants train the same network from the same weights in bf16 and take turns."
Step = Callable[[Tensor, Tensor], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=MODELS, help="names such as timm:resnet50, with commas between them")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=20, help="of a turn")
    parser.add_argument("--windows", type=int, default=7, help="turns of each variant")
    parser.add_argument("--without", default="", help="variants to leave out, with commas between them")
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    try:
        measure_all(options)
    except ViaductError as error:
        print(f"fuse_step: {error}", file=sys.stderr)
        sys.exit(2)


def measure_all(options: argparse.Namespace) -> None:
    room, device = devices.pick("cuda")
    rows = []
    for name in options.model.split(","):
        rows.append(measure(name, options, Clock(room, "cuda"), device))
        show(rows[-1], options.batch)
        torch.compiler.reset()
        torch.cuda.empty_cache()
    if options.out:
        options.out.write_text(json.dumps(make_record(options, rows, describe_run(room)), indent=1) + "\n")


def measure(name: str, options: argparse.Namespace, clock: Clock, device: torch.device) -> dict[str, Any]:
    """Return the seconds of a step of each variant, turn by turn, and what was fused."""
    torch.manual_seed(0)
    network = place_model(models.build(name, classes=CLASSES), device).train()
    shape = (options.batch, 3, options.size, options.size)
    images = torch.randn(shape, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, CLASSES, (options.batch,), device=device)
    fused = viaduct.fuse(copy.deepcopy(network), torch.bfloat16, strict=True)
    compiled, overhead = copy.deepcopy(network), copy.deepcopy(network)
    with contextlib.ExitStack() as stack:
        variants: dict[str, Step] = {
            OURS: stack.enter_context(viaduct.sink(make_step(fused, fused))),
            "sink alone": stack.enter_context(viaduct.sink(make_step(network, network))),
            "torch.compile": make_step(compiled, torch.compile(compiled)),
            "reduce-overhead": make_step(overhead, torch.compile(overhead, mode="reduce-overhead")),
        }
        left_out = set(options.without.split(",")) - {OURS}
        variants = {key: step for key, step in variants.items() if key not in left_out}
        losses = {key: float(step(images, labels)) for key, step in variants.items()}
        compare_losses(name, losses)
        ready = {key: repeat_step(step, images, labels) for key, step in variants.items()}
        for steps in ready.values():
            warm_up(steps, clock, WARM_UP_STEPS)
        seconds = take_turns(ready, clock, options.steps, options.windows)
    report = viaduct.fused_parts(fused)
    return {"model": name, "fused": len(report.fused), "unfused": len(report.unfused), "seconds": seconds}


def make_step(network: nn.Module, run: Callable[[Tensor], Tensor]) -> Step:
    """Return a plain training step; `run` calls the network, compiled or not."""
    optimizer = torch.optim.SGD(network.parameters(), 1e-4, momentum=0.9, weight_decay=1e-4, fused=True)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(run(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def repeat_step(step: Step, images: Tensor, labels: Tensor) -> Callable[[int], None]:
    def steps(count: int) -> None:
        for _ in range(count):
            step(images, labels)

    return steps


def compare_losses(name: str, losses: dict[str, float]) -> None:
    """Raise an error if the variants do not train the same network."""
    apart = max(losses.values()) - min(losses.values())
    if not apart < CLOSE:
        raise ViaductError(f"{name}: the first losses differ by {apart:.2g}: {losses}.")


def show(row: dict[str, Any], batch: int) -> None:
    print(f"{row['model']}: {row['fused']} parts on kernels of viaduct, {row['unfused']} as written")
    for name, taken in row["seconds"].items():
        sample = Sample(taken)
        line = f"  {name:<18} {1000 * sample.median:9.3f} ms  {batch / sample.median:10,.0f} images/s"
        times = "" if name == OURS else f"  viaduct is {compute_speedup(taken, row['seconds'][OURS]):.2f} times as fast"
        print(f"{line}  spread {sample.spread:.1%}{times}")


def make_record(options: argparse.Namespace, rows: list[dict[str, Any]], run: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a measurement for docs/results/."""
    table = []
    for row in rows:
        seconds = row["seconds"]
        others = {name: compute_speedup(taken, seconds[OURS]) for name, taken in seconds.items() if name != OURS}
        milliseconds = {f"{name}, ms": f"{1000 * Sample(taken).median:.2f}" for name, taken in seconds.items()}
        best = min((name for name in others if name != "sink alone"), key=lambda name: others[name], default=None)
        against = f"{others[best]:.2f} times {best}" if best else ""
        table.append({"model": row["model"], **milliseconds, "viaduct against the best compiled": against})
    return {
        "kind": "benchmark",
        "title": f"A training step at batch {options.batch}, bf16: viaduct.fuse and viaduct.sink against torch.compile",
        **run,
        "note": NOTE,
        "columns": list(table[0]),
        "rows": table,
        "samples": rows,
    }


if __name__ == "__main__":
    main()
