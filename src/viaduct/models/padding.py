"""TensorFlow's SAME padding, which depends on the size of the input and may differ between the two sides of an axis.

Along one axis of n pixels, with kernel k and stride s, the output has ceil(n / s) pixels. If windows begin at every
s-th pixel of the input, the last one begins n % s pixels before its end (s pixels if n % s is 0). The pixels that this
window lacks are added, half of them (rounded down) before the input and the others after it: a kernel of 3 with
stride 2 pads (0, 1) on an even axis and (1, 1) on an odd one.

Sizes are read from the tensor at run time, as plain numbers that `torch.compile` can guard on. The padding is computed
from the remainder n % s, because with ceil(n / s) `torch.compile` needs 39 seconds instead of 5 to trace a ResNet-50
whose input changes size. A convolution with unequal padding copies its input; most pools need no copy, because
PyTorch's ceiling mode lets their windows reach beyond the far edge.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Extent = int | tuple[int, int]  # height and width, or one number for both


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return how many pixels are added before and after an axis of this size."""
    pixels_in_last_window = size % stride or stride
    total = max(kernel - pixels_in_last_window, 0)
    return total // 2, total - total // 2


def max_pool_same(x_NCHW: Tensor, kernel: int, stride: int) -> Tensor:
    """Pool the maximum over SAME padding of minus infinity."""
    top, bottom = same_padding(x_NCHW.shape[2], kernel, stride)
    left, right = same_padding(x_NCHW.shape[3], kernel, stride)
    if stride == 1 and kernel % 2 == 0:
        # Ceiling mode adds no window here: it does so only where a stride of two or more leaves pixels over.
        x_NCHW = F.pad(x_NCHW, (0, right - left, 0, bottom - top), value=float("-inf"))
    return F.max_pool2d(x_NCHW, kernel, stride, padding=(top, left), ceil_mode=True)


def average_pool_same(x_NCHW: Tensor, kernel: int, stride: int) -> Tensor:
    """Average over the pixels of the image in each window of SAME padding, without the padded ones."""
    top, bottom = same_padding(x_NCHW.shape[2], kernel, stride)
    left, right = same_padding(x_NCHW.shape[3], kernel, stride)
    if x_NCHW.is_cuda and bottom + right and x_NCHW.is_contiguous(memory_format=torch.channels_last):
        return _average_pool_padded(x_NCHW, kernel, stride, (left, right, top, bottom))
    if stride == 1 and kernel % 2 == 0:
        # Ceiling mode adds no window here. Pad the near side as much as the far one, and drop the first window.
        pooled = F.avg_pool2d(x_NCHW, kernel, 1, padding=(bottom, right), count_include_pad=False)
        return pooled[:, :, bottom - top :, right - left :]
    return F.avg_pool2d(x_NCHW, kernel, stride, padding=(top, left), ceil_mode=True, count_include_pad=False)


def _average_pool_padded(x_NCHW: Tensor, kernel: int, stride: int, pads: tuple[int, int, int, int]) -> Tensor:
    """Pad with zeros, then pool without padding.

    On CUDA, PyTorch's pool with padding gives gradients of channels_last images to wrong pixels
    (pytorch/pytorch#188344; seen with torch 2.11).
    """
    ones = F.pad(x_NCHW.new_ones((1, 1, *x_NCHW.shape[2:]), dtype=torch.float32), pads)
    share = F.avg_pool2d(ones, kernel, stride)  # share of each window that lies on the image
    return F.avg_pool2d(F.pad(x_NCHW, pads), kernel, stride) / share.to(x_NCHW.dtype)


class SameMaxPool2d(nn.Module):
    """`max_pool_same` as a layer."""

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.stride = stride

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return max_pool_same(x_NCHW, self.kernel, self.stride)

    def extra_repr(self) -> str:
        return f"kernel={self.kernel}, stride={self.stride}"


class SameAveragePool2d(SameMaxPool2d):
    """`average_pool_same` as a layer."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return average_pool_same(x_NCHW, self.kernel, self.stride)


class SameConv2d(nn.Conv2d):
    """Convolution without bias over SAME padding of zeros."""

    def __init__(self, inputs: int, outputs: int, kernel: Extent, stride: Extent = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        top, bottom = same_padding(x_NCHW.shape[2], self.kernel_size[0], self.stride[0])
        left, right = same_padding(x_NCHW.shape[3], self.kernel_size[1], self.stride[1])
        if (top, left) != (bottom, right):
            x_NCHW = F.pad(x_NCHW, (0, right - left, 0, bottom - top))
        return F.conv2d(x_NCHW, self.weight, None, self.stride, (top, left), groups=self.groups)
