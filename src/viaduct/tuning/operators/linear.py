"""Variants of linear layers: product of the transposed operands, compiled, oneDNN on or off (not in float32)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from viaduct.search_space import Parameter, Space
from viaduct.tuning.bank import Choice
from viaduct.tuning.operators import Work
from viaduct.tuning.operators.modules import (
    Forward,
    can_compile,
    cast_for_compute,
    choose_core,
    describe_operands,
    explain_invalid_switch,
    format_shape,
    make_module_work,
    make_switches,
    parse_shape,
    set_onednn,
)
from viaduct.tuning.signature import Signature

KIND = "linear"
DEFAULT: Choice = {"implementation": "linear", "forward_onednn": True, "backward_onednn": True}


def describe(module: nn.Module, x: Tensor) -> Signature | None:
    """Return the signature of a linear layer called with `x`; None for a call that has no variants."""
    if type(module) is not nn.Linear or x.dim() != 2:
        return None
    shapes = {"x": format_shape(x.shape), "w": format_shape(module.weight.shape)}
    return Signature.of(KIND, **shapes, **describe_operands(module, x))


def make_space(signature: Signature, device: str, allow_compiled: bool = False) -> Space:
    """Return the variants of a linear layer.

    oneDNN can be switched off only on the CPU, and not in float32, where PyTorch's products do not use it.
    """
    implementations = ["linear", "transposed"]
    if allow_compiled and can_compile(device):
        implementations.append("compiled")
    can_switch = device == "cpu" and signature["compute"] != "float32"
    return Space(
        [Parameter("implementation", tuple(implementations)), *make_switches(can_switch)],
        rules=[explain_invalid_switch],
        default=DEFAULT,
    )


def make_forward(point: Choice) -> Forward:
    """Return a forward pass of nn.Linear that computes by this variant."""
    core = choose_core(point, functional.linear, {"transposed": multiply_transposed}, SwitchedLinear.apply)

    def forward(module: Any, x: Tensor) -> Tensor:
        return core(*cast_for_compute(x, module.weight, module.bias))

    return forward


def multiply_transposed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x W^T + bias as the transpose of W x^T, for which libraries may choose a faster kernel."""
    y = (weight @ x.t()).t()
    return y if bias is None else y + bias


class SwitchedLinear(torch.autograd.Function):
    """A linear layer with oneDNN on or off, separately for the forward and the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, forward_onednn: bool, backward_onednn: bool
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.backward_onednn, ctx.has_bias = backward_onednn, bias is not None
        with set_onednn(forward_onednn):
            return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        with set_onednn(ctx.backward_onednn):
            x_gradient = gradient @ weight if ctx.needs_input_grad[0] else None
            weight_gradient = gradient.t() @ x if ctx.needs_input_grad[1] else None
            bias_gradient = gradient.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
        return x_gradient, weight_gradient, bias_gradient, None, None


def make_work(signature: Signature, point: Choice, device: str, exact: bool = False) -> Work:
    """Return the forward and backward pass of one variant."""
    outputs, inputs = parse_shape(signature["w"])
    module = nn.Linear(inputs, outputs, bias=bool(signature["bias"]))
    return make_module_work(module, make_forward(DEFAULT if exact else point), signature, device, exact)
