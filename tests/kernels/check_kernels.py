"""Our kernels against the same arithmetic in float64: relative errors of everything that they compute.

The tests beside this file call it in Triton's interpreter (interpreter.py), which is slow, so their cases are small.
On a card tests/gpu calls the same, larger and in bf16. Inputs are drawn anew in every run.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernels.foreign_blocks import FOREIGN
from viaduct.kernels import grouped, grouped_cuda, norm, pooling, stem
from viaduct.kernels.amoebanet import list_stem_readers
from viaduct.kernels.cell import CellPass
from viaduct.kernels.fuse import fuse
from viaduct.kernels.halves import FactorisedReductionFunction
from viaduct.kernels.pooling import Pool
from viaduct.kernels.terms import OutputBuffer, Term, sum_terms
from viaduct.models.amoebanet import AmoebaNet
from viaduct.models.amoebanet_cells import NORMAL, REDUCTION, Cell, Previous
from viaduct.models.padding import SameConv2d, average_pool_same, max_pool_same, same_padding
from viaduct.models.resnet import Bottleneck, Style

Errors = dict[str, float]


def measure_distance(ours: Tensor, reference: Tensor) -> float:
    ours, reference = ours.detach().double(), reference.detach().double()
    return float((ours - reference).norm() / reference.norm().clamp_min(1e-30))


def find_wrong(errors: Errors, allowed: float = 1e-5) -> Errors:
    """Return the errors that are too large, or not finite."""
    return {name: error for name, error in errors.items() if not error < allowed}


def draw_images(*shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, device=device).to(dtype).contiguous(memory_format=torch.channels_last)


def lively(layer: nn.BatchNorm2d) -> nn.BatchNorm2d:
    """A norm whose weights and statistics are not what they begin with."""
    for tensor in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
        nn.init.uniform_(tensor, 0.5, 1.5)
    return layer


def check_stem(
    same: bool,
    size: int = 16,
    count: int = 2,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    own: bool = True,
) -> Errors:
    """`own` False: PyTorch's own arithmetic in that precision, to see what rounding alone does."""
    images = draw_images(count, 3, size, size, device=device, dtype=dtype)
    conv = SameConv2d(3, 64, 7, 2) if same else nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
    layer = lively(nn.BatchNorm2d(64)).to(device)
    conv = conv.to(device)
    conv.weight.data = conv.weight.data.to(dtype).float()  # so that only the arithmetic differs
    true_conv, true_norm = copy.deepcopy(conv).double(), copy.deepcopy(layer).double()
    padding = same_padding(size, 7, 2)[0] if same else 3
    pool = same_padding(size // 2, 3, 2)[0]
    if own:
        y = stem.StemFunction.apply(images, conv.weight, layer.weight, layer.bias, layer, padding, pool, dtype)
    else:
        with torch.autocast(device, dtype):
            y = max_pool_same(F.relu(layer(conv(images))), 3, 2)
    true = max_pool_same(F.relu(true_norm(true_conv(images.double()))), 3, 2)
    gradient = draw_images(*true.shape, device=device, dtype=dtype)
    y.backward(gradient)
    true.backward(gradient.double())
    return {
        "output": measure_distance(y, true),
        "weight": measure_distance(conv.weight.grad, true_conv.weight.grad),
        "gamma": measure_distance(layer.weight.grad, true_norm.weight.grad),
        "beta": measure_distance(layer.bias.grad, true_norm.bias.grad),
        "running mean": measure_distance(layer.running_mean, true_norm.running_mean),
        "running variance": measure_distance(layer.running_var, true_norm.running_var),
    }


def run_on_nan(part: str) -> list[tuple[int, int]]:
    """Return how many outputs are NaN and how many there are, on our kernels and in PyTorch, for one NaN as input."""
    if part == "stem":
        conv, layer = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64)
        x = draw_images(2, 3, 16, 16)
        x[0, 0, 0, 0] = float("nan")
        ours = stem.StemFunction.apply(x, conv.weight, layer.weight, layer.bias, layer, 3, 1, torch.float32)
        theirs = F.max_pool2d(F.relu(layer(conv(x))), 3, 2, 1)
    else:
        block = nn.Sequential(Bottleneck(64, 16, 1, Style())).to(memory_format=torch.channels_last)
        x = draw_images(2, 64, 8, 8)
        x[0, 0, 0, 0] = float("nan")
        theirs = copy.deepcopy(block)(x)
        assert fuse(block, torch.float32) == 1
        ours = block(x)
    return [(int(y.isnan().sum()), y.numel()) for y in (ours, theirs)]


def check_blocks(
    kind: type[Bottleneck], same: bool, filters: int, size: int = 8, count: int = 2, device: str = "cpu",
    dtype: torch.dtype = torch.float32, own: bool = True, mean: bool = False,
) -> Errors:  # fmt: skip
    """A strided block with a projection and one without, one behind the other; `mean`: and a mean over the pixels."""
    style = Style(pad_same=same)
    network = nn.Sequential(kind(32, filters, 2, style, True), kind(filters * kind.expansion, filters, 1, style))
    return compare_network(network, 32, size, count, device, dtype, own, mean)


def check_foreign(
    kind: str, size: int = 8, count: int = 2, device: str = "cpu", dtype: torch.dtype = torch.float32, own: bool = True
) -> Errors:
    """The same of blocks as other packages write them."""
    return compare_network(FOREIGN[kind](), 32, size, count, device, dtype, own)


def compare_network(
    network: nn.Module, channels: int, size: int, count: int, device: str, dtype: torch.dtype, own: bool,
    mean: bool = False,
) -> Errors:  # fmt: skip
    """Two blocks on our kernels against the same blocks in float64."""
    network = network.to(device, memory_format=torch.channels_last)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            lively(layer)
        elif isinstance(layer, nn.Conv2d):
            layer.weight.data = layer.weight.data.to(dtype).float()
    reference = copy.deepcopy(network).double()
    assert not own or fuse(network, dtype) == 2
    x = draw_images(count, channels, size, size, device=device, dtype=dtype).requires_grad_()
    true_x = x.detach().double().requires_grad_()
    with torch.autocast(device, dtype, enabled=not own):
        y = network(x)
    true = reference(true_x)
    if mean:
        y, true = (made.mean((2, 3), keepdim=True) for made in (y, true))
    gradient = draw_images(*true.shape, device=device, dtype=dtype)
    y.backward(gradient)
    true.backward(gradient.double())
    return {
        "output": measure_distance(y, true),
        "input": measure_distance(x.grad, true_x.grad),
        **tensors_apart(network, reference),
    }


def check_grouped(
    channels: int, groups: int, stride: int, size: int, same: bool = False, count: int = 2, device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Errors:  # fmt: skip
    """By whom a network would have it done."""
    conv, x, weight, gradient, true = grouped_case(channels, groups, stride, (size, size), same, count, device, dtype)
    made = grouped.forward(x, weight, conv)
    at_input, at_weight = grouped.backward(norm.view_as_rows(gradient), x, weight, conv)
    found = {"output": made, "input": at_input, "weight": at_weight}
    return {name: measure_distance(found[name], true[name]) for name in found}


def check_grouped_cuda(
    channels: int, groups: int, stride: int, size: tuple[int, int], same: bool = False, count: int = 2,
    dtype: torch.dtype = torch.bfloat16,
) -> Errors:  # fmt: skip
    """The kernels in CUDA C++, which only a card can run: all three ways."""
    conv, x, weight, gradient, true = grouped_case(channels, groups, stride, size, same, count, "cuda", dtype)
    layer = grouped.make_layer(x, conv)
    return {
        "output": measure_distance(grouped_cuda.run_convolution(x, weight, layer), true["output"]),
        "input": measure_distance(grouped_cuda.run_input_gradient(gradient, weight, layer), true["input"]),
        "weight": measure_distance(grouped_cuda.run_weight_gradient(gradient, x, layer), true["weight"]),
    }


def grouped_case(
    channels: int, groups: int, stride: int, size: tuple[int, int], same: bool, count: int, device: str,
    dtype: torch.dtype,
) -> tuple[nn.Conv2d, Tensor, Tensor, Tensor, dict[str, Tensor]]:  # fmt: skip
    """A layer, its input, its weights, a gradient, and what float64 makes of them."""
    conv: nn.Conv2d = nn.Conv2d(channels, channels, 3, stride, 1, groups=groups, bias=False)
    if same:
        conv = SameConv2d(channels, channels, 3, stride, groups)
    conv = conv.to(device)
    weight = conv.weight.detach().to(dtype).contiguous(memory_format=torch.channels_last)
    x = draw_images(count, channels, *size, device=device, dtype=dtype)
    reference = copy.deepcopy(conv).double()
    reference.weight.data = weight.double()
    true_x = x.double().requires_grad_()
    output = reference(true_x)
    gradient = draw_images(*output.shape, device=device, dtype=dtype)
    output.backward(gradient.double())
    return conv, x, weight, gradient, {"output": output, "input": true_x.grad, "weight": reference.weight.grad}


def check_norm(rows: int, channels: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Errors:
    """Far from zero, where sums of squares would cancel."""
    x = (torch.randn(rows, channels, device=device) + (100 if dtype == torch.float32 else 4)).to(dtype)
    layer = lively(nn.BatchNorm2d(channels)).to(device)
    reference = copy.deepcopy(layer).double()
    found = norm.compute_norm(x, layer)
    true_x = x.double().requires_grad_()
    true = F.relu(reference(true_x[:, :, None, None])[:, :, 0, 0])
    gradient = torch.randn(rows, channels, device=device).to(dtype)
    true.backward(gradient.double())
    sums = norm.sum_gradient(gradient, x, found)
    return {
        "output": measure_distance(norm.apply_scale_shift(x, found), true),
        "input": measure_distance(norm.compute_input_gradient(gradient, x, found, sums, relu=True), true_x.grad),
        "gamma": measure_distance(sums.product, reference.weight.grad),
        "beta": measure_distance(sums.total, reference.bias.grad),
        "running variance": measure_distance(layer.running_var, reference.running_var),
    }


def check_parts(parts: int, channels: int = 20) -> Errors:
    """A norm, and two sums, from partial ones of other kernels: of parts with different numbers of rows."""
    layer = lively(nn.BatchNorm2d(channels))
    reference = copy.deepcopy(layer).double()
    pieces = [torch.randn(2 + index % 3, channels) + 100 for index in range(parts)]
    table = norm.Parts.empty(parts, channels, pieces[0])
    for index, piece in enumerate(pieces):
        mean = piece.double().mean(0)
        table.means[index], table.squared_deviations[index] = mean, (piece - mean).square().sum(0)
        table.counts[index] = len(piece)
    x = torch.cat(pieces).double()
    found = norm.combine_parts(table, len(x), layer)
    true = reference(x[:, :, None, None])[:, :, 0, 0]
    sums_table = torch.randn(2, parts, channels) + 1
    sums = norm.sum_parts(sums_table)
    return {
        "output": measure_distance(x * found.scale + found.shift, true),
        "running mean": measure_distance(layer.running_mean, reference.running_mean),
        "running variance": measure_distance(layer.running_var, reference.running_var),
        "batches": abs(int(layer.num_batches_tracked) - 1),
        "total": measure_distance(sums.total, sums_table[0].double().sum(0)),
        "product": measure_distance(sums.product, sums_table[1].double().sum(0)),
    }


def check_halves(height: int, width: int, channels: int = 8, filters: int = 6, count: int = 2) -> Errors:
    """A factorised reduction, whose odd pixels beyond the edge of an odd size are zeros."""
    x = draw_images(count, channels, height, width).requires_grad_()
    weights = [torch.randn(filters, channels, 1, 1).requires_grad_() for _ in range(2)]
    true_x, *true_weights = (tensor.detach().double().requires_grad_() for tensor in (x, *weights))
    y = FactorisedReductionFunction.apply(x, [weight.detach() for weight in weights], *weights)
    pixels = true_x[:, :, ::2, ::2], F.pad(true_x[:, :, 1:, 1:], (0, 1, 0, 1))[:, :, ::2, ::2]
    true = torch.cat([F.conv2d(part, weight) for part, weight in zip(pixels, true_weights, strict=True)], 1)
    gradient = draw_images(*true.shape)
    y.backward(gradient)
    true.backward(gradient.double())
    pairs = zip(("input", "even weight", "odd weight"), (x, *weights), (true_x, *true_weights), strict=True)
    return {"output": measure_distance(y, true)} | {
        name: measure_distance(first.grad, second.grad) for name, first, second in pairs
    }


def check_pool(
    kind: str, size: int, stride: int, height: int, width: int, channels: int = 24, count: int = 2,
    device: str = "cpu", dtype: torch.dtype = torch.float32,
) -> Errors:  # fmt: skip
    """The gradient arrives as some of the channels of a larger tensor, as it does from a concatenation."""
    x = draw_images(count, channels, height, width, device=device, dtype=dtype).requires_grad_()
    true_x = x.detach().double().contiguous().requires_grad_()  # NCHW: pytorch/pytorch#188344
    reference = {"max": max_pool_same, "average": average_pool_same, "whole": lambda x, *how: F.avg_pool2d(x, *how)}
    y = pooling.apply_pool(x, Pool(size, stride, average=kind != "max", valid_only=kind == "whole"))
    true = reference[kind](true_x, size, stride)
    gradient = draw_images(count, channels + 16, *true.shape[2:], device=device, dtype=dtype)[:, 8:-8]
    y.backward(gradient)
    true.backward(gradient.double())
    return {"output": measure_distance(y, true), "input": measure_distance(x.grad, true_x.grad)}


def check_state(
    kinds: str, readers: list[bool], channels: int = 24, size: int = 6, count: int = 2, home: bool = False,
    dropped: bool = False, device: str = "cpu", dtype: torch.dtype = torch.float32,
) -> Errors:  # fmt: skip
    """A sum of terms, one letter each: a norm, a max or average pool of 3x3, or an image as it is."""
    xs = [draw_images(count, channels, size, size, device=device, dtype=dtype).requires_grad_() for _ in kinds]
    layers = [centre_norm(nn.BatchNorm2d(channels)).to(device) if kind == "n" else None for kind in kinds]
    true_xs = [x.detach().double().contiguous().requires_grad_() for x in xs]  # NCHW: pytorch/pytorch#188344
    true_layers = [copy.deepcopy(layer) for layer in layers]
    pools = {"m": Pool(3, 1, average=False), "a": Pool(3, 1, average=True)}
    keeps = [torch.linspace(0.0, 2.0, count, device=device) if dropped else None for _ in kinds]
    terms = [
        Term(x, layer, pools.get(kind), keep) for x, layer, kind, keep in zip(xs, layers, kinds, keeps, strict=True)
    ]
    made = sum_terms(terms, readers, OutputBuffer(3).make_slice(1, terms) if home else None)
    true = sum(plain_term(*case) for case in zip(true_xs, true_layers, kinds, keeps, strict=True))
    results = [F.relu(true) if cut else true for cut in readers]
    gradients = [draw_images(count, channels + 8, size, size, device=device, dtype=dtype)[:, 8:] for _ in readers]
    torch.autograd.backward(made, gradients)
    torch.autograd.backward(results, [gradient.double() for gradient in gradients])
    inputs = [*xs, *(p for layer in layers if layer for p in layer.parameters())]
    trues = [*true_xs, *(p for layer in true_layers if layer for p in layer.parameters())]
    outputs, gradients = zip(made, results, strict=True), zip(inputs, trues, strict=True)
    return {f"output {index}": measure_distance(*pair) for index, pair in enumerate(outputs)} | {
        f"gradient {index}": measure_distance(first.grad, second.grad)
        for index, (first, second) in enumerate(gradients)
    }


def plain_term(x: Tensor, layer: nn.BatchNorm2d | None, kind: str, keep: Tensor | None) -> Tensor:
    pools = {"m": max_pool_same, "a": average_pool_same}
    made = layer.double()(x) if layer is not None else pools[kind](x, 3, 1) if kind in pools else x
    return made if keep is None else made * keep.double()[:, None, None, None]


def centre_norm(layer: nn.BatchNorm2d) -> nn.BatchNorm2d:
    """A lively norm behind which a ReLU cuts off about half; else sums of biases would cancel to nothing."""
    nn.init.uniform_(lively(layer).bias, -0.5, 0.5)
    return layer


def check_cells(
    size: int = 9, filters: int = 16, count: int = 2, keep: float | None = None, seed: int = 0, device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Errors:  # fmt: skip
    """A reduction and two normal cells behind it, so that every way into a cell is gone. The same numbers every time:
    of so many, one may lie so near to zero that float32 and float64 see it on either side of a ReLU."""
    torch.manual_seed(seed)
    cells = prepare_network(chain(filters), dtype).to(device, memory_format=torch.channels_last)
    reference = copy.deepcopy(cells).double()
    x = draw_images(count, 8, size, size, device=device, dtype=dtype).requires_grad_()
    true_x = x.detach().double().requires_grad_()
    share = None if keep is None else torch.tensor(keep, device=device)
    torch.manual_seed(1)  # drop path draws the same numbers for both
    y = through(cells, x, share, dtype)
    torch.manual_seed(1)
    before, after = F.relu(true_x), true_x
    for cell in reference:
        before, after = cell(before, after, share), before
    gradient = draw_images(*before.shape, device=device, dtype=dtype)
    y.backward(gradient)
    before.backward(gradient.double())
    return {
        "output": measure_distance(y, before),
        "input": measure_distance(x.grad, true_x.grad),
        **tensors_apart(cells, reference),
    }


def check_amoebanet(count: int = 32, size: int = 96) -> tuple[float, float]:
    """How far all gradients together are from those in float32, by our kernels in bf16, and by PyTorch's in bf16."""
    torch.manual_seed(0)
    network = AmoebaNet(10, cells=3, filters=64, image=size, dropout_keep=1.0).cuda()
    network = network.to(memory_format=torch.channels_last)
    true = copy.deepcopy(network)
    plain, ours = copy.deepcopy(network), network
    assert fuse(ours, torch.bfloat16) == 8
    images = draw_images(count, 3, size, size, device="cuda")
    for module, autocast in ((true, False), (plain, True), (ours, True)):
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            logits, auxiliary = module(images)
        F.cross_entropy(logits + auxiliary, torch.arange(count, device="cuda") % 10).backward()
    wanted = torch.cat([parameter.grad.flatten() for parameter in true.parameters()])
    fused, other = (
        torch.cat([parameter.grad.flatten() for parameter in module.parameters()]) for module in (ours, plain)
    )
    return measure_distance(fused, wanted), measure_distance(other, wanted)


def chain(filters: int) -> nn.ModuleList:
    first = Cell(REDUCTION, 8, None, filters, 2)
    second = Cell(NORMAL, first.outputs, Previous(8, is_twice_as_large=True), filters, 1)
    return nn.ModuleList(
        [first, second, Cell(NORMAL, second.outputs, Previous(first.outputs, is_twice_as_large=False), filters, 1)]
    )


def through(cells: nn.ModuleList, x: Tensor, keep: Tensor | None, dtype: torch.dtype) -> Tensor:
    weights = {conv: conv.weight.detach().to(dtype) for conv in cells.modules() if isinstance(conv, nn.Conv2d)}
    *after, before, later = sum_terms([Term(x)], list_stem_readers(cells[0]))
    for cell in cells:
        made = CellPass(cell, weights, 2, keep).run(before, after)
        before, after, later = made[0], later, made[1]
    return before


def prepare_network(network: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Norms that are not new, and weights that lose nothing in this precision."""
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            centre_norm(layer)
        elif isinstance(layer, nn.Conv2d):
            layer.weight.data = layer.weight.data.to(dtype).float()
    return network


def tensors_apart(network: nn.Module, reference: nn.Module) -> Errors:
    """Gradients of all parameters, and all buffers."""
    pairs = zip(network.named_parameters(), reference.parameters(), strict=True)
    buffers = zip(network.named_buffers(), reference.buffers(), strict=True)
    return {name: measure_distance(first.grad, second.grad) for (name, first), second in pairs} | {
        name: measure_distance(first, second) for (name, first), second in buffers
    }
