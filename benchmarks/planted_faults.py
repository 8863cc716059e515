"""Plant ten faults in each of two networks, and count how often `viaduct compare --explain` finds operator and cause.

    python benchmarks/planted_faults.py                                   ResNet-50 and AmoebaNet-D, seeds 0 to 2
    python benchmarks/planted_faults.py --networks resnet50_v1 --seeds 5 --faults dropout,overflow

The seed selects the layer that gets a fault, among all layers that the fault fits. The correct and the faulty network
are dumped with `Dump` from the same weights and images, and compared as the command does, on one core. An origin
counts if it is the operator that was changed; a cause counts if it is the first that is named.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct import devices, models
from viaduct.comparison import Dump
from viaduct.comparison.drift import Drift, Options, compare
from viaduct.models.amoebanet_cells import Combination
from viaduct.models.padding import SameConv2d, same_padding
from viaduct.models.resnet import Bottleneck

CLASSES = 10
BATCH = 4
SIZE = 64
NETWORKS: dict[str, dict[str, Any]] = {
    "resnet50_v1": {},
    "amoebanet_d": {"aux": False, "dropout_keep": 1.0, "filters": 64},  # a quarter of the filters, for time
}
LEARNING_RATE = 0.1


@dataclass
class Planted:
    """Planted fault: the changed layer, the expected cause, a description."""

    op: str
    cause: str
    what: str
    steps: str = "0"
    after_step: Callable[[], None] | None = None  # what goes wrong between two steps
    unknown: nn.Parameter | None = None  # to the optimizer
    labels: Callable[[Tensor], Tensor] = field(default=lambda labels: labels)


Fault = Callable[[nn.Module, random.Random], Planted]


def overflow(model: nn.Module, draw: random.Random) -> Planted:
    name, layer = draw.choice(list_convolutions(model))

    def forward(original: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        y = original(x)
        scale = 65504 / y.detach().abs().flatten().kthvalue(int(0.999 * y.numel())).values
        return (y * scale).half().float() / scale

    wrap_forward(layer, forward)
    return Planted(name, "overflow", "result passes through float16 at a scale where 0.1 % overflow")


def batch_norm_epsilon(model: nn.Module, draw: random.Random) -> Planted:
    name, layer = draw.choice([(n, m) for n, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)])
    layer.eps = 1e-3
    return Planted(name, "batch norm epsilon", "epsilon 1e-3 for 1e-5")


def transposed_kernel(model: nn.Module, draw: random.Random) -> Planted:
    name, layer = draw.choice([(n, m) for n, m in list_convolutions(model) if m.kernel_size[0] == m.kernel_size[1] > 1])
    if draw.random() < 0.5:
        with torch.no_grad():
            layer.weight.copy_(layer.weight.transpose(2, 3).contiguous())
        return Planted(name, "wrong layout", "the weight is transposed")
    wrap_forward(layer, lambda _, x: convolve(layer, x, layer.weight.transpose(2, 3)))
    return Planted(name, "wrong layout", "the layer uses its weight transposed")


def missing_residual(model: nn.Module, draw: random.Random) -> Planted:
    blocks = [(n, m) for n, m in model.named_modules() if isinstance(m, (Bottleneck, Combination))]
    name, block = draw.choice(blocks)
    called = draw.random() < 0.5  # the shortcut is computed, and not used

    def bottleneck(_: Any, x: Tensor) -> Tensor:
        if called:
            block.shortcut(x)
        branch = F.relu(block.norm1(block.conv1(x)))
        return F.relu(block.norm3(block.conv3(F.relu(block.norm2(block.conv2(branch))))))

    def combination(_: Any, states: list[Tensor], keep: Tensor | None) -> Tensor:
        other = block.apply_operation(1, block.right, states, keep) if called else None
        del other
        return block.apply_operation(0, block.left, states, keep)

    wrap_forward(block, bottleneck if isinstance(block, Bottleneck) else combination)
    what = "computed, not added" if called else "not computed"
    return Planted(name, "missing residual add", f"one operand is {what}")


def swapped_channels(model: nn.Module, draw: random.Random) -> Planted:
    name, layer = draw.choice(list_convolutions(model))
    order = list(range(layer.out_channels))
    if draw.random() < 0.5:
        first, second = draw.sample(order, 2)
        order[first], order[second] = order[second], order[first]
    else:
        order = order[layer.out_channels // 2 :] + order[: layer.out_channels // 2]
    wrap_forward(layer, lambda original, x: original(x)[:, order])
    return Planted(name, "swapped channels", "output channels in another order")


def stale_weight(model: nn.Module, draw: random.Random) -> Planted:
    name, layer = draw.choice(list_convolutions(model))
    if draw.random() < 0.5:
        what = "the optimizer does not know the weight"
        return Planted(name, "stale weight", what, steps="0,1", unknown=layer.weight)
    before = layer.weight.detach().clone()

    def restore() -> None:
        with torch.no_grad():
            layer.weight.copy_(before)

    what = "the weight falls back behind the first update"
    return Planted(name, "stale weight", what, steps="0,1", after_step=restore)


def wrong_padding(model: nn.Module, draw: random.Random) -> Planted:
    name, layer = draw.choice(
        [(n, m) for n, m in list_convolutions(model) if max(m.kernel_size) > 1 and has_padding(m)]
    )
    kernel_h, kernel_w = layer.kernel_size
    kind = "reflect" if draw.random() < 0.3 else "constant"
    by = 0 if kind == "reflect" else 1

    def forward(_: Any, x: Tensor) -> Tensor:
        top, left = read_padding(layer, x)
        pad_h, pad_w = top - by if top else by, left - by if left else by
        after = [size * 2 for size in (kernel_h, kernel_w)]
        if kind == "reflect":
            after = [min(kernel_h // 2, x.shape[2] - 1), min(kernel_w // 2, x.shape[3] - 1)]
            pad_h, pad_w = min(pad_h, x.shape[2] - 1), min(pad_w, x.shape[3] - 1)
        y = F.conv2d(F.pad(x, (pad_w, after[1], pad_h, after[0]), mode=kind), layer.weight, None, layer.stride)
        height, width = (-(-size // stride) for size, stride in zip(x.shape[2:], layer.stride, strict=True))
        return y[:, :, :height, :width]

    wrap_forward(layer, forward)
    return Planted(name, "wrong padding", "reflected at the border" if kind == "reflect" else "moved by one cell")


def dropout(model: nn.Module, draw: random.Random) -> Planted:
    kinds = (nn.Conv2d, nn.BatchNorm2d, nn.Linear, nn.Dropout)
    name, layer = draw.choice([(n, m) for n, m in model.named_modules() if isinstance(m, kinds)])
    probability = draw.choice([0.1, 0.2, 0.5])
    wrap_forward(layer, lambda original, x: F.dropout(original(x), probability))
    return Planted(name, "dropout", f"dropout of {probability} behind the layer")


def label_offset(model: nn.Module, draw: random.Random) -> Planted:
    by = draw.choice([-1, 1])
    found = Planted("head", "label offset", f"labels {by:+d}")
    found.labels = lambda labels: (labels + by) % CLASSES
    return found


def half_reduction(model: nn.Module, draw: random.Random) -> Planted:
    name, layer = draw.choice([(n, m) for n, m in list_convolutions(model) if m.in_channels >= 32])

    def forward(_: Any, x: Tensor) -> Tensor:
        total: Any = 0
        for part, weight in zip(x.split(4, 1), layer.weight.split(4, 1), strict=True):
            total = (total + convolve(layer, part, weight)).half().float()
        return total  # type: ignore[no-any-return]

    wrap_forward(layer, forward)
    return Planted(name, "half-precision reduction", "sums over four channels at a time are rounded to float16")


FAULTS: dict[str, Fault] = {
    "overflow": overflow,
    "batch norm epsilon": batch_norm_epsilon,
    "transposed kernel": transposed_kernel,
    "missing residual add": missing_residual,
    "swapped channels": swapped_channels,
    "stale weight": stale_weight,
    "wrong padding": wrong_padding,
    "dropout": dropout,
    "label offset": label_offset,
    "half-precision reduction": half_reduction,
}


def list_convolutions(model: nn.Module) -> list[tuple[str, nn.Conv2d]]:
    return [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Conv2d)]


def wrap_forward(module: nn.Module, change: Callable[..., Tensor]) -> None:
    """Wrap a module's forward; hooks still observe the module."""
    original = module.forward
    module.forward = lambda *given: change(original, *given)  # type: ignore[method-assign]


def convolve(layer: nn.Conv2d, x: Tensor, weight: Tensor) -> Tensor:
    """Compute the layer with another weight."""
    if isinstance(layer, SameConv2d):
        stand_in = SimpleNamespace(
            weight=weight, kernel_size=layer.kernel_size, stride=layer.stride, groups=layer.groups
        )
        return SameConv2d.forward(stand_in, x)  # type: ignore[arg-type]
    return F.conv2d(x, weight, None, layer.stride, layer.padding, layer.dilation, layer.groups)


def has_padding(layer: nn.Conv2d) -> bool:
    return isinstance(layer, SameConv2d) or any(layer.padding)


def read_padding(layer: nn.Conv2d, x: Tensor) -> tuple[int, int]:
    """Return the padding before rows and before columns."""
    if not isinstance(layer, SameConv2d):
        return int(layer.padding[0]), int(layer.padding[1])
    axes = zip(x.shape[2:], layer.kernel_size, layer.stride, strict=True)
    top, left = (same_padding(size, kernel, stride)[0] for size, kernel, stride in axes)
    return top, left


@dataclass(frozen=True)
class Bench:
    """Network with weights and images, and the folder for its dumps."""

    name: str
    model: nn.Module
    images: Tensor
    labels: Tensor
    folder: Path

    def dump(self, model: nn.Module, folder: Path, planted: Planted) -> None:
        """Train one or two steps of plain SGD, and dump them."""
        torch.manual_seed(1)
        learned = [parameter for parameter in model.parameters() if parameter is not planted.unknown]
        optimizer = torch.optim.SGD(learned, LEARNING_RATE)
        with Dump(model, folder, steps=planted.steps):
            for _ in planted.steps.split(","):
                loss = F.cross_entropy(model(self.images), planted.labels(self.labels))
                model.zero_grad()
                loss.backward()
                optimizer.step()
                if planted.after_step is not None:
                    planted.after_step()

    def truth(self) -> Path:
        folder = self.folder / "truth"
        if not folder.exists():
            self.dump(copy.deepcopy(self.model), folder, Planted("", "", "", steps="0,1"))
        return folder


def make_bench(name: str, folder: Path, size: int = SIZE, **options: Any) -> Bench:
    torch.manual_seed(0)
    model = models.build(name, classes=CLASSES, **{**NETWORKS.get(name, {}), **options}).train()
    images, labels = torch.randn(BATCH, 3, size, size), torch.randint(0, CLASSES, (BATCH,))
    return Bench(name, model, images, labels, folder)


@dataclass(frozen=True)
class Outcome:
    network: str
    fault: str
    seed: int
    planted: str  # where
    how: str
    expected: str  # cause
    origin: str
    cause: str
    seconds: float

    @property
    def found(self) -> bool:
        return self.origin == self.planted

    @property
    def named(self) -> bool:
        return self.cause == self.expected


def try_fault(bench: Bench, fault: str, seed: int, workers: int = 1) -> tuple[Outcome, Drift]:
    """Plant a fault, dump the network, compare."""
    model = copy.deepcopy(bench.model)
    planted = FAULTS[fault](model, random.Random(f"{bench.name} {fault} {seed}"))
    truth = bench.truth()
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        faulty = Path(folder) / "faulty"
        bench.dump(model, faulty, planted)
        began = time.perf_counter()
        drift = compare(faulty, truth if "," in planted.steps else truth / "step_000000", Options(workers=workers))
        seconds = time.perf_counter() - began
    explanation = drift.explanation
    origin = explanation.origin.op if explanation.origin else ""
    where = planted.op, planted.what, planted.cause
    return Outcome(bench.name, fault, seed, *where, origin, explanation.cause or "", seconds), drift


def outcomes_of(name: str, faults: Sequence[str], seeds: int, threads: int) -> list[Outcome]:
    """Return the outcomes of every fault and seed in one network."""
    torch.set_num_threads(threads)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        bench = make_bench(name, Path(folder))
        for seed in range(seeds):
            for fault in faults:
                found.append(try_fault(bench, fault, seed)[0])
                show(found[-1])
    return found


def all_outcomes(networks: Sequence[str], faults: Sequence[str], seeds: int, threads: int) -> list[Outcome]:
    """Run the networks in parallel processes."""
    with ProcessPoolExecutor(len(networks), mp_context=get_context("spawn")) as pool:
        parts = [pool.submit(outcomes_of, name, faults, seeds, threads) for name in networks]
        return [outcome for part in parts for outcome in part.result()]


def show(outcome: Outcome) -> None:
    marks = "origin " + ("found" if outcome.found else f"MISSED ({outcome.origin or 'none'})")
    marks += ", cause " + ("named" if outcome.named else f"MISSED ({outcome.cause or 'none'})")
    where = f"{outcome.network} seed {outcome.seed} {outcome.fault}: {outcome.planted}"
    print(f"{where}: {marks}, {outcome.seconds:.1f} s", flush=True)


def table(outcomes: Sequence[Outcome]) -> list[dict[str, str]]:
    """Return a row per fault and network: how often its origin and its cause were found."""
    rows = []
    for network in dict.fromkeys(outcome.network for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.network == network]
        for fault in dict.fromkeys(outcome.fault for outcome in mine):
            rows.append(row(network, fault, [outcome for outcome in mine if outcome.fault == fault]))
        rows.append(row(network, "all", mine))
    return rows


def row(network: str, fault: str, outcomes: Sequence[Outcome]) -> dict[str, str]:
    origins, causes = sum(outcome.found for outcome in outcomes), sum(outcome.named for outcome in outcomes)
    planted_in = ", ".join(outcome.planted for outcome in outcomes) if fault != "all" else ""
    total = len(outcomes)
    shares = {"origin found": f"{origins} of {total}", "cause named": f"{causes} of {total}"}
    return {"network": network, "fault": fault, **shares, "planted in": planted_in}


def record(outcomes: Sequence[Outcome], seeds: int) -> dict[str, Any]:
    from run_description import describe_run  # found where this file is run as a script

    worst = {}
    for network in dict.fromkeys(outcome.network for outcome in outcomes):
        sets = [
            [outcome for outcome in outcomes if (outcome.network, outcome.seed) == (network, seed)]
            for seed in range(seeds)
        ]
        origins, causes = [sum(o.found for o in s) for s in sets], [sum(o.named for o in s) for s in sets]
        worst[network] = f"{network}: origins {min(origins)}, causes {min(causes)} of {len(sets[0])} in the worst seed"
    return {
        "kind": "benchmark",
        "title": "Planted faults: origin and cause, found by viaduct compare --explain",
        **describe_run(devices.get("cpu")),
        "note": f"{seeds} seeds draw the places; batch {BATCH}, {SIZE}x{SIZE}. {'; '.join(worst.values())}.",
        "columns": ["network", "fault", "origin found", "cause named", "planted in"],
        "rows": table(outcomes),
        "samples": [
            {
                **{
                    "network": outcome.network,
                    "fault": outcome.fault,
                    "seed": outcome.seed,
                    "planted": outcome.planted,
                },
                **{
                    "how": outcome.how,
                    "origin": outcome.origin,
                    "cause": outcome.cause,
                    "seconds": round(outcome.seconds, 2),
                },
            }
            for outcome in outcomes
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    networks, faults = options.networks.split(","), options.faults.split(",")
    outcomes = all_outcomes(networks, faults, options.seeds, options.threads)
    for line in table(outcomes):
        print(f"{line['network']:12s} {line['fault']:26s} origin {line['origin found']:8s} cause {line['cause named']}")
    if options.out:
        options.out.write_text(json.dumps(record(outcomes, options.seeds), indent=1) + "\n")


if __name__ == "__main__":
    main()
