"""Convolutions that also add and apply ReLU, in one kernel where the device has one.

    fused = fuse_convolutions(fold_batch_norms(network, 224))
    pack_weights(fused.to("cuda", torch.bfloat16))

relu(conv(x) + y) reads and writes its result once instead of three times. On NVIDIA cards cuDNN does it in one kernel,
on the CPU oneDNN; other devices run the same steps one after the other.
"""

from __future__ import annotations

import operator
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from viaduct.handover.folding import find_layer

ADDITIONS = (operator.add, operator.iadd, torch.add)
RELUS = (F.relu, torch.relu, torch.relu_, F.relu_)


class FusedConv2d(nn.Module):
    """A convolution, then a sum with another tensor where one is given, then ReLU where `relu` says so."""

    def __init__(self, conv: nn.Conv2d, *, relu: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(conv.weight.detach(), requires_grad=False)
        bias = torch.zeros(conv.out_channels, dtype=conv.weight.dtype) if conv.bias is None else conv.bias.detach()
        self.bias = nn.Parameter(bias, requires_grad=False)
        self.stride, self.padding = list(conv.stride), [int(cells) for cells in conv.padding]
        self.dilation, self.groups, self.relu = list(conv.dilation), conv.groups, relu
        self.packed: Tensor | None = None  # the weight in oneDNN's own layout

    def forward(self, x_NCHW: Tensor, other_NCHW: Tensor | None = None) -> Tensor:
        if x_NCHW.is_cuda and self.relu:
            return self.run_cudnn(x_NCHW, other_NCHW)
        if self.packed is not None:
            return self.run_onednn(x_NCHW, other_NCHW)
        made = F.conv2d(x_NCHW, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        if other_NCHW is not None:
            made = made.add_(other_NCHW)
        return made.relu_() if self.relu else made

    def run_cudnn(self, x_NCHW: Tensor, other_NCHW: Tensor | None) -> Tensor:
        shape = (self.stride, self.padding, self.dilation, self.groups)
        if other_NCHW is None:
            return torch.cudnn_convolution_relu(x_NCHW, self.weight, self.bias, *shape)
        return torch.cudnn_convolution_add_relu(x_NCHW, self.weight, other_NCHW, 1.0, self.bias, *shape)

    def run_onednn(self, x_NCHW: Tensor, other_NCHW: Tensor | None) -> Tensor:
        shape = (self.padding, self.stride, self.dilation, self.groups)
        after = "relu" if self.relu else "none"
        run: Any = torch.ops.mkldnn._convolution_pointwise
        if other_NCHW is None:
            return cast(Tensor, run(x_NCHW, self.packed, self.bias, *shape, after, [], ""))
        unary = "relu" if self.relu else None
        return cast(Tensor, run.binary(x_NCHW, other_NCHW, self.packed, self.bias, *shape, "add", 1.0, unary, [], ""))

    def pack(self, batch: int, height: int, width: int) -> None:
        """Bring the weight into the layout that oneDNN computes in; else it would do so at every call."""
        size = [batch, self.weight.shape[1] * self.groups, height, width]
        shape = (self.padding, self.stride, self.dilation, self.groups)
        self.packed = torch.ops.mkldnn._reorder_convolution_weight(self.weight, *shape, size)


def fuse_convolutions(traced: fx.GraphModule) -> fx.GraphModule:
    """Fuse sums and ReLUs into the convolutions before them, in place; return the graph."""
    make_functional(traced)
    for node in list(traced.graph.nodes):
        if is_relu(traced, node):
            fuse_relu(traced, node)
    for node in list(traced.graph.nodes):
        if is_addition(node):
            fuse_addition(traced, node, relu=None)
    for node in list(traced.graph.nodes):
        if type(conv := find_layer(traced, node)) is nn.Conv2d:  # to have its weight packed, too
            replace_node(traced, node, FusedConv2d(conv, relu=False), (node.args[0],))
    traced.graph.eliminate_dead_code()
    traced.graph.lint()
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def make_functional(traced: fx.GraphModule) -> None:
    """Let operations that work in place make new tensors, where nobody else reads the old ones.

    What is pure may be moved: a convolution to the place where the sum with its output is taken.
    """
    for node in traced.graph.nodes:
        operand = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        if operand is None or len(operand.users) > 1:
            continue
        if node.op == "call_method" and node.target in ("add_", "relu_"):
            node.target = node.target.removesuffix("_")
        elif node.op == "call_function" and node.kwargs.get("inplace"):
            node.kwargs = {**node.kwargs, "inplace": False}


def fuse_relu(traced: fx.GraphModule, node: fx.Node) -> None:
    """Fuse a ReLU into the convolution, or the sum with a convolution, that it follows."""
    before = node.args[0]
    if not isinstance(before, fx.Node) or len(before.users) > 1:
        return
    if is_addition(before):
        fuse_addition(traced, before, relu=node)
    elif type(conv := find_layer(traced, before)) is nn.Conv2d:
        replace_node(traced, node, FusedConv2d(conv, relu=True), (before.args[0],))


def fuse_addition(traced: fx.GraphModule, node: fx.Node, relu: fx.Node | None) -> None:
    """Fuse a sum of two tensors of one shape, and the ReLU behind it, into a convolution that makes one of them."""
    first, second = node.args[:2]
    if not isinstance(first, fx.Node) or not isinstance(second, fx.Node) or first is second or node.kwargs:
        return
    if first.meta.get("sample_shape") != second.meta.get("sample_shape"):
        return
    for own, other in ((first, second), (second, first)):
        conv = find_layer(traced, own)
        if type(conv) is nn.Conv2d and len(own.users) == 1:
            replace_node(traced, relu or node, FusedConv2d(conv, relu=relu is not None), (own.args[0], other))
            return


def replace_node(traced: fx.GraphModule, node: fx.Node, layer: FusedConv2d, args: tuple[Any, ...]) -> None:
    name = f"fused_{node.name}"
    traced.add_submodule(name, layer)
    with traced.graph.inserting_before(node):
        fused = traced.graph.call_module(name, args)
    fused.meta["sample_shape"] = node.meta.get("sample_shape")
    node.replace_all_uses_with(fused)
    traced.graph.erase_node(node)


def is_relu(traced: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return isinstance(find_layer(traced, node), nn.ReLU)
    if node.op == "call_method":
        return node.target == "relu"
    return node.op == "call_function" and node.target in RELUS and not node.kwargs.get("inplace")


def is_addition(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target == "add" and len(node.args) == 2
    return node.op == "call_function" and node.target in ADDITIONS and len(node.args) == 2


@torch.inference_mode()
def pack_weights(network: fx.GraphModule, batch: int, size: int) -> None:
    """Pack the weights of fused convolutions on the CPU for inputs of this shape; nothing elsewhere."""
    weight = next(network.parameters())
    if weight.device.type != "cpu" or not has_onednn(weight.dtype):
        return
    sizes: dict[FusedConv2d, torch.Size] = {}
    hooks = [
        layer.register_forward_pre_hook(lambda layer, inputs: sizes.update({layer: inputs[0].shape}))
        for layer in network.modules()
        if isinstance(layer, FusedConv2d)
    ]
    network(torch.zeros(batch, 3, size, size, dtype=weight.dtype).to(memory_format=torch.channels_last))
    for hook in hooks:
        hook.remove()
    for layer, shape in sizes.items():
        layer.pack(shape[0], shape[2], shape[3])


def has_onednn(dtype: torch.dtype) -> bool:
    """Return True if oneDNN's fused convolutions are in this build of torch and compute in a precision."""
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_convolution_pointwise")
    if dtype == torch.float32:
        return there
    check = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}.get(dtype, "")
    able = getattr(torch.ops.mkldnn, check, None) if check else None
    return there and able is not None and bool(able())
