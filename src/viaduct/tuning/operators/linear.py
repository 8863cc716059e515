"""Linear layers: a product of the transposed operands, compiled, and oneDNN on or off except in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from viaduct.tuning.bank import Choice
from viaduct.tuning.operators import Work
from viaduct.tuning.operators.conv2d import can_compile, join, name_dtype, split
from viaduct.tuning.operators.precision import autocast_to, cast_for_compute, find_compute_dtype, set_onednn
from viaduct.tuning.signature import Signature
from viaduct.tuning.space import Parameter, Point, Space

KIND = "linear"
DEFAULT: Choice = {"implementation": "linear", "forward_onednn": True, "backward_onednn": True}

Forward = Callable[[Any, Tensor], Tensor]


def describe(module: nn.Module, x: Tensor) -> Signature | None:
    """Return the signature of a linear layer called with `x`; None for a call that has no variants."""
    if type(module) is not nn.Linear or x.dim() != 2:
        return None
    gradients = [name for name, tensor in (("x", x), ("w", module.weight)) if tensor.requires_grad]
    return Signature.of(
        KIND,
        x=join(x.shape),
        w=join(module.weight.shape),
        bias=module.bias is not None,
        dtype=name_dtype(x.dtype),
        weight_dtype=name_dtype(module.weight.dtype),
        compute=name_dtype(find_compute_dtype(x)),
        gradients="".join(gradients) or "none",
    )


def make_space(signature: Signature, device: str, with_compiler: bool = False) -> Space:
    """Return the variants of a linear layer; oneDNN is switched on the CPU only, and not in float32."""
    implementations = ["linear", "transposed"] + ["compiled"] * (with_compiler and can_compile(device))
    switch = (True, False) if device == "cpu" and signature["compute"] != "float32" else (True,)
    return Space(
        [
            Parameter("implementation", tuple(implementations)),
            Parameter("forward_onednn", switch),
            Parameter("backward_onednn", switch),
        ],
        rules=[forbid_switch_without_linear],
        default=DEFAULT,
    )


def forbid_switch_without_linear(point: Point) -> str | None:
    if point["implementation"] != "linear" and not (point["forward_onednn"] and point["backward_onednn"]):
        return "oneDNN is switched for plain linear layers only"
    return None


def make_forward(point: Choice) -> Forward:
    """Return the forward pass of a variant; it takes a module and its input."""
    core = choose_core(point)

    def forward(module: Any, x: Tensor) -> Tensor:
        return core(*cast_for_compute(x, module.weight, module.bias))

    return forward


def choose_core(point: Choice) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    if point["implementation"] == "transposed":
        return multiply_transposed
    if point["implementation"] == "compiled":
        compiled: Callable[..., Tensor] = torch.compile(functional.linear, dynamic=False)
        return compiled
    if point["forward_onednn"] and point["backward_onednn"]:
        return functional.linear
    forward, backward = bool(point["forward_onednn"]), bool(point["backward_onednn"])

    def call_switched(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        y: Tensor = SwitchedLinear.apply(x, weight, bias, forward, backward)  # type: ignore[no-untyped-call]
        return y

    return call_switched


def multiply_transposed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x W^T + bias as the transpose of W x^T: a product of another shape for the library."""
    y = (weight @ x.t()).t()
    return y if bias is None else y + bias


class SwitchedLinear(torch.autograd.Function):
    """A linear layer with oneDNN on or off, separately for the forward and the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, forward: bool, backward: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.backward_onednn, ctx.has_bias = backward, bias is not None
        with set_onednn(forward):
            return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        with set_onednn(ctx.backward_onednn):
            for_x = gradient @ weight if ctx.needs_input_grad[0] else None
            for_weight = gradient.t() @ x if ctx.needs_input_grad[1] else None
            for_bias = gradient.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
        return for_x, for_weight, for_bias, None, None


def make_work(signature: Signature, point: Choice, device: str, exact: bool = False) -> Work:
    """Return the forward and backward pass of one variant; its random numbers are the same for each variant."""
    rows, inner = split(signature["x"])
    columns, _ = split(signature["w"])
    generator = torch.Generator().manual_seed(1)
    dtype, weight_dtype = (getattr(torch, str(signature[name])) for name in ("dtype", "weight_dtype"))
    module = nn.Linear(inner, columns, bias=bool(signature["bias"]))
    with torch.no_grad():
        module.weight.copy_(torch.randn(columns, inner, generator=generator) / inner**0.5)
        if module.bias is not None:
            module.bias.copy_(torch.randn(columns, generator=generator))
    x = torch.randn(rows, inner, generator=generator).to(dtype).to(device)
    module = module.to(weight_dtype).to(device)
    output_gradient = torch.randn(rows, columns, generator=generator)
    if exact:
        x, module = x.double(), module.double()
    x.requires_grad_("x" in signature["gradients"])
    module.weight.requires_grad_("w" in signature["gradients"])
    compute = torch.float64 if exact else getattr(torch, str(signature["compute"]))
    output_gradient = output_gradient.to(compute).to(device)
    wanted = [(name, tensor) for name, tensor in (("x", x), *module.named_parameters()) if tensor.requires_grad]
    forward = make_forward(DEFAULT if exact else point)

    def compute_all() -> tuple[Tensor, Sequence[Tensor]]:
        with autocast_to(compute, x, module.weight):
            y = forward(module, x)
        return y, torch.autograd.grad(y, [tensor for _, tensor in wanted], output_gradient) if wanted else ()

    def read_values() -> list[tuple[str, Tensor]]:
        y, gradients = compute_all()
        named = [(f"gradient of {name}", found) for (name, _), found in zip(wanted, gradients, strict=True)]
        return [("output", y.detach()), *named]

    return Work(compute_all, read_values)
