"""Translate a network's graph to a TensorFlow 1 graph in NHWC layout, with its weights as constants.

    program = trace_network(classifier, request)                   core aten operators
    with tf.Graph().as_default():
        logits = translate(program, images_NHWC)

Only operators of TensorFlow 1.15 are used, so that converters for its graphs can read the result. An aten operator
without a translation raises CannotExport with its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx

from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.graph import (
    EXAMPLE_BATCH,
    CannotExport,
    build_network,
    explain_failure,
    export_module,
    silence_exporters,
)
from viaduct.handover.exporting.request import ExportRequest
from viaduct.models.padding import same_padding

# Operators that only check a value, and are left out.
IGNORED = ("aten._assert_tensor_metadata.default", "aten._assert_scalar.default", "aten.sym_constrain_range.default")
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
# TensorFlow's functions for elementwise operators without further arguments.
ELEMENTWISE = {
    "aten_mul": "multiply",
    "aten_div": "divide",
    "aten_relu": "nn.relu",
    "aten_sigmoid": "sigmoid",
    "aten_tanh": "tanh",
    "aten_exp": "exp",
    "aten_rsqrt": "math.rsqrt",
    "aten_sqrt": "sqrt",
}
Numbers = list[int] | tuple[int, ...]


def import_tensorflow() -> Any:
    """Import TensorFlow without its messages about the processor."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    return tf


def trace_network(classifier: Classifier, request: ExportRequest) -> torch.export.ExportedProgram:
    """Return the network as a graph of core aten operators."""
    example = torch.zeros(request.batch or EXAMPLE_BATCH, 3, classifier.size, classifier.size)
    sizes = {} if request.batch else {0: torch.export.Dim("batch", min=1)}
    program = export_module(build_network(classifier, request), example, sizes)
    with silence_exporters(), torch.no_grad():
        decomposed: torch.export.ExportedProgram = program.run_decompositions()
    return decomposed


@dataclass(frozen=True)
class Value:
    """TensorFlow tensor for a value of the graph, in NHWC layout if `is_nhwc`, otherwise in PyTorch's layout."""

    tensor: Any
    is_nhwc: bool = False


class Translator:
    """Translates a graph operator by operator.

    The method `aten_convolution` translates the operator aten::convolution, `python_getitem` Python's getitem. Such a
    method takes the node, and the operator's arguments with values in place of nodes.
    """

    def __init__(self, program: torch.export.ExportedProgram, images_NHWC: Any) -> None:
        self.tf = import_tensorflow()
        self.program = program
        self.images = Value(images_NHWC, is_nhwc=True)
        self.values: dict[fx.Node, Any] = {}
        self.weights = {
            name: (program.state_dict | dict(program.constants))[target]
            for kind in ("inputs_to_parameters", "inputs_to_buffers", "inputs_to_lifted_tensor_constants")
            for name, target in getattr(program.graph_signature, kind).items()
        }

    def run(self) -> Any:
        """Return the logits."""
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.weights.get(node.name, self.images)
            elif node.op == "call_function":
                self.values[node] = self.translate_call(node)
            elif node.op == "output":
                return self.to_nchw(self.values[node.args[0][0]])
        raise AssertionError("a graph ends with its output")

    def translate_call(self, node: fx.Node) -> Any:
        """Translate the call of an operator."""
        name = str(node.target)
        if name in IGNORED:
            return None
        translate_node = self.find_translation(node)
        if translate_node is None:
            raise CannotExport(
                f"the network uses {name}, which has no translation to TensorFlow.", "Try --to onnx or --to pt2."
            )
        arguments, keywords = fx.node.map_arg((node.args, node.kwargs), lambda argument: self.values[argument])
        explained = explain_failure(CannotExport, f"{name} cannot be translated to TensorFlow")
        with explained, self.tf.name_scope(make_scope_name(node)):
            return translate_node(node, *arguments, **keywords)

    def find_translation(self, node: fx.Node) -> Callable[..., Any] | None:
        """Return a function that translates a node: a method, or one for an operator in ELEMENTWISE."""
        target = node.target
        if isinstance(target, torch._ops.OpOverload):
            name = "aten_" + target._schema.name.partition("::")[2].strip("_")
        else:
            name = "python_" + getattr(target, "__name__", str(target))
        if name in ELEMENTWISE:
            operation = attrgetter(ELEMENTWISE[name])(self.tf)
            return lambda node, *values: self.apply_elementwise(operation, *values)
        method: Callable[..., Any] | None = getattr(self, name, None)
        return method

    # Layouts

    def wrap_value(self, value: Any) -> Value:
        """Wrap an argument in a Value; weights become constants, in PyTorch's layout, and numbers stay numbers."""
        if isinstance(value, Value):
            return value
        if isinstance(value, torch.Tensor):
            return Value(self.tf.constant(value.detach().contiguous().numpy()))
        return Value(value)

    def to_nchw(self, value: Any) -> Any:
        """Return a tensor in PyTorch's layout."""
        value = self.wrap_value(value)
        return self.tf.transpose(value.tensor, TO_NCHW) if value.is_nhwc else value.tensor

    def to_nhwc(self, value: Any) -> Any:
        """Return a tensor of rank 4 in NHWC layout."""
        value = self.wrap_value(value)
        return value.tensor if value.is_nhwc else self.tf.transpose(value.tensor, TO_NHWC)

    @staticmethod
    def get_shape(node: Any) -> list[Any]:
        """Return the shape of a node's first value; unknown sizes are symbols."""
        example = node.meta["val"]
        return list((example[0] if isinstance(example, list | tuple) else example).shape)

    def apply_elementwise(self, operation: Callable[..., Any], *values: Any) -> Value:
        """Apply an operation to tensors that broadcast: in NHWC layout if one has it and all have rank 4 or 0."""
        tensors = [self.wrap_value(value) for value in values]
        ranks = [getattr(getattr(value.tensor, "shape", None), "rank", 0) or 0 for value in tensors]
        is_nhwc = any(value.is_nhwc for value in tensors) and all(rank in (0, 4) for rank in ranks)
        arrange = self.to_nhwc if is_nhwc else self.to_nchw
        operands = [arrange(value) if rank else value.tensor for value, rank in zip(tensors, ranks, strict=True)]
        dtype = next((operand.dtype for operand in operands if hasattr(operand, "dtype")), None)
        if dtype is not None:  # numbers get the type of the tensors
            operands = [self.tf.constant(x, dtype) if isinstance(x, int | float) else x for x in operands]
        return Value(operation(*operands), is_nhwc)

    # Convolutions, norms, pools

    def aten_convolution(
        self,
        node: fx.Node,
        value: Any,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        stride: Numbers,
        padding: Numbers,
        dilation: Numbers,
        transposed: bool,
        output_padding: Numbers,
        groups: int,
    ) -> Value:
        if transposed or weight.dim() != 4:
            raise CannotExport(
                "a convolution that is transposed or not 2-dimensional has no translation to TensorFlow."
            )
        stride, padding, dilation = (make_pair(numbers) for numbers in (stride, padding, dilation))
        size = self.get_shape(node.args[0])[2:]
        extents = [(length - 1) * step + 1 for length, step in zip(weight.shape[2:], dilation, strict=True)]
        images = self.to_nhwc(value)
        same = all(same_padding(n, k, s) == (p, p) for n, k, s, p in zip(size, extents, stride, padding, strict=True))
        if not same and any(padding):
            images = self.tf.pad(images, [[0, 0], [padding[0]] * 2, [padding[1]] * 2, [0, 0]])
        options = {"strides": [1, *stride, 1], "padding": "SAME" if same else "VALID", "dilations": [1, *dilation, 1]}
        filters = weight.detach().permute(2, 3, 1, 0).contiguous().numpy()
        result = self.convolve(images, filters, groups, options)
        if bias is not None:
            result = self.tf.nn.bias_add(result, self.wrap_value(bias).tensor)
        return Value(result, is_nhwc=True)

    def convolve(self, images: Any, filters: Any, groups: int, options: dict[str, Any]) -> Any:
        """Convolve in groups with TensorFlow 1's operators: depthwise, or group by group."""
        tf, strides, dilations = self.tf, options["strides"], options["dilations"]
        if groups == 1:
            return tf.nn.conv2d(images, tf.constant(filters), **options)
        if filters.shape[2] == 1 and strides[1] == strides[2]:
            depthwise = tf.constant(np.ascontiguousarray(filters.reshape(*filters.shape[:2], groups, -1)))
            return tf.nn.depthwise_conv2d(images, depthwise, strides, options["padding"], None, dilations[1:3])
        pairs = zip(tf.split(images, groups, axis=3), np.split(filters, groups, axis=3), strict=True)
        outputs = [
            tf.nn.conv2d(group_images, tf.constant(np.ascontiguousarray(group_filters)), **options)
            for group_images, group_filters in pairs
        ]
        return tf.concat(outputs, axis=3)

    def aten_native_batch_norm_legit_no_training(
        self, node: fx.Node, value: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
    ) -> tuple[Value]:
        weight = torch.ones_like(mean) if weight is None else weight
        bias = torch.zeros_like(mean) if bias is None else bias
        if len(self.get_shape(node)) == 4:
            scale, offset, mean, variance = (
                self.wrap_value(part.detach().float()).tensor for part in (weight, bias, mean, variance)
            )
            normalised = self.tf.raw_ops.FusedBatchNormV3(
                x=self.to_nhwc(value),
                scale=scale,
                offset=offset,
                mean=mean,
                variance=variance,
                epsilon=eps,
                is_training=False,
            )
            return (Value(normalised.y, is_nhwc=True),)
        factor = weight.double() / torch.sqrt(variance.double() + eps)
        shift = bias.double() - mean.double() * factor
        shape = [1, -1, *[1] * (len(self.get_shape(node)) - 2)]
        factor, shift = (part.to(weight.dtype).reshape(shape) for part in (factor, shift))
        return (Value(self.to_nchw(value) * self.to_nchw(factor) + self.to_nchw(shift)),)

    def aten_max_pool2d_with_indices(
        self,
        node: fx.Node,
        value: Any,
        kernel: Numbers,
        stride: Numbers = (),
        padding: Numbers = (0,),
        dilation: Numbers = (1,),
        ceiling: bool = False,  # not used: the shape of the node's output shows it
    ) -> tuple[Value]:
        if set(dilation) != {1}:
            raise CannotExport("a dilated max pool has no translation to TensorFlow.")
        windows = Windows.from_node(node, kernel, stride, padding)
        images = self.to_nhwc(value)
        if not windows.is_same:
            images = self.tf.pad(images, windows.margins, constant_values=images.dtype.min)
            images = images[:, : windows.height, : windows.width, :]
        mode = "SAME" if windows.is_same else "VALID"
        return (Value(self.tf.nn.max_pool2d(images, windows.kernel, windows.stride, mode), is_nhwc=True),)

    def aten_avg_pool2d(
        self,
        node: fx.Node,
        value: Any,
        kernel: Numbers,
        stride: Numbers = (),
        padding: Numbers = (0,),
        ceiling: bool = False,
        count_padding: bool = True,
        divisor: int | None = None,
    ) -> Value:
        """Pool padded images; correct the result where PyTorch divides by another number than TensorFlow.

        The correction is computed by pooling an image of ones both ways.
        """
        windows = Windows.from_node(node, kernel, stride, padding)
        images = self.to_nhwc(value)
        if windows.is_same and (not count_padding or not any(windows.before)) and divisor is None:
            return Value(self.tf.nn.avg_pool2d(images, windows.kernel, windows.stride, "SAME"), is_nhwc=True)
        ones = torch.ones(1, 1, *self.get_shape(node.args[0])[2:])
        expected = F.avg_pool2d(ones, kernel, stride or None, padding, ceiling, count_padding, divisor)
        _, (top, bottom), (left, right), _ = windows.margins
        padded = F.pad(ones, (left, right, top, bottom))[:, :, : windows.height, : windows.width]
        factors = expected / F.avg_pool2d(padded, windows.kernel, windows.stride)
        images = self.tf.pad(images, windows.margins)[:, : windows.height, : windows.width, :]
        pooled = self.tf.nn.avg_pool2d(images, windows.kernel, windows.stride, "VALID")
        return Value(pooled * self.tf.constant(factors.permute(0, 2, 3, 1).numpy(), images.dtype), is_nhwc=True)

    def aten_adaptive_avg_pool2d(self, node: fx.Node, value: Any, size: Numbers) -> Value:
        height, width = self.get_shape(node.args[0])[2:]
        rows, columns = make_pair(size)
        if height % rows or width % columns:
            raise CannotExport(f"an adaptive pool of {height}x{width} to {rows}x{columns} has no translation.")
        window = (height // rows, width // columns)
        return Value(self.tf.nn.avg_pool2d(self.to_nhwc(value), window, window, "VALID"), is_nhwc=True)

    # Sums and products

    def aten_mm(self, node: fx.Node, left: Any, right: Any) -> Value:
        return Value(self.tf.matmul(self.to_nchw(left), self.to_nchw(right)))

    def aten_addmm(self, node: fx.Node, bias: Any, left: Any, right: Any) -> Value:
        return Value(self.tf.nn.bias_add(self.tf.matmul(self.to_nchw(left), self.to_nchw(right)), self.to_nchw(bias)))

    def aten_add(self, node: fx.Node, left: Any, right: Any, alpha: float = 1) -> Value:
        return self.apply_elementwise(self.tf.add, left, self.scale(right, alpha))

    def aten_sub(self, node: fx.Node, left: Any, right: Any, alpha: float = 1) -> Value:
        return self.apply_elementwise(self.tf.subtract, left, self.scale(right, alpha))

    def scale(self, value: Any, factor: float) -> Any:
        return value if factor == 1 else self.apply_elementwise(self.tf.multiply, value, factor)

    def aten_mean(self, node: fx.Node, *arguments: Any, **options: Any) -> Value:
        return self.reduce(self.tf.reduce_mean, node, *arguments)

    def aten_sum(self, node: fx.Node, *arguments: Any, **options: Any) -> Value:
        return self.reduce(self.tf.reduce_sum, node, *arguments)

    def reduce(
        self, operation: Any, node: fx.Node, value: Any, axes: Numbers | None = None, keep: bool = False
    ) -> Value:
        """Reduce over axes (None: all); height and width are reduced without a transposition from NHWC layout."""
        value = self.wrap_value(value)
        rank = len(self.get_shape(node.args[0]))
        axes = sorted(axis % rank for axis in axes or range(rank))
        if value.is_nhwc and axes == [2, 3]:
            return Value(operation(value.tensor, [1, 2], keepdims=keep), is_nhwc=keep)
        return Value(operation(self.to_nchw(value), axes, keepdims=keep))

    # Functions of one value

    def aten_leaky_relu(self, node: fx.Node, value: Any, slope: float = 0.01) -> Value:
        return self.apply_elementwise(lambda x: self.tf.nn.leaky_relu(x, slope), value)

    def aten_gelu(self, node: fx.Node, value: Any, approximate: str = "none") -> Value:
        return self.apply_elementwise(lambda x: self.tf.nn.gelu(x, approximate=approximate == "tanh"), value)

    def aten_hardtanh(self, node: fx.Node, value: Any, low: float = -1.0, high: float = 1.0) -> Value:
        return self.apply_elementwise(lambda x: self.tf.clip_by_value(x, low, high), value)

    def aten_clamp(self, node: fx.Node, value: Any, low: float | None = None, high: float | None = None) -> Value:
        bounded = value if low is None else self.apply_elementwise(self.tf.maximum, value, low)
        return self.wrap_value(bounded) if high is None else self.apply_elementwise(self.tf.minimum, bounded, high)

    def aten_to_copy(self, node: fx.Node, value: Any, dtype: torch.dtype | None = None, **options: Any) -> Value:
        value = self.wrap_value(value)
        tf_dtype = value.tensor.dtype if dtype is None else self.tf.as_dtype(str(dtype).removeprefix("torch."))
        return Value(self.tf.cast(value.tensor, tf_dtype), value.is_nhwc)

    def aten_clone(self, node: fx.Node, value: Any, **options: Any) -> Value:
        return self.wrap_value(value)

    # Shapes

    def aten_cat(self, node: fx.Node, values: list[Any], axis: int = 0) -> Value:
        axis %= len(self.get_shape(node))
        if all(self.wrap_value(value).is_nhwc for value in values):
            return Value(self.tf.concat([value.tensor for value in values], TO_NHWC.index(axis)), is_nhwc=True)
        return Value(self.tf.concat([self.to_nchw(value) for value in values], axis))

    def aten_constant_pad_nd(self, node: fx.Node, value: Any, amounts: list[int], fill: float = 0.0) -> Value:
        value = self.wrap_value(value)
        rank = len(self.get_shape(node))
        margins = [[0, 0] for _ in range(rank)]
        for index in range(len(amounts) // 2):
            margins[rank - 1 - index] = [amounts[2 * index], amounts[2 * index + 1]]
        if value.is_nhwc:
            margins = [margins[axis] for axis in TO_NHWC]
        return Value(self.crop_or_pad(value.tensor, margins, fill), value.is_nhwc)

    def crop_or_pad(self, tensor: Any, margins: list[list[int]], fill: float) -> Any:
        """Pad by positive margins and crop by negative ones."""
        if any(margin < 0 for ends in margins for margin in ends):
            ends = [slice(max(-before, 0), -max(-after, 0) or None) for before, after in margins]
            tensor = tensor[tuple(ends)]
            margins = [[max(before, 0), max(after, 0)] for before, after in margins]
        if fill == float("-inf"):
            fill = tensor.dtype.min
        return self.tf.pad(tensor, margins, constant_values=fill) if any(map(any, margins)) else tensor

    def aten_slice(
        self, node: fx.Node, value: Any, axis: int = 0, start: int | None = None, end: Any = None, step: int = 1
    ) -> Value:
        value = self.wrap_value(value)
        axis %= len(self.get_shape(node))
        position = TO_NHWC.index(axis) if value.is_nhwc else axis
        to_end = isinstance(end, int) and end >= 1 << 31  # torch.export's form of a slice without an end
        slices = [slice(None)] * position + [slice(start, None if to_end else end, step)]
        return Value(value.tensor[tuple(slices)], value.is_nhwc)

    def aten_permute(self, node: fx.Node, value: Any, axes: list[int]) -> Value:
        return Value(self.tf.transpose(self.to_nchw(value), [axis % len(axes) for axis in axes]))

    def aten_view(self, node: fx.Node, value: Any, shape: list[Any]) -> Value:
        return Value(self.tf.reshape(self.to_nchw(value), [getattr(size, "tensor", size) for size in shape]))

    aten_unsafe_view = aten_view

    def aten_unsqueeze(self, node: fx.Node, value: Any, axis: int) -> Value:
        return Value(self.tf.expand_dims(self.to_nchw(value), axis % len(self.get_shape(node))))

    def aten_squeeze(self, node: fx.Node, value: Any, axes: list[int]) -> Value:
        sizes = self.get_shape(node.args[0])
        squeezed = [
            axis % len(sizes) for axis in (axes if isinstance(axes, list | tuple) else [axes]) if sizes[axis] == 1
        ]
        return Value(self.tf.squeeze(self.to_nchw(value), squeezed) if squeezed else self.to_nchw(value))

    def aten_expand(self, node: fx.Node, value: Any, shape: list[Any], **options: Any) -> Value:
        tensor = self.to_nchw(value)
        known = self.tf.shape(tensor)
        new_axes = len(shape) - tensor.shape.rank
        sizes = [
            known[axis - new_axes] if size == -1 else getattr(size, "tensor", size) for axis, size in enumerate(shape)
        ]
        return Value(self.tf.broadcast_to(tensor, sizes))

    def aten_sym_size(self, node: fx.Node, value: Any, axis: int) -> Value:
        value = self.wrap_value(value)
        return Value(self.tf.shape(value.tensor)[TO_NHWC.index(axis) if value.is_nhwc else axis])

    def python_getitem(self, node: fx.Node, values: tuple[Any, ...], index: int) -> Any:
        if index >= len(values):
            raise CannotExport(f"output {index} of {node.args[0]} has no translation to TensorFlow.")
        return values[index]


def make_scope_name(node: fx.Node) -> str:
    """Return the path of an operator's layer as a name that TensorFlow accepts."""
    layers = list(node.meta.get("nn_module_stack", {}).values())
    path = str(layers[-1][0]) if layers else ""
    return re.sub(r"[^A-Za-z0-9_/-]", "_", path.replace(".", "/")).strip("_/") or "network"


def make_pair(numbers: Numbers) -> list[int]:
    """Return two numbers, for height and width; a single number is for both."""
    return [*numbers, *numbers] if len(numbers) == 1 else list(numbers)


@dataclass(frozen=True)
class Windows:
    """Windows of a pool, and the padding with which TensorFlow has the same windows as PyTorch."""

    kernel: list[int]
    stride: list[int]
    before: list[int]  # padding at the top and left
    after: list[int]  # padding at the bottom and right
    height: int  # height of the part of the padded images that windows cover
    width: int  # width of this part
    is_same: bool  # True if this padding is TensorFlow's SAME

    @classmethod
    def from_node(cls, node: fx.Node, kernel: Numbers, stride: Numbers, padding: Numbers) -> Windows:
        """Compute the padding from the shapes of a node's input and output."""
        kernel, stride, before = make_pair(kernel), make_pair(stride or kernel), make_pair(padding)
        size, outputs = Translator.get_shape(node.args[0])[2:], Translator.get_shape(node)[2:]
        needed = [(count - 1) * s + k for count, s, k in zip(outputs, stride, kernel, strict=True)]
        after = [max(n - length - b, 0) for n, length, b in zip(needed, size, before, strict=True)]
        padded = list(zip(before, after, strict=True))
        same = all(
            same_padding(length, k, s) == both and count == -(-length // s)
            for length, k, s, both, count in zip(size, kernel, stride, padded, outputs, strict=True)
        )
        return cls(kernel, stride, before, after, needed[0], needed[1], same)

    @property
    def margins(self) -> list[list[int]]:
        """Padding of images in NHWC layout, for tf.pad."""
        return [[0, 0], [self.before[0], self.after[0]], [self.before[1], self.after[1]], [0, 0]]


def translate(program: torch.export.ExportedProgram, images_NHWC: Any) -> Any:
    """Return the logits of images in the current TensorFlow graph."""
    return Translator(program, images_NHWC).run()
