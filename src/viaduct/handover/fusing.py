"""Fusion of sums and ReLUs into the convolutions before them.

    fused = fuse_convolutions(fold_batch_norms(network, 224))
    choose_kernels(fused.to("cuda", torch.bfloat16), batch=8, size=224)

On NVIDIA cards cuDNN computes relu(conv(x) + y) in one kernel, on the CPU oneDNN does. Other devices run three
operations, and so does a CPU whose oneDNN does not support the dtype. `choose_kernels` decides for each layer.
A convolution stays as it is if its padding is not zeros or is given as text ("same").
"""

from __future__ import annotations

import operator
from importlib.util import find_spec
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from viaduct.handover.folding import find_layer, is_shared
from viaduct.models.padding import SameMaxPool2d, max_pool_same

ADDITIONS = (operator.add, operator.iadd, torch.add)
RELUS = (F.relu, torch.relu, torch.relu_, F.relu_)
Kernel = Literal["unfused", "cuDNN", "matmul", "stem", "oneDNN"]


class FusedConv2d(nn.Module):
    """Convolution, then a sum with another tensor if one is given, then ReLU if `relu` is True."""

    def __init__(self, conv: nn.Conv2d, *, relu: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(conv.weight.detach(), requires_grad=False)
        bias = conv.bias.detach().clone() if conv.bias is not None else None
        if bias is None and relu:  # kernels that apply ReLU need a bias
            bias = torch.zeros(conv.out_channels, dtype=conv.weight.dtype)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self.stride, self.padding = list(conv.stride), [int(pixels) for pixels in conv.padding]
        self.dilation, self.groups, self.relu = list(conv.dilation), conv.groups, relu
        self.kernel: Kernel = "unfused"
        self.packed: Tensor | None = None  # the weight in the layout of the kernel

    def forward(self, x_NCHW: Tensor, other_NCHW: Tensor | None = None) -> Tensor:
        return KERNELS[self.kernel](self, x_NCHW, other_NCHW)

    @property
    def conv_args(self) -> tuple[list[int], list[int], list[int], int]:
        """Arguments of torch's convolutions after weight and bias."""
        return self.stride, self.padding, self.dilation, self.groups

    @property
    def onednn_args(self) -> tuple[list[int], list[int], list[int], int]:
        """Arguments of oneDNN's convolutions, which take the padding before the stride."""
        return self.padding, self.stride, self.dilation, self.groups

    def choose_kernel(self, x_shape: torch.Size, summed: bool) -> None:
        """Choose the kernel for inputs of a shape on this device, and pack the weight for it.

        `summed` is True if another tensor is added.
        """
        device, dtype = self.weight.device.type, self.weight.dtype
        if device == "cpu" and has_onednn(dtype):
            self.packed = torch.ops.mkldnn._reorder_convolution_weight(self.weight, *self.onednn_args, list(x_shape))
            self.kernel = "oneDNN"
        elif device == "cuda" and not summed and self.is_stem(x_shape) and find_spec("triton") is not None:
            from viaduct.kernels.sizes import count_blocks
            from viaduct.kernels.stem import fold_weight

            # The kernel reads blocks of 2x2 pixels: padding is rounded up to whole blocks, which shifts the weight.
            offset = 2 * count_blocks(self.padding[0], 2) - self.padding[0]
            self.packed = fold_weight(self.weight, offset, dtype)
            self.kernel = "stem"
        elif device == "cuda" and self.is_pointwise() and not summed and self.bias is not None:
            self.packed, self.kernel = self.weight.flatten(1).t(), "matmul"
        elif device == "cuda" and self.relu:
            self.kernel = "cuDNN"

    def is_pointwise(self) -> bool:
        """Return True for a 1x1 convolution with stride 1 and without padding, which is a matrix product."""
        has_defaults = self.stride == [1, 1] and self.padding == [0, 0] and self.groups == 1
        return tuple(self.weight.shape[2:]) == (1, 1) and has_defaults

    def is_stem(self, x_shape: torch.Size) -> bool:
        """Return True for a 7x7 convolution with stride 2 over three channels that viaduct's stem kernel supports."""
        filters = self.weight.shape[0]
        if self.weight.dtype == torch.float32:
            return False
        fits = tuple(self.weight.shape[1:]) == (3, 7, 7) and self.stride == [2, 2] and filters in (32, 64, 128)
        is_even = x_shape[2] % 2 == 0 and x_shape[3] % 2 == 0
        return fits and is_even and self.relu and self.groups == 1 and self.padding == [3, 3]


def run_unfused(conv: FusedConv2d, x_NCHW: Tensor, other_NCHW: Tensor | None) -> Tensor:
    """Run convolution, sum and ReLU as separate operations."""
    y = F.conv2d(x_NCHW, conv.weight, conv.bias, *conv.conv_args)
    if other_NCHW is not None:
        y = y.add_(other_NCHW)
    return y.relu_() if conv.relu else y


def run_cudnn(conv: FusedConv2d, x_NCHW: Tensor, other_NCHW: Tensor | None) -> Tensor:
    """Run convolution, sum and ReLU as one operation of cuDNN."""
    if other_NCHW is None:
        return torch.cudnn_convolution_relu(x_NCHW, conv.weight, conv.bias, *conv.conv_args)
    return torch.cudnn_convolution_add_relu(x_NCHW, conv.weight, other_NCHW, 1.0, conv.bias, *conv.conv_args)


def run_matmul(conv: FusedConv2d, x_NCHW: Tensor, other_NCHW: Tensor | None) -> Tensor:
    """Run a 1x1 convolution as a matrix product; cuBLAS adds the bias and applies ReLU in the same kernel."""
    assert conv.packed is not None
    assert conv.bias is not None
    assert other_NCHW is None
    count, channels, height, width = x_NCHW.shape
    pixels = x_NCHW.permute(0, 2, 3, 1).reshape(-1, channels)
    product = torch._addmm_activation if conv.relu else torch.addmm  # _addmm_activation applies ReLU by default
    return product(conv.bias, pixels, conv.packed).view(count, height, width, -1).permute(0, 3, 1, 2)


def run_stem(conv: FusedConv2d, x_NCHW: Tensor, other_NCHW: Tensor | None) -> Tensor:
    """Run the first convolution of a network, with ReLU, in viaduct's kernel."""
    from viaduct.kernels.inference import stem_relu

    assert conv.packed is not None
    assert conv.bias is not None
    assert other_NCHW is None
    return stem_relu(x_NCHW, conv.packed, conv.bias, conv.padding[0])


def run_onednn(conv: FusedConv2d, x_NCHW: Tensor, other_NCHW: Tensor | None) -> Tensor:
    """Run convolution, sum and ReLU as one operation of oneDNN."""
    run: Any = torch.ops.mkldnn._convolution_pointwise
    operands = conv.packed, conv.bias, *conv.onednn_args
    if other_NCHW is None:
        return cast(Tensor, run(x_NCHW, *operands, "relu" if conv.relu else "none", [], ""))
    relu = "relu" if conv.relu else None  # this overload takes None for no activation, the other one "none"
    return cast(Tensor, run.binary(x_NCHW, other_NCHW, *operands, "add", 1.0, relu, [], ""))


KERNELS = {"unfused": run_unfused, "cuDNN": run_cudnn, "matmul": run_matmul, "stem": run_stem, "oneDNN": run_onednn}


class FastMaxPool2d(nn.Module):
    """Max pooling with SAME padding; with `use_triton` by viaduct's kernel for NVIDIA cards."""

    def __init__(self, pool: SameMaxPool2d) -> None:
        super().__init__()
        self.size, self.stride = pool.kernel, pool.stride
        self.use_triton = False

    def forward(self, x_NCHW: Tensor) -> Tensor:
        if not self.use_triton:
            return max_pool_same(x_NCHW, self.size, self.stride)
        from viaduct.kernels.inference import max_pool
        from viaduct.kernels.pooling import Pool

        return max_pool(x_NCHW, Pool(self.size, self.stride, average=False))


def fuse_convolutions(traced: fx.GraphModule) -> fx.GraphModule:
    """Fuse sums and ReLUs into the convolutions before them, in place; return the graph."""
    make_functional(traced)
    for node in list(traced.graph.nodes):
        if is_relu(traced, node):
            fuse_relu(traced, node)
    for node in list(traced.graph.nodes):
        if is_addition(node):
            fuse_addition(traced, node, relu_node=None)
    for node in list(traced.graph.nodes):
        if (conv := find_convolution(traced, node)) is not None:  # nothing is fused, but its weight is packed
            replace_node(traced, node, FusedConv2d(conv, relu=False), (node.args[0],))
        elif type(pool := find_layer(traced, node)) is SameMaxPool2d:
            replace_node(traced, node, FastMaxPool2d(pool), (node.args[0],))
    traced.graph.eliminate_dead_code()
    traced.graph.lint()
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def make_functional(traced: fx.GraphModule) -> None:
    """Turn in-place functions and methods into ordinary ones if their operand has no other user."""
    for node in traced.graph.nodes:
        operand = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        if operand is None or len(operand.users) > 1:
            continue
        if node.op == "call_method" and node.target in ("add_", "relu_"):
            node.target = node.target.removesuffix("_")
        elif node.op == "call_function" and node.kwargs.get("inplace"):
            node.kwargs = {**node.kwargs, "inplace": False}


def fuse_relu(traced: fx.GraphModule, node: fx.Node) -> None:
    """Fuse a ReLU into the convolution or the sum before it, unless that has other users."""
    operand = node.args[0]
    if not isinstance(operand, fx.Node) or len(operand.users) > 1:
        return
    if is_addition(operand):
        fuse_addition(traced, operand, relu_node=node)
    elif (conv := find_convolution(traced, operand)) is not None and can_move(traced, operand, node):
        replace_node(traced, node, FusedConv2d(conv, relu=True), (operand.args[0],))


def fuse_addition(traced: fx.GraphModule, node: fx.Node, relu_node: fx.Node | None) -> None:
    """Fuse a sum of two tensors of equal shape, and the ReLU after it, into a convolution that computes one of them.

    `relu_node` is that ReLU; None if no ReLU is fused.
    """
    first, second = node.args[:2]
    if not isinstance(first, fx.Node) or not isinstance(second, fx.Node) or first is second or node.kwargs:
        return
    shape = first.meta.get("sample_shape")  # set when the network was traced (folding.py)
    if shape is None or shape != second.meta.get("sample_shape"):
        return
    for conv_node, other in ((first, second), (second, first)):
        conv = find_convolution(traced, conv_node)
        if conv is not None and len(conv_node.users) == 1 and can_move(traced, conv_node, relu_node or node):
            fused = FusedConv2d(conv, relu=relu_node is not None)
            move_bias(traced, fused, other)
            replace_node(traced, relu_node or node, fused, (conv_node.args[0], other))
            return


def move_bias(traced: fx.GraphModule, fused: FusedConv2d, other: fx.Node) -> None:
    """Move the bias of the sum's other operand to the fused convolution, so that only one is added.

    Do nothing unless that operand is a convolution whose output and layer are used only here.
    """
    layer = find_layer(traced, other)
    if type(layer) is not nn.Conv2d or layer.bias is None or len(other.users) > 1 or is_shared(traced, other):
        return
    own_bias = 0 if fused.bias is None else fused.bias.data
    fused.bias = nn.Parameter(layer.bias.data + own_bias, requires_grad=False)
    layer.bias = None


def replace_node(traced: fx.GraphModule, node: fx.Node, layer: nn.Module, args: tuple[Any, ...]) -> None:
    """Replace a node by a call of a new layer."""
    name = f"fused_{node.name}"
    traced.add_submodule(name, layer)
    with traced.graph.inserting_before(node):
        fused = traced.graph.call_module(name, args)
    fused.meta["sample_shape"] = node.meta.get("sample_shape")
    node.replace_all_uses_with(fused)
    traced.graph.erase_node(node)


def find_convolution(traced: fx.GraphModule, node: fx.Node) -> nn.Conv2d | None:
    """Return the convolution that a node calls if FusedConv2d can replace it; else None."""
    layer = find_layer(traced, node)
    if type(layer) is not nn.Conv2d or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return None
    return layer


def can_move(traced: fx.GraphModule, conv_node: fx.Node, target: fx.Node) -> bool:
    """Return False if a node between a convolution and its new position modifies a value that others use, too."""
    node = conv_node.next
    while node is not target:
        operand = node.args[0] if node.args else None
        if isinstance(operand, fx.Node) and len(operand.users) > 1 and is_in_place(traced, node):
            return False
        node = node.next
    return True


def is_in_place(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Return True for a node that modifies its first argument."""
    if node.op == "call_module":
        return bool(getattr(find_layer(traced, node), "inplace", False))
    if node.op == "call_method":
        return str(node.target).endswith("_")
    name = getattr(node.target, "__name__", "")
    is_named_so = name.endswith("_") or node.target in (operator.iadd, operator.isub, operator.imul, operator.setitem)
    return node.op == "call_function" and (is_named_so or bool(node.kwargs.get("inplace")))


def is_relu(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Return True for a ReLU module, function or method.

    The method relu_ and functions with inplace=True do not count: make_functional left only those that fuse_relu
    refuses, because their operand has other users.
    """
    if node.op == "call_module":
        return isinstance(find_layer(traced, node), nn.ReLU)
    if node.op == "call_method":
        return node.target == "relu"
    return node.op == "call_function" and node.target in RELUS and not bool(node.kwargs.get("inplace"))


def is_addition(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target == "add" and len(node.args) == 2
    return node.op == "call_function" and node.target in ADDITIONS and len(node.args) == 2


@torch.inference_mode()
def choose_kernels(network: nn.Module, batch: int, size: int) -> None:
    """Run one batch of zeros to record the layers' input shapes; then choose each layer's kernel on this device."""
    weight = next(network.parameters())
    shapes: dict[FusedConv2d, tuple[torch.Size, bool]] = {}

    def note_shape(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, FusedConv2d)
        shapes[layer] = (inputs[0].shape, len(inputs) > 1)

    layers = [layer for layer in network.modules() if isinstance(layer, FusedConv2d)]
    hooks = [layer.register_forward_pre_hook(note_shape) for layer in layers]
    inputs = torch.zeros(batch, 3, size, size, dtype=weight.dtype, device=weight.device)
    network(inputs.contiguous(memory_format=torch.channels_last))
    for hook in hooks:
        hook.remove()
    for layer, (shape, summed) in shapes.items():
        layer.choose_kernel(shape, summed)
    for pool in network.modules():
        if isinstance(pool, FastMaxPool2d):
            pool.use_triton = weight.device.type == "cuda" and find_spec("triton") is not None


def has_onednn(dtype: torch.dtype) -> bool:
    """Return True if oneDNN's fused convolutions are in this build of torch and support this dtype on this CPU."""
    mkldnn: Any = torch.backends.mkldnn
    is_available = bool(mkldnn.is_available()) and hasattr(torch.ops.mkldnn, "_convolution_pointwise")
    if dtype == torch.float32:
        return is_available
    checks = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    is_supported = getattr(torch.ops.mkldnn, checks[dtype], None) if dtype in checks else None
    return is_available and is_supported is not None and bool(is_supported())
