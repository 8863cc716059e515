"""Floating-point operations and bytes of an operator, from the shapes and dtypes in a trace.

    count_work(Call("aten::mm", [[64, 512], [512, 10]], ["float32", "float32"], ["", ""])).flops      # 655360

A multiplication with its addition is two operations. Bytes count the inputs and outputs, each read or written once;
real kernels may move fewer (caches) or more. A trace has no shapes of outputs, so each formula derives them. In `Work`
None means unknown, as for operators without a formula.

torch.utils.flop_counter would import torch, does not count bytes, and counts the backward pass of grouped convolutions
as if they were not grouped (torch 2.13).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

Shape = list[int]

DTYPE_BYTES = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One call of an operator in a trace; each list has an entry for each argument."""

    name: str
    shapes: list[Any]  # [] for arguments that are no tensors
    dtypes: list[str]  # "" for arguments that are no tensors
    values: list[str]  # "[1, 1]", "False"; "" for tensors

    def shape(self, number: int) -> Shape | None:
        """Return the shape of a tensor argument; None for any other argument."""
        if number >= len(self.shapes) or number >= len(self.dtypes) or self.dtypes[number] not in DTYPE_BYTES:
            return None
        shape = self.shapes[number]
        return shape if isinstance(shape, list) and all(isinstance(size, int) for size in shape) else None

    def value(self, number: int) -> Any:
        """Return an argument that is not a tensor; None if the trace does not have it."""
        try:
            return ast.literal_eval(self.values[number])
        except (IndexError, SyntaxError, ValueError):
            return None

    def itemsize(self, number: int = 0) -> int | None:
        """Return the bytes of one value of a tensor argument."""
        return DTYPE_BYTES.get(self.dtypes[number]) if number < len(self.dtypes) else None

    def count_bytes(self, number: int) -> int:
        """Return the bytes of a tensor argument; 0 for any other argument."""
        shape, itemsize = self.shape(number), self.itemsize(number)
        return prod(shape) * itemsize if shape is not None and itemsize else 0

    @property
    def input_bytes(self) -> int:
        return sum(map(self.count_bytes, range(len(self.shapes))))


@dataclass(frozen=True)
class Work:
    """Work of an operator.

    Operators of one `family` may call each other, such as aten::conv2d and aten::convolution. Then only the innermost
    one counts.
    """

    flops: float | None = None
    bytes: float | None = None
    family: str = ""


NOTHING_KNOWN = Work()
Formula = Callable[[Call], Work]


def count_work(call: Call) -> Work:
    """Return the work of one call; NOTHING_KNOWN for operators without a formula and for damaged shapes."""
    formula = FORMULAS.get(call.name.removeprefix("aten::"))
    if formula is None:
        return NOTHING_KNOWN
    try:
        return formula(call)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        return NOTHING_KNOWN


def count_convolution(
    call: Call, stride_at: int, padding_at: int, dilation_at: int | None = None, transposed_at: int | None = None
) -> Work:
    """Return the work of a convolution; the parameters are positions of its arguments, None for one that it lacks.

    The bytes of a transposed convolution are unknown.
    """
    images, weight, itemsize = call.shape(0), call.shape(1), call.itemsize()
    is_transposed = call.value(transposed_at) if transposed_at is not None else False
    dilation = call.value(dilation_at) if dilation_at is not None else 1
    settings = [call.value(stride_at), call.value(padding_at), dilation]
    if not images or not weight or itemsize is None or is_transposed is None or None in settings:
        return NOTHING_KNOWN
    products = prod(weight[1:])  # for each value of the output; transposed: of the input
    if is_transposed:
        return Work(2 * prod(images) * products, None, "convolution")
    output = [images[0], weight[0], *find_output_sides(images[2:], weight[2:], *settings)]
    return Work(2 * prod(output) * products, call.input_bytes + prod(output) * itemsize, "convolution")


def find_output_sides(sides: Shape, kernel: Shape, stride: Any, padding: Any, dilation: Any) -> Shape:
    """Return height and width of a convolution's or a pooling's output."""
    settings = [spread_value(value, len(sides)) for value in (stride, padding, dilation)]
    dimensions = zip(sides, kernel, *settings, strict=True)
    return [
        (length + 2 * pad - spacing * (size - 1) - 1) // step + 1 for length, size, step, pad, spacing in dimensions
    ]


def spread_value(value: Any, count: int) -> list[int]:
    """Return a list of `count` values: torch accepts one number, or a list of one, for all dimensions."""
    values = value if isinstance(value, list) else [value]
    return values * count if len(values) == 1 else values


def count_convolution_backward(call: Call, mask_at: int = 10, transposed_at: int | None = 7) -> Work:
    """Return the work of a convolution's gradients, each as much as the forward pass.

    `mask_at` and `transposed_at` are positions of arguments; the mask says whether input and weight need a gradient.
    """
    gradient, images, weight = call.shape(0), call.shape(1), call.shape(2)
    transposed, mask = call.value(transposed_at) if transposed_at is not None else False, call.value(mask_at)
    if not gradient or not images or not weight or mask is None or transposed is None:
        return NOTHING_KNOWN
    forward = 2 * prod(images if transposed else gradient) * prod(weight[1:])
    gradients = bool(mask[0]) + bool(mask[1])
    # Each gradient reads the output's gradient and the other operand, and writes a tensor like its own operand.
    return Work(forward * gradients, gradients * sum(map(call.count_bytes, range(3))), "convolution")


def count_product(call: Call, left: int = 0, is_linear: bool = False) -> Work:
    """Return the work of a matrix product, batched or not, of the arguments `left` and `left + 1`.

    With `is_linear` the second is the weight of a linear layer, (outputs, inputs).
    """
    first, second, itemsize = call.shape(left), call.shape(left + 1), call.itemsize(left)
    if not first or not second or itemsize is None:
        return NOTHING_KNOWN
    inner, columns = (second[-1], second[0]) if is_linear else second[-2:]
    if first[-1] != inner:
        return NOTHING_KNOWN
    output = prod(first[:-1]) * columns
    return Work(2 * output * inner, call.input_bytes + output * itemsize, "product")


def count_attention(call: Call) -> Work:
    """Return the work of the two products of attention, forward; a causal mask may skip up to half of it."""
    query, key, value, itemsize = call.shape(0), call.shape(1), call.shape(2), call.itemsize()
    if not query or not key or not value or itemsize is None:
        return NOTHING_KNOWN
    scores = prod(query[:-1]) * key[-2]
    output = prod(query[:-1]) * value[-1]
    return Work(2 * scores * (query[-1] + value[-1]), call.input_bytes + output * itemsize, "attention")


def count_by_value(call: Call, operations: int, family: str) -> Work:
    """Return the work of `operations` for each value of the first input; the result has the input's shape."""
    shape = call.shape(0)
    if shape is None:
        return NOTHING_KNOWN
    return Work(float(operations * prod(shape)), call.input_bytes + call.count_bytes(0), family)


def count_pooling(call: Call) -> Work:
    """Return the work of a pooling: one operation for each value under its kernel. `ceil_mode` counts as False."""
    images, kernel, stride, padding = call.shape(0), call.value(1), call.value(2), call.value(3)
    itemsize = call.itemsize()
    if not images or kernel is None or stride is None or padding is None or itemsize is None:
        return NOTHING_KNOWN
    dilation = call.value(4) if "max" in call.name else 1
    kernel = spread_value(kernel, 2)
    output = prod(images[:-2]) * prod(find_output_sides(images[-2:], kernel, stride or kernel, padding, dilation))
    indices = 8 * output if "indices" in call.name else 0
    return Work(float(output * prod(kernel)), call.count_bytes(0) + output * itemsize + indices, "pooling")


def count_elementwise(call: Call) -> Work:
    """Return the work of one operation for each value of the result, which has the broadcast shape of the inputs.

    The result has the widest dtype of the inputs; that of a comparison is bool.
    """
    shapes = {number: shape for number in range(len(call.shapes)) if (shape := call.shape(number)) is not None}
    if not shapes:
        return NOTHING_KNOWN
    output = prod(broadcast_shapes(list(shapes.values())))
    is_comparison = call.name.removeprefix("aten::") in COMPARISONS
    itemsize = 1 if is_comparison else max(call.itemsize(number) or 0 for number in shapes)
    return Work(float(output), call.input_bytes + output * itemsize, "elementwise")


def broadcast_shapes(shapes: list[Shape]) -> Shape:
    """Return the broadcast shape, as torch.broadcast_shapes does."""
    result: Shape = []
    for shape in shapes:
        longest = max(len(shape), len(result))
        padded = [[1] * (longest - len(sides)) + sides for sides in (shape, result)]
        result = [other if size == 1 else size for size, other in zip(*padded, strict=True)]
    return result


def count_copy(call: Call) -> Work:
    """Return the bytes of a copy from the second argument into the first; values may repeat by broadcasting."""
    if call.shape(0) is None or call.shape(1) is None:
        return NOTHING_KNOWN
    return Work(0.0, call.count_bytes(0) + call.count_bytes(1), "copy")


def count_fill(call: Call) -> Work:
    """Return the bytes that a fill writes."""
    return NOTHING_KNOWN if call.shape(0) is None else Work(0.0, call.count_bytes(0), "fill")


def count_reduction(call: Call) -> Work:
    """Return the work of one operation for each value of the input; the small output is not counted."""
    shape = call.shape(0)
    return NOTHING_KNOWN if shape is None else Work(float(prod(shape)), call.count_bytes(0), "reduction")


def count_lists(call: Call, operations: int) -> Work:
    """Return the work of an optimizer's update of lists of tensors, with `operations` for each value.

    Its bytes are unknown, because a trace has no dtypes of lists.
    """
    shapes = call.shapes[0]
    if not isinstance(shapes, list) or not shapes or not all(isinstance(shape, list) for shape in shapes):
        return NOTHING_KNOWN
    return Work(float(operations * sum(map(prod, shapes))), None, "optimizer")


def make_formula_table() -> dict[str, Formula]:
    """Return the formula of each operator, by its name without aten::."""
    convolutions = ("convolution", "_convolution", "convolution_overrideable")
    table: dict[str, Formula] = dict.fromkeys(
        convolutions, lambda call: count_convolution(call, stride_at=3, padding_at=4, dilation_at=5, transposed_at=6)
    )
    table |= {
        "mkldnn_convolution": lambda call: count_convolution(call, stride_at=4, padding_at=3, dilation_at=5),
        "cudnn_convolution": lambda call: count_convolution(call, stride_at=3, padding_at=2, dilation_at=4),
        "_slow_conv2d_forward": lambda call: count_convolution(call, stride_at=4, padding_at=5),
        "convolution_backward": count_convolution_backward,
        "_slow_conv2d_backward": lambda call: count_convolution_backward(call, mask_at=6, transposed_at=None),
        **dict.fromkeys(("linear", "mkldnn_linear"), lambda call: count_product(call, is_linear=True)),
        **dict.fromkeys(("mm", "bmm"), count_product),
        **dict.fromkeys(("addmm", "baddbmm"), lambda call: count_product(call, left=1)),
        **dict.fromkeys(ATTENTIONS, count_attention),
        **dict.fromkeys(POOLINGS, count_pooling),
        **dict.fromkeys(ELEMENTWISE, count_elementwise),
        **dict.fromkeys(REDUCTIONS, count_reduction),
        "copy_": count_copy,
        **dict.fromkeys(("fill_", "zero_"), count_fill),
        "_fused_sgd_": lambda call: count_lists(call, 4),
        **dict.fromkeys(("_fused_adam_", "_fused_adamw_"), lambda call: count_lists(call, 12)),
    }
    backward = (f"{name}_backward" for name in NORMALISATIONS)
    in_place = (f"{name}_" for name in ELEMENTWISE)
    # Forward: moments, scale and shift. Backward: two sums, then the gradient.
    table |= dict.fromkeys(NORMALISATIONS, lambda call: count_by_value(call, 8, "normalisation"))
    table |= dict.fromkeys(backward, lambda call: count_by_value(call, 10, "normalisation"))
    # Maximum, subtraction, exponentials, sum and division.
    table |= dict.fromkeys(("_softmax", "_log_softmax"), lambda call: count_by_value(call, 5, "softmax"))
    table |= dict.fromkeys(in_place, lambda call: count_by_value(call, 1, "elementwise"))
    return table


ATTENTIONS = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)
NORMALISATIONS = (
    "native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update",
    "native_layer_norm", "native_group_norm",
)  # fmt: skip
POOLINGS = ("max_pool2d_with_indices", "avg_pool2d")
COMPARISONS = ("eq", "ne", "lt", "gt", "le", "ge", "logical_and")  # their results are bool
ELEMENTWISE = (
    *COMPARISONS,
    "add", "sub", "mul", "div", "neg", "abs", "exp", "log", "sqrt", "rsqrt", "pow", "relu", "sigmoid",
    "tanh", "gelu", "silu", "clamp", "clamp_min", "hardtanh", "leaky_relu", "threshold_backward",
    "sigmoid_backward", "tanh_backward", "gelu_backward", "silu_backward", "addcmul", "addcdiv", "lerp",
    "where", "maximum", "minimum", "bitwise_and", "reciprocal", "erf", "sign",
)  # fmt: skip
REDUCTIONS = ("sum", "mean", "max", "min", "amax", "amin", "argmax", "norm", "linalg_vector_norm", "var", "std", "prod")
FORMULAS = make_formula_table()
