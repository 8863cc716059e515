"""The cells of AmoebaNet-D, and their operations.

A cell starts from two states: state 0 is made from the output of the cell before it, state 1 from the output of the
second cell before it. It computes five more states, each the sum of two operations on earlier ones, and concatenates
some of the seven. Whatever reads a cell's output would begin with a ReLU, so the cell applies it once.

Attributes are named like the TensorFlow scopes, with `conv_` before names that begin with a digit. Names of operations
(1x1, none, 1x7_7x1 …) are those of the reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.models.padding import Extent, SameAveragePool2d, SameConv2d, SameMaxPool2d

Operation = tuple[str, int]  # its name, and the index of the state that it is applied to


@dataclass(frozen=True)
class Plan:
    """Structure of a cell."""

    combinations: tuple[tuple[Operation, Operation], ...]  # the two operations whose sum is state 2, 3, 4, 5 and 6
    output: tuple[int, ...]  # indices of the states that the output concatenates


NORMAL = Plan(
    combinations=(
        (("1x1", 1), ("max 3x3", 1)),
        (("none", 1), ("1x7_7x1", 0)),
        (("1x1", 0), ("1x7_7x1", 0)),
        (("max 3x3", 2), ("none", 2)),
        (("avg 3x3", 1), ("1x1", 5)),
    ),
    output=(0, 3, 4, 6),
)
REDUCTION = Plan(
    combinations=(
        (("max 2x2", 0), ("max 3x3", 0)),
        (("none", 2), ("3x3", 1)),
        (("1x7_7x1", 2), ("max 3x3", 2)),
        (("none", 3), ("max 2x2", 1)),
        (("avg 3x3", 2), ("1x1", 3)),
    ),
    output=(4, 5, 6),
)


def conv(inputs: int, outputs: int, kernel: Extent = 1, stride: Extent = 1) -> nn.Conv2d:
    """Return a convolution without bias, padded as TensorFlow's SAME."""
    if kernel == 1:
        return nn.Conv2d(inputs, outputs, 1, stride, bias=False)
    return SameConv2d(inputs, outputs, kernel, stride)


def norm(channels: int) -> nn.BatchNorm2d:
    """Return batch normalisation with the reference's epsilon and momentum."""
    return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.1)


def relu_in_place(x_NCHW: Tensor) -> Tensor:
    """Apply ReLU in place, to a tensor that nothing else reads."""
    return F.relu(x_NCHW, inplace=True)


class Pointwise(nn.Module):
    """Operation "1x1"; also "none" where stride or channels change."""

    def __init__(self, inputs: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv_1x1 = conv(inputs, filters, 1, stride)
        self.bn_1 = norm(filters)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        result: Tensor = self.bn_1(self.conv_1x1(F.relu(x_NCHW)))
        return result


class PointwiseAfterPool(nn.Sequential):
    """Operations "max" and "avg" where channels change: a pool, then a convolution; no ReLU between them."""

    def __init__(self, pool: nn.Module, inputs: int, filters: int) -> None:
        super().__init__()
        self.pool = pool
        self.conv_1x1 = conv(inputs, filters)
        self.bn_1 = norm(filters)


class Squeezed3x3(nn.Module):
    """Operation "3x3", in a quarter of the channels."""

    def __init__(self, inputs: int, filters: int, stride: int) -> None:
        super().__init__()
        self.pre_1x1 = conv(inputs, filters // 4)
        self.pre_bn = norm(filters // 4)
        self.conv_3x3 = conv(filters // 4, filters // 4, 3, stride)
        self.bn = norm(filters // 4)
        self.post_1x1 = conv(filters // 4, filters)
        self.post_bn = norm(filters)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        squeezed = relu_in_place(self.pre_bn(self.pre_1x1(F.relu(x_NCHW))))
        squeezed = relu_in_place(self.bn(self.conv_3x3(squeezed)))
        result: Tensor = self.post_bn(self.post_1x1(squeezed))
        return result


class Squeezed1x7And7x1(nn.Module):
    """Operation "1x7_7x1", in a quarter of the channels: along rows, then along columns, each with the stride."""

    def __init__(self, inputs: int, filters: int, stride: int) -> None:
        super().__init__()
        self.pre_1x1 = conv(inputs, filters // 4)
        self.pre_bn = norm(filters // 4)
        self.conv_1x7 = conv(filters // 4, filters // 4, (1, 7), (1, stride))
        self.bn_1x7_7x1 = norm(filters // 4)
        self.conv_7x1 = conv(filters // 4, filters // 4, (7, 1), (stride, 1))
        self.bn = norm(filters // 4)
        self.post_1x1 = conv(filters // 4, filters)
        self.post_bn = norm(filters)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        squeezed = relu_in_place(self.pre_bn(self.pre_1x1(F.relu(x_NCHW))))
        squeezed = relu_in_place(self.bn_1x7_7x1(self.conv_1x7(squeezed)))
        squeezed = relu_in_place(self.bn(self.conv_7x1(squeezed)))
        result: Tensor = self.post_bn(self.post_1x1(squeezed))
        return result


def build_operation(name: str, inputs: int, filters: int, stride: int) -> nn.Module:
    """Return the layer of an operation, given by its name in a Plan."""
    if name.startswith(("max", "avg")):
        layer = SameMaxPool2d if name.startswith("max") else SameAveragePool2d
        pool = layer(int(name[-1]), stride)
        return pool if inputs == filters else PointwiseAfterPool(pool, inputs, filters)
    if name == "none" and stride == 1 and inputs == filters:
        return nn.Identity()
    kinds = {"none": Pointwise, "1x1": Pointwise, "3x3": Squeezed3x3, "1x7_7x1": Squeezed1x7And7x1}
    return kinds[name](inputs, filters, stride)


def drop_path(x_NCHW: Tensor, keep: Tensor) -> Tensor:
    """Keep each example with probability `keep`, scaled by 1 / keep; set the others to zero."""
    draw = torch.rand(x_NCHW.shape[0], 1, 1, 1, device=x_NCHW.device, dtype=torch.float32)
    scale = torch.floor(keep + draw) / keep
    return x_NCHW * scale.to(x_NCHW.dtype)


class Combination(nn.Module):
    """New state of a cell: an operation on one state plus an operation on another."""

    def __init__(self, operations: tuple[Operation, Operation], channels: list[int], filters: int, stride: int) -> None:
        super().__init__()
        self.operations = operations
        # Only states 0 and 1, the cell's inputs, have the full size.
        self.left, self.right = (
            build_operation(name, channels[state], filters, stride if state < 2 else 1) for name, state in operations
        )

    def forward(self, states: list[Tensor], keep: Tensor | None) -> Tensor:
        return self.apply_operation(0, self.left, states, keep) + self.apply_operation(1, self.right, states, keep)

    def apply_operation(self, index: int, layer: nn.Module, states: list[Tensor], keep: Tensor | None) -> Tensor:
        """Apply one of the two operations, with drop path unless it is "none"."""
        name, state = self.operations[index]
        result: Tensor = layer(states[state])
        return result if keep is None or name == "none" else drop_path(result, keep)


class Entry(nn.Sequential):
    """State 0: the output of the cell before, with its channels converted to this cell's by a 1x1 convolution."""

    def __init__(self, inputs: int, filters: int) -> None:
        super().__init__()
        self.conv_1x1 = conv(inputs, filters)
        self.beginning_bn = norm(filters)


class PreviousEntry(nn.Sequential):
    """State 1 if the cell before kept the size of the image: the channels are converted by a 1x1 convolution."""

    def __init__(self, inputs: int, filters: int) -> None:
        super().__init__()
        self.prev_1x1 = conv(inputs, filters)
        self.prev_bn = norm(filters)


class FactorisedReduction(nn.Module):
    """State 1 if the cell before halved the image: half the channels from even rows and columns, half from odd ones.

    An image of odd size has one odd row and column less than even ones; a row and a column of zeros are added.
    """

    def __init__(self, inputs: int, filters: int) -> None:
        super().__init__()
        self.path1_conv = conv(inputs, filters // 2, 1, stride=2)
        self.path2_conv = conv(inputs, filters // 2)
        self.final_path_bn = norm(filters)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        even = self.path1_conv(x_NCHW)
        odd = x_NCHW[:, :, 1::2, 1::2]
        padding = (0, x_NCHW.shape[3] % 2, 0, x_NCHW.shape[2] % 2)
        if any(padding):
            odd = F.pad(odd, padding)
        result: Tensor = self.final_path_bn(torch.cat((even, self.path2_conv(odd)), dim=1))
        return result


@dataclass(frozen=True)
class Previous:
    """Sizes of the output of the second cell before a cell, from which the cell makes its state 1."""

    channels: int
    is_twice_as_large: bool  # True if the cell between the two halved the image

    def build_entry(self, filters: int) -> nn.Module:
        """Return the layer that makes state 1 of this output."""
        return (FactorisedReduction if self.is_twice_as_large else PreviousEntry)(self.channels, filters)


class Cell(nn.Module):
    """Two entry states and five combinations; the output is some of these seven states, concatenated.

    The first cell has no second cell before it (`previous` is None): its state 1 is its input before the ReLU.
    """

    def __init__(self, plan: Plan, inputs: int, previous: Previous | None, filters: int, stride: int) -> None:
        super().__init__()
        self.plan = plan
        self.outputs = filters * len(plan.output)
        self.entry = Entry(inputs, filters)
        self.previous = nn.Identity() if previous is None else previous.build_entry(filters)
        channels = [filters, inputs if previous is None else filters, *[filters] * len(plan.combinations)]
        combinations = [Combination(pair, channels, filters, stride) for pair in plan.combinations]
        self.combinations = nn.ModuleList(combinations)

    def forward(self, x_NCHW: Tensor, previous_NCHW: Tensor, keep: Tensor | None) -> Tensor:
        states = [self.entry(x_NCHW), self.previous(previous_NCHW)]
        for combination in self.combinations:
            states.append(combination(states, keep))
        return relu_in_place(torch.cat([states[index] for index in self.plan.output], dim=1))
