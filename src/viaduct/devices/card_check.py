"""Run one training step on a card and check it against the same step on the CPU in fp32 (`viaduct devices --test`).

The network is a convolution, batch norm and a linear layer, trained with cross entropy and SGD. An update is the change
that the step makes to a parameter or a running statistic. The check fails if the step raises an error, or if the
relative error of an update exceeds TOLERANCE. Updates are compared, not the tensors themselves, because a large weight
would hide a wrong gradient.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from math import isnan

import torch
from torch import nn

from viaduct.devices.base import Device, summarise_error

# Measured, torch 2.11 and 2.13: fp32 2.2e-4 (H200), bf16 3.1e-2 (EPYC, Xeon, H200), fp16 1.0e-2 (H200). The
# tolerances leave room for cards that were not measured, such as an NPU whose fp32 convolutions run in HF32.
TOLERANCE = {"fp32": 0.01, "bf16": 0.1, "fp16": 0.05}

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_BATCH, _IMAGE_SIZE, _CLASSES = 16, 32, 10


@dataclass(frozen=True)
class CardCheck:
    """Result of the step of one card in one precision."""

    device: str
    precision: str
    ok: bool
    milliseconds: float | None  # of a step; None if it raised an error
    difference: float | None  # largest relative error of an update; None if the step raised an error
    tolerance: float
    reason: str | None  # why the check failed


def check_cards(device: Device) -> list[CardCheck]:
    """Check every card in fp32 and in each reduced precision that its hardware computes natively."""
    return [
        _check_precision(device, index, precision)
        for index in range(device.count_cards())
        for precision in ("fp32", *_find_reduced_precisions(device, index))
    ]


def _find_reduced_precisions(device: Device, index: int) -> tuple[str, ...]:
    try:
        device.select(index)
        return device.list_native_dtypes()
    except Exception:
        # This card also fails in fp32, and that check reports the reason.
        return ()


def _check_precision(device: Device, index: int, precision: str) -> CardCheck:
    name = device.NAME if device.NAME == "cpu" else f"{device.NAME}:{index}"
    tolerance = TOLERANCE[precision]
    try:
        milliseconds, difference = _measure_step(device, index, precision)
    except Exception as error:
        # An error of the card is a result of the check.
        error_line = summarise_error(error)
        return CardCheck(
            name, precision, ok=False, milliseconds=None, difference=None, tolerance=tolerance, reason=error_line
        )
    ok = difference <= tolerance
    reason = None if ok else f"differs from the CPU's fp32 by {difference:.2g}, more than {tolerance:g}"
    return CardCheck(name, precision, ok, milliseconds, difference, tolerance, reason)


def _measure_step(device: Device, index: int, precision: str) -> tuple[float, float]:
    """Run two steps; return the milliseconds of the second, and the largest relative error of the first's updates."""
    expected = _measure_update(_build_network(), torch.device("cpu"), "fp32")
    torch_device = device.select(index)
    network = _build_network().to(torch_device)
    update = _measure_update(network, torch_device, precision)
    device.synchronize()
    started = time.perf_counter()
    _run_step(network, torch_device, precision)
    device.synchronize()
    return (time.perf_counter() - started) * 1000, _find_largest_error(update, expected)


def _build_network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, _CLASSES),
        )


def _measure_update(network: nn.Module, torch_device: torch.device, precision: str) -> dict[str, torch.Tensor]:
    """Run a step; return the change of each parameter and running statistic, by name."""
    before = _copy_tensors(network)
    _run_step(network, torch_device, precision)
    after = _copy_tensors(network)
    return {name: after[name] - before[name] for name in after}


def _run_step(network: nn.Module, torch_device: torch.device, precision: str) -> None:
    generator = torch.Generator().manual_seed(2)
    images_NCHW = torch.randn(_BATCH, 3, _IMAGE_SIZE, _IMAGE_SIZE, generator=generator).to(torch_device)
    labels = torch.randint(_CLASSES, (_BATCH,), generator=generator).to(torch_device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    optimizer.zero_grad()
    with torch.autocast(torch_device.type, _DTYPES[precision]) if precision in _DTYPES else nullcontext():
        loss = nn.functional.cross_entropy(network(images_NCHW), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _copy_tensors(network: nn.Module) -> dict[str, torch.Tensor]:
    state = network.state_dict().items()
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in state if tensor.is_floating_point()}


def _find_largest_error(update: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Return the largest relative error of an update; infinite if a value is NaN."""
    errors = [float((update[name] - expected[name]).norm() / expected[name].norm()) for name in expected]
    return max(float("inf") if isnan(error) else error for error in errors)
