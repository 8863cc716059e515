"""One real training step on a card, checked against the same step on the CPU in fp32.

The step is convolution, batch norm, linear layer, cross entropy, backward and SGD. What is compared is how
far the step moved each tensor, not where the tensor ended: a wrong gradient cannot hide behind the weight
it was added to. A trial fails if the worst tensor is off by more than TOLERANCE, as a share of its movement.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from viaduct.devices.base import Device, first_line

# Measured, torch 2.11 and 2.13: fp32 2.2e-4 (H200), bf16 3.1e-2 (EPYC, Xeon, H200), fp16 1.0e-2 (H200). The rest
# is room for cards nobody has measured, such as an NPU whose fp32 convolutions run in HF32.
TOLERANCE = {"fp32": 0.01, "bf16": 0.1, "fp16": 0.05}

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_BATCH, _SIDE, _CLASSES = 16, 32, 10


@dataclass(frozen=True)
class Trial:
    """How one card fared in one precision."""

    device: str
    precision: str
    ok: bool
    milliseconds: float | None
    difference: float | None
    tolerance: float
    reason: str | None


def run(device: Device) -> list[Trial]:
    """A trial of every card in fp32 and in each reduced precision it computes in."""
    return [
        _attempt(device, index, precision)
        for index in range(device.count())
        for precision in ("fp32", *_reduced(device, index))
    ]


def _reduced(device: Device, index: int) -> tuple[str, ...]:
    try:
        device.select(index)
        return device.autocast_dtypes()
    except Exception:
        # A card this ill fails in fp32 too, and that trial carries the reason.
        return ()


def _attempt(device: Device, index: int, precision: str) -> Trial:
    name = device.NAME if device.NAME == "cpu" else f"{device.NAME}:{index}"
    tolerance = TOLERANCE[precision]
    try:
        milliseconds, difference = _measure(device, index, precision)
    except Exception as error:
        # A card that throws has failed its trial; that is the answer, not our bug.
        return Trial(name, precision, False, None, None, tolerance, first_line(error))
    ok = difference <= tolerance
    reason = None if ok else f"differs from the CPU's fp32 by {difference:.2g}, more than {tolerance:g}"
    return Trial(name, precision, ok, milliseconds, difference, tolerance, reason)


def _measure(device: Device, index: int, precision: str) -> tuple[float, float]:
    """Milliseconds of a step once warm, and how far the first step strayed from the CPU's."""
    expected = _movement(_network(), torch.device("cpu"), "fp32")
    place = device.select(index)
    network = _network().to(place)
    moved = _movement(network, place, precision)
    device.synchronize()
    started = time.perf_counter()
    _step(network, place, precision)
    device.synchronize()
    return (time.perf_counter() - started) * 1000, _worst(moved, expected)


def _network() -> nn.Module:
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


def _movement(network: nn.Module, place: torch.device, precision: str) -> dict[str, torch.Tensor]:
    before = _tensors(network)
    _step(network, place, precision)
    after = _tensors(network)
    return {name: after[name] - before[name] for name in after}


def _step(network: nn.Module, place: torch.device, precision: str) -> None:
    chance = torch.Generator().manual_seed(2)
    images_NCHW = torch.randn(_BATCH, 3, _SIDE, _SIDE, generator=chance).to(place)
    labels = torch.randint(_CLASSES, (_BATCH,), generator=chance).to(place)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    optimizer.zero_grad()
    with torch.autocast(place.type, _DTYPES[precision]) if precision in _DTYPES else nullcontext():
        loss = nn.functional.cross_entropy(network(images_NCHW), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _tensors(network: nn.Module) -> dict[str, torch.Tensor]:
    state = network.state_dict().items()
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in state if tensor.is_floating_point()}


def _worst(moved: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """The largest relative error of any tensor; infinite if a number was lost to NaN."""
    errors = [float((moved[name] - expected[name]).norm() / expected[name].norm()) for name in expected]
    return max(error if error == error else float("inf") for error in errors)
