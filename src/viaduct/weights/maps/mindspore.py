"""Layouts (naming schemes) of MindSpore checkpoints; the axes of the values are ordered as in PyTorch.

    zoo     MindSpore's model zoo: conv1, bn1, layer1.0.down_sample_layer.0, end_point. Its ResNet pads SAME, with an
            epsilon of 1e-4, as `resnet50_book` does.
    mindcv  MindCV: conv1, bn1, layer1.0.down_sample.0, classifier. It pads kernel // 2, with 1e-5.
    own     the network's own names, except that a batch norm has gamma, beta, moving_mean and moving_variance; used
            for all other networks.

Names and shapes do not show padding and epsilon, so weights also fit networks with other ones; `describe_differences`
reports this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

from torch import nn

from viaduct.models.links import Link
from viaduct.models.padding import SameConv2d
from viaduct.models.resnet import Bottleneck, ResNet, Stem

Layout = Literal["zoo", "mindcv", "own"]
HEADS = {"zoo": "end_point", "mindcv": "classifier", "own": "head"}
SHORTCUTS = {"zoo": "down_sample_layer", "mindcv": "down_sample"}
REFERENCES = {"zoo": "MindSpore's model zoo", "mindcv": "MindCV"}
# Prefixes of the names in a MindSpore cell that contains the network.
WRAPPERS = ("", "network.", "backbone.", "_backbone.", "net.", "model.")
STEM_KERNEL = 7
LEAVES = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


def list_layouts(model: nn.Module) -> dict[str, list[Link]]:
    """Return the links of each layout that a checkpoint of this network may have."""
    kinds: tuple[Layout, ...] = ("zoo", "mindcv", "own") if has_reference(model) else ("own",)
    return {kind: list(link_tensors(model, kind)) for kind in kinds}


def list_wrapped_layouts(model: nn.Module, names: Collection[str]) -> dict[str, list[Link]]:
    """Return the links of each layout, without a prefix and with each prefix in WRAPPERS that occurs in `names`.

    The layout zoo with the prefix "network." is called "zoo network.".
    """
    links_by_layout = {}
    for wrapper in WRAPPERS:
        if any(name.startswith(wrapper) for name in names):
            for layout, links in list_layouts(model).items():
                wrapped = [Link(link.tensor, (wrapper + link.variables[0],), trained=link.trained) for link in links]
                links_by_layout[layout + (f" {wrapper}" if wrapper else "")] = wrapped
    return links_by_layout


def has_reference(model: nn.Module) -> bool:
    """Return True for a network that the zoo and MindCV have: a ResNet of bottlenecks, grouped or not, with a 7x7 stem.

    MindSpore's basic blocks have no projection in the first block of the first stage, unlike viaduct's.
    """
    if not isinstance(model, ResNet) or not isinstance(model.stem, Stem) or len(model.stages) != 4:
        return False
    usual_stem = model.stem.conv.kernel_size[0] == STEM_KERNEL
    return usual_stem and all(isinstance(block, Bottleneck) for stage in model.stages for block in stage.children())


def link_tensors(model: nn.Module, layout: Layout) -> Iterator[Link]:
    """Yield the link of each parameter and buffer."""
    for name, module in model.named_modules():
        source = name if layout == "own" else rename(name, layout)
        if isinstance(module, nn.BatchNorm2d):
            for leaf, theirs in LEAVES.items():
                yield Link(f"{name}.{leaf}", (f"{source}.{theirs}",), trained=not leaf.startswith("running"))
        elif isinstance(module, nn.Conv2d | nn.Linear):
            yield Link(f"{name}.weight", (f"{source}.weight",))
            if module.bias is not None:
                yield Link(f"{name}.bias", (f"{source}.bias",))


def rename(module: str, layout: Layout) -> str:
    """Return MindSpore's name of a module: `layer1.2.bn1` for `stages.0.2.norm1`."""
    if module == "head":
        return HEADS[layout]
    parts = module.split(".")
    if parts[0] == "stem":
        return {"conv": "conv1", "norm": "bn1"}.get(parts[-1], module)
    if parts[0] != "stages" or len(parts) < 4:
        return module
    _, stage, block, *layer = parts
    inside = f"layer{int(stage) + 1}.{block}."
    if layer[0] == "shortcut":
        return f"{inside}{SHORTCUTS[layout]}.{0 if layer[-1] == 'conv' else 1}"
    return inside + layer[0].replace("norm", "bn")


def describe_differences(model: nn.Module, layout: str) -> list[str]:
    """Return a note on the differences between a network and the reference of this layout, if any."""
    layout = layout.partition(" ")[0]  # without a wrapper's prefix
    if layout not in REFERENCES or not isinstance(model, ResNet):
        return []
    pads_same, epsilon = (True, 1e-4) if layout == "zoo" else (False, 1e-5)
    differences = []
    if find_strided_padding(model) != {pads_same}:
        theirs = "pad SAME" if pads_same else "pad kernel // 2 on every side"
        differences.append(f"strided convolutions {theirs} there, and otherwise here")
    if model.style.epsilon != epsilon:
        differences.append(f"batch norms have an epsilon of {epsilon:g} there, {model.style.epsilon:g} here")
    if not differences:
        return []
    return [f"not quite the network of {REFERENCES[layout]}: {'; '.join(differences)}; accuracies will differ"]


def find_strided_padding(model: nn.Module) -> set[bool]:
    """Return whether strided convolutions larger than 1x1 pad SAME: {True}, {False}, or both if they differ."""
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    return {isinstance(conv, SameConv2d) for conv in convolutions if conv.stride[0] > 1 and conv.kernel_size[0] > 1}


def choose_export_layout(model: nn.Module) -> Layout:
    """Return "zoo" or "mindcv", whichever pads as the network does; "own" if neither has the network."""
    if not has_reference(model):
        return "own"
    return "zoo" if not describe_differences(model, "zoo") or find_strided_padding(model) == {True} else "mindcv"
