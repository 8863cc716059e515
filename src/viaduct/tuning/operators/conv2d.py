"""Variants of convolutions: memory layout, matrix product for 1x1, oneDNN on or off, compiled.

The output is converted to the memory layout of the default's output; the conversion is part of the measured time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from viaduct.search_space import Parameter, Space
from viaduct.tuning.bank import Choice
from viaduct.tuning.operators import Work
from viaduct.tuning.operators.modules import (
    LAYOUTS,
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

KIND = "conv2d"
DEFAULT: Choice = {
    "layout": "as_given",
    "implementation": "convolution",
    "forward_onednn": True,
    "backward_onednn": True,
}


def describe(module: nn.Module, x: Tensor) -> Signature | None:
    """Return the signature of a convolution called with `x`; None for a call that has no variants."""
    if type(module) is not nn.Conv2d or x.dim() != 4 or module.padding_mode != "zeros":
        return None
    if isinstance(module.padding, str):  # "same", "valid"
        return None
    return Signature.of(
        KIND,
        x=format_shape(x.shape),
        layout=find_layout(x),
        w=format_shape(module.weight.shape),
        weight_layout=find_layout(module.weight),
        stride=format_shape(module.stride),
        padding=format_shape(module.padding),
        dilation=format_shape(module.dilation),
        groups=module.groups,
        **describe_operands(module, x),
    )


def make_space(signature: Signature, device: str, allow_compiled: bool = False) -> Space:
    layouts = ["as_given", *(name for name in LAYOUTS if name != signature["layout"])]
    implementations = ["convolution"]
    if is_pointwise(signature):
        implementations.append("matrix_product")
    if allow_compiled and can_compile(device):
        implementations.append("compiled")
    choices = [Parameter("layout", tuple(layouts)), Parameter("implementation", tuple(implementations))]
    return Space(
        [*choices, *make_switches(can_switch=device == "cpu")],
        rules=[explain_invalid_switch],
        default=DEFAULT,
        hints=[
            *([{**DEFAULT, "implementation": "matrix_product"}] if is_pointwise(signature) else []),
            *({**DEFAULT, "layout": name} for name in layouts[1:]),
        ],
    )


def is_pointwise(signature: Signature) -> bool:
    """Return True for a 1x1 convolution without groups and padding, which is a matrix product."""
    is_1x1 = str(signature["w"]).endswith("x1x1")
    return is_1x1 and signature["groups"] == 1 and set(parse_shape(signature["padding"])) == {0}


def make_forward(point: Choice) -> Forward:
    """Return a forward pass of nn.Conv2d that computes by this variant."""
    layout = LAYOUTS.get(str(point["layout"]))  # None for "as_given": the operands keep their layout
    core = choose_core(point, call_convolution, {"matrix_product": multiply_pixels}, call_switched)

    def forward(module: Any, x: Tensor) -> Tensor:
        is_channels_last = "channels_last" in (find_layout(x), find_layout(module.weight))
        x, weight, bias = cast_for_compute(x, module.weight, module.bias)
        if layout is not None:
            x, weight = x.contiguous(memory_format=layout), weight.contiguous(memory_format=layout)
        y = core(module, x, weight, bias)
        return y.contiguous(memory_format=torch.channels_last if is_channels_last else torch.contiguous_format)

    return forward


def call_convolution(module: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.conv2d(x, weight, bias, module.stride, module.padding, module.dilation, module.groups)


def call_switched(
    module: Any, x: Tensor, weight: Tensor, bias: Tensor | None, forward_onednn: bool, backward_onednn: bool
) -> Tensor:
    options = module.stride, module.padding, module.dilation, module.groups
    apply: Any = SwitchedConvolution.apply
    y: Tensor = apply(x, weight, bias, options, forward_onednn, backward_onednn)
    return y


def multiply_pixels(module: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return a 1x1 convolution as one matrix product over all pixels that its stride selects."""
    down, right = module.stride
    if down > 1 or right > 1:
        x = x[:, :, ::down, ::right]
    return functional.linear(x.permute(0, 2, 3, 1), weight.flatten(1), bias).permute(0, 3, 1, 2)


class SwitchedConvolution(torch.autograd.Function):
    """A convolution with oneDNN on or off, separately for the forward and the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Any, options: Any, forward_onednn: bool, backward_onednn: bool
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.options, ctx.backward_onednn = options, backward_onednn
        ctx.bias_sizes = None if bias is None else list(bias.shape)
        stride, padding, dilation, groups = options
        with set_onednn(forward_onednn):
            return functional.conv2d(x, weight, bias, stride, padding, dilation, groups)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        stride, padding, dilation, groups = (list(part) if isinstance(part, tuple) else part for part in ctx.options)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        output_mask = [needs_x, needs_weight, ctx.bias_sizes is not None and needs_bias]
        with set_onednn(ctx.backward_onednn):
            gradients = torch.ops.aten.convolution_backward(
                gradient, x, weight, ctx.bias_sizes, stride, padding, dilation, False, [0, 0], groups, output_mask
            )
        return (*gradients, None, None, None)


def make_work(signature: Signature, point: Choice, device: str, exact: bool = False) -> Work:
    """Return the forward and backward pass of one variant."""
    channels, group_channels, height, width = parse_shape(signature["w"])
    groups, bias = int(signature["groups"]), bool(signature["bias"])
    options: Any = {name: tuple(parse_shape(signature[name])) for name in ("stride", "padding", "dilation")}
    module = nn.Conv2d(group_channels * groups, channels, (height, width), groups=groups, bias=bias, **options)
    return make_module_work(module, make_forward(DEFAULT if exact else point), signature, device, exact)


def find_layout(tensor: Tensor) -> str:
    """Return the memory layout of a tensor: "contiguous" (also if it is both), "channels_last" or "strided"."""
    if tensor.is_contiguous():
        return "contiguous"
    return "channels_last" if tensor.is_contiguous(memory_format=torch.channels_last) else "strided"
