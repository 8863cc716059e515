"""Shared parts of conv2d.py and linear.py: signature fields, precision, oneDNN switches, and the timed work."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.search_space import Parameter, Point, Value
from viaduct.tuning.bank import Choice
from viaduct.tuning.operators import Work
from viaduct.tuning.signature import Signature

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
Forward = Callable[[Any, Tensor], Tensor]  # takes a module and its input
Core = Callable[..., Tensor]  # takes input, weight and bias in autocast's dtype; before them a convolution's module


def describe_operands(module: nn.Conv2d | nn.Linear, x: Tensor) -> dict[str, Value]:
    """Return the fields that end a signature: bias, dtypes, and the required gradients ("x", "w", "xw" or "none")."""
    gradients = [name for name, tensor in (("x", x), ("w", module.weight)) if tensor.requires_grad]
    return {
        "bias": module.bias is not None,
        "dtype": name_dtype(x.dtype),
        "weight_dtype": name_dtype(module.weight.dtype),
        "compute": name_dtype(find_compute_dtype(x)),
        "gradients": "".join(gradients) or "none",
    }


def name_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def format_shape(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))


def parse_shape(text: Any) -> list[int]:
    return [int(number) for number in str(text).split("x")]


@cache
def can_compile(device: str) -> bool:
    """Return True on the CPU with a C++ compiler in PATH; on other devices operators are not compiled."""
    return device == "cpu" and any(shutil.which(name) for name in ("g++", "c++", "clang++"))


def make_switches(can_switch: bool) -> list[Parameter]:
    """Return the parameters that switch oneDNN in each pass; with a single value if it cannot be switched off."""
    values = (True, False) if can_switch else (True,)
    return [Parameter("forward_onednn", values), Parameter("backward_onednn", values)]


def explain_invalid_switch(point: Point) -> str | None:
    """Return a reason if a point switches oneDNN off for an implementation other than PyTorch's own call, else None."""
    switches_off = not (point["forward_onednn"] and point["backward_onednn"])
    if switches_off and point["implementation"] not in ("convolution", "linear"):
        return "oneDNN is switched for plain convolutions and linear layers only"
    return None


def choose_core(point: Choice, plain: Core, others: Mapping[str, Core], switched: Callable[..., Any]) -> Core:
    """Return the function that computes a variant from its operands.

    `plain` is PyTorch's own call, `others` has further implementations by name. `switched` is the plain call with two
    more arguments, which switch oneDNN on or off in the forward and in the backward pass.
    """
    if point["implementation"] == "compiled":
        compiled: Core = torch.compile(plain, dynamic=False)
        return compiled
    if point["implementation"] in others:
        return others[str(point["implementation"])]
    forward, backward = bool(point["forward_onednn"]), bool(point["backward_onednn"])
    return plain if forward and backward else lambda *operands: switched(*operands, forward, backward)


def find_compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which an operator on `x` computes: autocast's if it is enabled, else the dtype of `x`."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def cast_for_compute(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the operands cast to autocast's type if it is enabled."""
    if not torch.is_autocast_enabled(x.device.type):
        return x, weight, bias
    dtype = find_compute_dtype(x)
    return x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)


def autocast_to(compute: torch.dtype, x: Tensor, weight: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which an operator on `x` and `weight` computes in the type `compute`."""
    if compute == x.dtype == weight.dtype or compute == torch.float64:
        return nullcontext()
    return torch.autocast(x.device.type, dtype=compute, cache_enabled=False)


@contextmanager
def set_onednn(on: bool) -> Iterator[None]:
    """Switch oneDNN on or off within the block; torch.backends.mkldnn.flags would also reset other settings."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(on)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def lay_out(tensor: Tensor, layout: object) -> Tensor:
    """Return the tensor in one of LAYOUTS; unchanged for any other name."""
    return tensor.contiguous(memory_format=LAYOUTS[str(layout)]) if layout in LAYOUTS else tensor


def make_module_work(
    module: nn.Conv2d | nn.Linear, forward: Forward, signature: Signature, device: str, exact: bool
) -> Work:
    """Return the work of a module with random operands of the signature; with `exact` everything is in float64."""
    fields = dict(signature.fields)
    shape, weight_shape = parse_shape(fields["x"]), parse_shape(fields["w"])
    dtype, weight_dtype, compute = (getattr(torch, str(fields[name])) for name in ("dtype", "weight_dtype", "compute"))
    if exact:
        compute = torch.float64
    # A pass on the meta device computes the shape of the output only.
    output_shape = copy.deepcopy(module).to("meta")(torch.empty(shape, device="meta")).shape
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        module.weight.copy_(torch.randn(weight_shape, generator=generator) / prod(weight_shape[1:]) ** 0.5)
        if module.bias is not None:
            module.bias.copy_(torch.randn(weight_shape[0], generator=generator))
    x = torch.randn(shape, generator=generator).to(dtype).to(device)
    module = module.to(weight_dtype).to(device)
    if exact:
        x, module = x.double(), module.double()
    x = lay_out(x, fields.get("layout")).requires_grad_("x" in signature["gradients"])
    weight = lay_out(module.weight.detach(), fields.get("weight_layout"))
    module.weight = nn.Parameter(weight, requires_grad="w" in signature["gradients"])
    output_gradient = torch.randn(output_shape, generator=generator).to(compute).to(device)
    output_gradient = lay_out(output_gradient, fields.get("layout"))
    inputs = {name: tensor for name, tensor in (("x", x), *module.named_parameters()) if tensor.requires_grad}

    def run() -> tuple[Tensor, Sequence[Tensor]]:
        with autocast_to(compute, x, module.weight):
            y = forward(module, x)
        return y, torch.autograd.grad(y, list(inputs.values()), output_gradient) if inputs else ()

    def read_values() -> list[tuple[str, Tensor]]:
        y, gradients = run()
        named = [(f"gradient of {name}", gradient) for name, gradient in zip(inputs, gradients, strict=True)]
        return [("output", y.detach()), *named]

    return Work(run, read_values)
