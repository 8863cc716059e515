"""Workaround for a heap overrun in oneDNN, PyTorch's CPU library: the weight gradient of strided 1x1 convolutions.

oneDNN copies the pixels that such a convolution reads into a workspace of pixels x input channels. For each pixel it
advances by a whole vector block: 8 channels with AVX2, 16 with AVX-512. With fewer input channels it writes past the
end, in fp32 and bf16, for channels_last images whose height and width are multiples of the stride. Seen with torch 2.4
to 2.15 (oneDNN 3.4 to 3.13); docs/cpu.md has the measurements. The workaround selects the pixels first and gives
oneDNN a convolution of stride 1.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

import torch
from torch import Tensor

WIDEST_BLOCK = 16  # channels in a vector block of AVX-512
_X86 = ("x86_64", "amd64", "i386", "i686")
_CONVOLUTION_BACKWARD = torch.ops.aten.convolution_backward.default
_TORCH_KERNEL = torch._C.DispatchKey.CompositeExplicitAutograd

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


@cache
def replace_faulty_weight_gradients() -> torch.library.Library | None:
    """Register `compute_gradients` as the backward kernel of convolutions on the CPU, in this process.

    Return the registration; on other processors than x86 do nothing and return None. Layers, torch.nn.functional and
    compiled graphs all reach the kernel, because they call it through the dispatcher.
    """
    if platform.machine().lower() not in _X86:
        return None
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    library.impl("convolution_backward", compute_gradients, "CPU")  # type: ignore[no-untyped-call]
    return library  # `cache` keeps it: if this object were deleted, the kernel would be unregistered


def compute_gradients(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: list[bool],
) -> Gradients:
    """Compute aten::convolution_backward without the overrun.

    For an affected convolution the gradients of weight and bias are computed with stride 1 on the selected pixels.
    oneDNN has one kernel for both, so a trained bias with a frozen weight is affected too. `output_mask` says which
    gradients are needed: input, weight, bias.
    """
    fixed = (transposed, output_padding, groups)  # arguments that are the same in every call below
    if transposed or not any(output_mask[1:]) or not is_affected(weight, stride, padding, groups):
        return _call_torch_kernel(gradient, x, weight, bias_sizes, stride, padding, dilation, *fixed, output_mask)
    strides = stride * (x.dim() - 2) if len(stride) == 1 else stride  # one number stands for all spatial dimensions
    index = (slice(None), slice(None), *(slice(None, None, step) for step in strides))
    selected = x[index]
    weight_and_bias = [False, *output_mask[1:]]
    _, weight_gradient, bias_gradient = _call_torch_kernel(
        gradient, selected, weight, bias_sizes, [1], padding, dilation, *fixed, weight_and_bias
    )
    if not output_mask[0]:
        return None, weight_gradient, bias_gradient
    only_input = [True, False, False]
    input_gradient, _, _ = _call_torch_kernel(gradient, x, weight, None, stride, padding, dilation, *fixed, only_input)
    return input_gradient, weight_gradient, bias_gradient


def is_affected(weight: Tensor, stride: list[int], padding: list[int], groups: int) -> bool:
    """Return True for a strided 1x1 convolution, without padding or groups, with fewer channels than a vector block."""
    return (
        max(stride) > 1
        and weight.shape[1] < WIDEST_BLOCK
        and weight.shape[2:].numel() == 1
        and groups == 1
        and max(padding) == 0
    )


def _call_torch_kernel(*arguments: Any) -> Gradients:
    gradients: Gradients = _CONVOLUTION_BACKWARD._op_dk(_TORCH_KERNEL, *arguments)
    return gradients
