"""Convolutions: memory layout, a matrix product in place of a 1x1 convolution, oneDNN forward and backward, compiled.

The output has the memory layout that the default's output has, so that the next layers see no change. The time of
converting it counts.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from viaduct.tuning.bank import Choice
from viaduct.tuning.operators import Work
from viaduct.tuning.operators.precision import autocast_to, cast_for_compute, find_compute_dtype, set_onednn
from viaduct.tuning.signature import Signature
from viaduct.tuning.space import Parameter, Point, Space

KIND = "conv2d"
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
DEFAULT: Choice = {
    "layout": "as_given",
    "implementation": "convolution",
    "forward_onednn": True,
    "backward_onednn": True,
}

Forward = Callable[[Any, Tensor], Tensor]


def describe(module: nn.Module, x: Tensor) -> Signature | None:
    """Return the signature of a convolution called with `x`; None for a call that has no variants."""
    if (
        type(module) is not nn.Conv2d
        or x.dim() != 4
        or module.padding_mode != "zeros"
        or isinstance(module.padding, str)
    ):
        return None
    weight = module.weight
    gradients = [name for name, tensor in (("x", x), ("w", weight)) if tensor.requires_grad]
    return Signature.of(
        KIND,
        x=join(x.shape),
        layout=find_layout(x),
        w=join(weight.shape),
        weight_layout=find_layout(weight),
        stride=join(module.stride),
        padding=join(module.padding),
        dilation=join(module.dilation),
        groups=module.groups,
        bias=module.bias is not None,
        dtype=name_dtype(x.dtype),
        weight_dtype=name_dtype(weight.dtype),
        compute=name_dtype(find_compute_dtype(x)),
        gradients="".join(gradients) or "none",
    )


def make_space(signature: Signature, device: str, with_compiler: bool = False) -> Space:
    """Return the variants of a convolution on a device."""
    layouts = ["as_given", *(name for name in LAYOUTS if name != signature["layout"])]
    implementations = ["convolution"]
    if is_pointwise(signature):
        implementations.append("matrix_product")
    if with_compiler and can_compile(device):
        implementations.append("compiled")
    switch = (True, False) if device == "cpu" else (True,)
    return Space(
        [
            Parameter("layout", tuple(layouts)),
            Parameter("implementation", tuple(implementations)),
            Parameter("forward_onednn", switch),
            Parameter("backward_onednn", switch),
        ],
        rules=[forbid_switch_without_convolution],
        default=DEFAULT,
        hints=[{**DEFAULT, "implementation": name} for name in implementations[1:2] if name == "matrix_product"]
        + [{**DEFAULT, "layout": name} for name in layouts[1:]],
    )


def forbid_switch_without_convolution(point: Point) -> str | None:
    if point["implementation"] != "convolution" and not (point["forward_onednn"] and point["backward_onednn"]):
        return "oneDNN is switched for plain convolutions only"
    return None


def is_pointwise(signature: Signature) -> bool:
    """Return True for a 1x1 convolution that is a matrix product of pixels and channels."""
    return str(signature["w"]).endswith("x1x1") and signature["groups"] == 1 and set(split(signature["padding"])) == {0}


@cache
def can_compile(device: str) -> bool:
    """Return True on the CPU with a C++ compiler in PATH; on other devices single operators are not compiled."""
    return device == "cpu" and any(shutil.which(name) for name in ("g++", "c++", "clang++"))


def make_forward(point: Choice) -> Forward:
    """Return the forward pass of a variant; it takes a module and its input."""
    layout = LAYOUTS.get(str(point["layout"]))
    core = choose_core(point)

    def forward(module: Any, x: Tensor) -> Tensor:
        given = x
        x, weight, bias = cast_for_compute(x, module.weight, module.bias)
        if layout is not None:
            x, weight = x.contiguous(memory_format=layout), weight.contiguous(memory_format=layout)
        y = core(module, x, weight, bias)
        if find_layout(given) == "channels_last" or find_layout(module.weight) == "channels_last":
            return y.contiguous(memory_format=torch.channels_last)
        return y.contiguous()

    return forward


def choose_core(point: Choice) -> Callable[[Any, Tensor, Tensor, Tensor | None], Tensor]:
    if point["implementation"] == "matrix_product":
        return multiply_pixels
    if point["implementation"] == "compiled":
        compiled: Callable[..., Tensor] = torch.compile(call_convolution, dynamic=False)
        return compiled
    if point["forward_onednn"] and point["backward_onednn"]:
        return call_convolution
    forward, backward = bool(point["forward_onednn"]), bool(point["backward_onednn"])

    def call_switched(module: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        options = module.stride, module.padding, module.dilation, module.groups
        y: Tensor = SwitchedConvolution.apply(x, weight, bias, options, forward, backward)  # type: ignore[no-untyped-call]
        return y

    return call_switched


def call_convolution(module: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.conv2d(x, weight, bias, module.stride, module.padding, module.dilation, module.groups)


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
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, options: Any, forward: bool, backward: bool
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.options, ctx.backward_onednn = options, backward
        ctx.bias_sizes = None if bias is None else list(bias.shape)
        stride, padding, dilation, groups = options
        with set_onednn(forward):
            return functional.conv2d(x, weight, bias, stride, padding, dilation, groups)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        stride, padding, dilation, groups = (list(part) if isinstance(part, tuple) else part for part in ctx.options)
        wanted = [
            ctx.needs_input_grad[0],
            ctx.needs_input_grad[1],
            ctx.bias_sizes is not None and ctx.needs_input_grad[2],
        ]
        with set_onednn(ctx.backward_onednn):
            found = torch.ops.aten.convolution_backward(
                gradient, x, weight, ctx.bias_sizes, stride, padding, dilation, False, [0, 0], groups, wanted
            )
        return (*found, None, None, None)


def make_work(signature: Signature, point: Choice, device: str, exact: bool = False) -> Work:
    """Return the forward and backward pass of one variant; its random numbers are the same for each variant."""
    shape, weight_shape = split(signature["x"]), split(signature["w"])
    generator = torch.Generator().manual_seed(1)
    dtype, weight_dtype = (getattr(torch, str(signature[name])) for name in ("dtype", "weight_dtype"))
    groups = int(signature["groups"])
    module = nn.Conv2d(
        weight_shape[1] * groups,
        weight_shape[0],
        (weight_shape[2], weight_shape[3]),
        stride=split_pair(signature["stride"]),
        padding=split_pair(signature["padding"]),
        dilation=split_pair(signature["dilation"]),
        groups=groups,
        bias=bool(signature["bias"]),
    )
    fan = weight_shape[1] * weight_shape[2] * weight_shape[3]
    with torch.no_grad():
        module.weight.copy_(torch.randn(weight_shape, generator=generator) / fan**0.5)
        if module.bias is not None:
            module.bias.copy_(torch.randn(weight_shape[0], generator=generator))
    x = torch.randn(shape, generator=generator).to(dtype).to(device)
    module = module.to(weight_dtype).to(device)
    if exact:
        x, module = x.double(), module.double()
    x = lay_out(x, str(signature["layout"])).requires_grad_("x" in signature["gradients"])
    module.weight = nn.Parameter(
        lay_out(module.weight.detach(), str(signature["weight_layout"])), requires_grad="w" in signature["gradients"]
    )
    leaves = [("x", x), *module.named_parameters()]
    wanted = [(name, tensor) for name, tensor in leaves if tensor.requires_grad]
    compute = torch.float64 if exact else getattr(torch, str(signature["compute"]))
    forward = make_forward(DEFAULT if exact else point)
    output_gradient = torch.randn(output_shape(module, x), generator=generator).to(compute).to(device)
    output_gradient = lay_out(output_gradient, str(signature["layout"]))

    def compute_all() -> tuple[Tensor, Sequence[Tensor]]:
        with autocast_to(compute, x, module.weight):
            y = forward(module, x)
        return y, torch.autograd.grad(y, [tensor for _, tensor in wanted], output_gradient) if wanted else ()

    def read_values() -> list[tuple[str, Tensor]]:
        y, gradients = compute_all()
        named = [(f"gradient of {name}", found) for (name, _), found in zip(wanted, gradients, strict=True)]
        return [("output", y.detach()), *named]

    return Work(compute_all, read_values)


def output_shape(module: nn.Conv2d, x: Tensor) -> torch.Size:
    with torch.no_grad(), torch.device("meta"):
        meta = torch.empty(x.shape)
        weight = torch.empty(module.weight.shape)
        options = module.stride, module.padding, module.dilation, module.groups
        return functional.conv2d(meta, weight, None, *options).shape  # type: ignore[arg-type]


def lay_out(tensor: Tensor, layout: str) -> Tensor:
    return tensor.contiguous(memory_format=LAYOUTS[layout]) if layout in LAYOUTS else tensor


def find_layout(tensor: Tensor) -> str:
    """Return the memory layout of a tensor; a tensor that is both, such as one of a single channel, is contiguous."""
    if tensor.is_contiguous():
        return "contiguous"
    return "channels_last" if tensor.is_contiguous(memory_format=torch.channels_last) else "strided"


def name_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def join(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))


def split(text: Any) -> list[int]:
    return [int(number) for number in str(text).split("x")]


def split_pair(text: Any) -> tuple[int, int]:
    first, second = split(text)
    return first, second
