"""Folding of batch norms into the convolutions before them, for inference.

    folded = fold_batch_norms(network, size=224)        a torch.fx GraphModule; the network is not changed

In evaluation a batch norm with running statistics is a constant scale and shift, which can be folded into the weight
and bias of the convolution before it. A norm after another layer (the first one of a version 2 block) remains.
"""

from __future__ import annotations

import copy
from operator import attrgetter, setitem
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate
from torch.nn.utils.fusion import fuse_conv_bn_weights

from viaduct.devices.base import summarise_error
from viaduct.errors import ViaductError
from viaduct.models.padding import SameConv2d, SameMaxPool2d, same_padding

LEAVES = (nn.Conv2d, SameMaxPool2d)  # traced as one operation, also their subclasses; fx does so for torch.nn's modules


class CannotTrace(ViaductError):
    """The forward pass of a network cannot be traced as a graph."""


class SampleProxy(fx.Proxy):
    """Value of the graph that knows its result for a sample input, so that traced code may read its shape."""

    sample: Any = None

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes as numbers, except for the batch."""
        sample_shape = self.sample.shape
        return (self.size(0), *sample_shape[1:]) if len(sample_shape) else ()


class LayerTracer(fx.Tracer):
    """Tracer of a network's layers, for images of one size and batches of any size."""

    def __init__(self, twin: nn.Module, inputs: Tensor) -> None:
        super().__init__()
        self.twin, self.inputs = twin, inputs  # copy of the network that computes the sample values, and its input

    def is_leaf_module(self, module: nn.Module, qualified_name: str) -> bool:
        return isinstance(module, LEAVES) or super().is_leaf_module(module, qualified_name)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return SampleProxy(node, self)

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *more: Any, **options: Any) -> fx.Proxy:
        """Record an operation, and compute it for the sample; fusing.py reads `sample_shape`."""
        proxy: fx.Proxy = super().create_proxy(kind, target, args, kwargs, *more, **options)
        if isinstance(proxy, SampleProxy):
            proxy.sample = self.compute_sample(kind, target, *map_aggregate((args, kwargs), find_sample))
            proxy.node.meta["sample_shape"] = getattr(proxy.sample, "shape", None)
        return proxy

    def compute_sample(self, kind: str, target: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of an operation on samples."""
        if kind == "placeholder":
            return self.inputs
        if kind == "get_attr":
            return attrgetter(target)(self.twin)
        if kind == "call_method":
            return getattr(args[0], target)(*args[1:], **kwargs)
        function = self.twin.get_submodule(target).forward if kind == "call_module" else target
        return function(*args, **kwargs) if callable(function) else None


def find_sample(value: Any) -> Any:
    """Return the sample result of a value of the graph; other values unchanged."""
    if isinstance(value, SampleProxy):
        return value.sample
    return getattr(value.root.sample, value.attr) if isinstance(value, fx.proxy.Attribute) else value


def trace_layers(network: nn.Module, size: int) -> fx.GraphModule:
    """Trace a copy of a network in evaluation mode as a graph of its layers; raise CannotTrace if that fails.

    Convolutions with TensorFlow's padding become plain ones, for inputs of this size.
    """
    network = copy.deepcopy(network).eval()
    inputs = torch.zeros(2, 3, size, size)  # one image would hide operations that mix images
    try:
        with torch.inference_mode(False), torch.no_grad():
            traced = fx.GraphModule(network, LayerTracer(copy.deepcopy(network), inputs).trace(network))
    except Exception as error:  # the code of the user's network may raise anything
        raise CannotTrace(f"the network cannot be traced: {summarise_error(error)}.") from error
    traced.graph.eliminate_dead_code(is_impure_node=has_side_effect)
    for node in list(traced.graph.nodes):
        if isinstance(layer := find_layer(traced, node), SameConv2d):
            fix_padding(traced, node, layer)
    traced.recompile()
    return traced


def has_side_effect(node: fx.Node) -> bool:
    """Return True for a node that must stay even if its output is unused: it works in place, or is input or output."""
    if node.op in ("placeholder", "output"):
        return True
    in_place = node.op == "call_method" and str(node.target).endswith("_")
    return in_place or bool(node.kwargs.get("inplace")) or (node.op == "call_function" and node.target is setitem)


def fold_batch_norms(network: nn.Module, size: int) -> fx.GraphModule:
    """Return a graph in which batch norms are folded into the convolutions before them.

    A convolution whose output another node uses, too, keeps its batch norm.
    """
    traced = trace_layers(network, size)
    for node in list(traced.graph.nodes):
        norm, conv = find_layer(traced, node), find_single_input(node)
        if not isinstance(norm, nn.BatchNorm2d) or norm.running_mean is None or conv is None:
            continue
        layer = find_layer(traced, conv)
        if type(layer) is nn.Conv2d and len(conv.users) == 1:
            set_layer(traced, conv, fold_norm(layer, norm))
            node.replace_all_uses_with(conv)
            traced.graph.erase_node(node)
    traced.graph.lint()
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def fold_norm(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    """Return a convolution that also does what the norm does; its weight and bias are computed in float64."""
    folded = copy.deepcopy(conv)
    weight, bias = fuse_conv_bn_weights(
        conv.weight.double(),
        None if conv.bias is None else conv.bias.double(),
        norm.running_mean.double(),  # type: ignore[union-attr]
        norm.running_var.double(),  # type: ignore[union-attr]
        norm.eps,
        None if norm.weight is None else norm.weight.double(),
        None if norm.bias is None else norm.bias.double(),
    )
    folded.weight = nn.Parameter(weight.to(conv.weight.dtype), requires_grad=False)
    folded.bias = nn.Parameter(bias.to(conv.weight.dtype), requires_grad=False)
    return folded


def fix_padding(traced: fx.GraphModule, node: fx.Node, layer: SameConv2d) -> None:
    """Replace a convolution whose padding depends on its input's size by a plain one.

    Asymmetric padding becomes a separate operation before the convolution.
    """
    height, width = node.args[0].meta["sample_shape"][2:]  # type: ignore[union-attr]
    kernel, stride = layer.kernel_size, layer.stride
    top, bottom = same_padding(height, kernel[0], stride[0])
    left, right = same_padding(width, kernel[1], stride[1])
    plain = nn.Conv2d(
        layer.in_channels,
        layer.out_channels,
        (kernel[0], kernel[1]),
        (stride[0], stride[1]),
        padding=(top, left),
        groups=layer.groups,
        bias=layer.bias is not None,
        device="meta",
    )
    plain.weight, plain.bias = layer.weight, layer.bias
    if (top, left) != (bottom, right):
        with traced.graph.inserting_before(node):
            pads = (0, right - left, 0, bottom - top)
            padded = traced.graph.call_function(torch.nn.functional.pad, (node.args[0], pads))
        node.args = (padded,)
    set_layer(traced, node, plain)


def set_layer(traced: fx.GraphModule, node: fx.Node, layer: nn.Module) -> None:
    """Replace the layer that a node calls; other nodes keep the old layer."""
    if is_shared(traced, node):
        node.target = f"{node.target}_{node.name}"
    traced.add_submodule(str(node.target), layer)


def is_shared(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Return True if another node calls the same layer."""
    return bool(sum(other.op == "call_module" and other.target == node.target for other in traced.graph.nodes) > 1)


def find_layer(traced: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    """Return the layer that a node calls, or None."""
    return traced.get_submodule(str(node.target)) if node.op == "call_module" else None


def find_single_input(node: fx.Node) -> fx.Node | None:
    """Return the node whose output is the only argument of this one, or None."""
    return node.args[0] if len(node.args) == 1 and isinstance(node.args[0], fx.Node) and not node.kwargs else None
