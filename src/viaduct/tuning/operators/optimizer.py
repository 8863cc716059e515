"""Variants of the update of SGD and AdamW: fused, foreach, or a loop over the parameters."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from viaduct.search_space import Parameter, Space
from viaduct.tuning.bank import Choice
from viaduct.tuning.operators import Work
from viaduct.tuning.signature import Signature

KIND = "optimizer"
IMPLEMENTATIONS = {
    "fused": {"fused": True, "foreach": False},
    "foreach": {"fused": False, "foreach": True},
    "loop": {"fused": False, "foreach": False},
}
CLASSES = {"SGD": torch.optim.SGD, "AdamW": torch.optim.AdamW}
LEARNING_RATE = 1e-3  # of the measured updates
DEFAULT: Choice = {"implementation": "fused"}


def describe(optimizer: torch.optim.Optimizer) -> Signature | None:
    """Return the signature of an optimizer; None unless it is torch's SGD or AdamW, fused, with float32 parameters."""
    name = type(optimizer).__name__
    if name not in CLASSES or not isinstance(optimizer, CLASSES[name]):
        return None
    groups = optimizer.param_groups
    if not all(group.get("fused") and all(p.dtype == torch.float32 for p in group["params"]) for group in groups):
        return None
    sizes = Counter(tensor.numel() for group in groups for tensor in group["params"])
    return Signature.of(
        KIND,
        # short form for tables
        shown=f"{name}, {sum(sizes.values())} tensors, {sum(size * count for size, count in sizes.items()):,} elements",
        name=name,
        momentum=str(groups[0].get("momentum", 0)),
        nesterov=bool(groups[0].get("nesterov", False)),
        decay=any(group["weight_decay"] for group in groups),
        sizes=",".join(f"{size}x{count}" for size, count in sorted(sizes.items())),
    )


def make_space(signature: Signature, device: str, allow_compiled: bool = False) -> Space:
    return Space([Parameter("implementation", tuple(IMPLEMENTATIONS))], default=DEFAULT)


def set_implementation(optimizer: torch.optim.Optimizer, point: Choice) -> None:
    for group in optimizer.param_groups:
        group.update(IMPLEMENTATIONS[str(point["implementation"])])


def make_work(signature: Signature, point: Choice, device: str, exact: bool = False) -> Work:
    """Return one update of parameters with the signature's sizes; 512x2 are two tensors of 512 elements."""
    generator = torch.Generator().manual_seed(1)
    parameters: list[torch.nn.Parameter] = []
    for text in str(signature["sizes"]).split(","):
        size, count = map(int, text.split("x"))
        for _ in range(count):
            value, gradient = (torch.randn(size, generator=generator).to(device) for _ in range(2))
            parameter = torch.nn.Parameter(value.double() if exact else value)
            parameter.grad = gradient.to(parameter.dtype)
            parameters.append(parameter)
    options: dict[str, Any] = {"lr": LEARNING_RATE, "weight_decay": 1e-4 if signature["decay"] else 0.0}
    if signature["name"] == "SGD":
        options |= {"momentum": float(signature["momentum"]), "nesterov": bool(signature["nesterov"])}
    chosen = IMPLEMENTATIONS["loop" if exact else str(point["implementation"])]
    optimizer = CLASSES[str(signature["name"])](parameters, **options, **chosen)

    def read_values() -> list[tuple[str, Tensor]]:
        """Return the change of the weights in two steps; in a single step momentum would have no effect."""
        before = [parameter.detach().clone() for parameter in parameters]
        gradients = [parameter.grad.clone() for parameter in parameters if parameter.grad is not None]
        for _ in range(2):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()  # an update may use it as scratch
            optimizer.step()
        changes = [parameter.detach() - start for parameter, start in zip(parameters, before, strict=True)]
        return [("change of the weights", torch.cat(changes))]

    return Work(optimizer.step, read_values)
