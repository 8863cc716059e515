"""Layouts (naming schemes) of MindSpore checkpoints; the axes of the values are ordered as in PyTorch.

    zoo     MindSpore's model zoo: conv1, bn1, layer1.0.down_sample_layer.0, end_point. Its ResNet pads SAME, with an
            epsilon of 1e-4, as the network `resnet50_book` does.
    mindcv  MindCV: conv1, bn1, layer1.0.down_sample.0, classifier. It pads kernel // 2, with an epsilon of 1e-5.
    own     the network's own names, except that a batch norm has gamma, beta, moving_mean and moving_variance; used
            for all other networks.

Names and shapes do not show padding and epsilon, so weights also fit networks that have others; `describe_differences`
reports this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

from torch import nn

from viaduct.models.links import Link
from viaduct.models.padding import SameConv2d
from viaduct.weights.torch_names import list_torchvision_names

Layout = Literal["zoo", "mindcv", "own"]
# MindSpore's names of a ResNet's layers are torchvision's, except for the classifier (fc) and shortcuts (downsample).
HEADS = {"zoo": "end_point", "mindcv": "classifier"}
SHORTCUTS = {"zoo": "down_sample_layer", "mindcv": "down_sample"}
REFERENCES = {"zoo": "MindSpore's model zoo", "mindcv": "MindCV"}
# Prefixes of the names in a MindSpore cell that contains the network.
WRAPPERS = ("", "network.", "backbone.", "_backbone.", "net.", "model.")
NORM_TENSORS = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


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

    torchvision has the same ones, and in its names only blocks of bottlenecks have a third convolution.
    """
    return "layer1.0.conv3.weight" in list_torchvision_names(model).values()


def link_tensors(model: nn.Module, layout: Layout) -> Iterator[Link]:
    """Yield the link of each tensor of convolutions, batch norms and dense layers."""
    names = {} if layout == "own" else list_torchvision_names(model)
    for path, module in model.named_modules():
        is_norm = isinstance(module, nn.BatchNorm2d)
        if is_norm or isinstance(module, nn.Conv2d | nn.Linear):
            for leaf in NORM_TENSORS if is_norm else ("weight", "bias"):
                if getattr(module, leaf) is not None:
                    tensor = f"{path}.{leaf}"
                    parent = rename_module(names.get(tensor, tensor).rpartition(".")[0], layout)
                    variable = f"{parent}.{NORM_TENSORS[leaf] if is_norm else leaf}"
                    yield Link(tensor, (variable,), trained=not leaf.startswith("running"))


def rename_module(name: str, layout: Layout) -> str:
    """Return MindSpore's name of a module, from torchvision's name of it; in the layout own the name stays."""
    if layout == "own":
        return name
    return HEADS[layout] if name == "fc" else name.replace("downsample", SHORTCUTS[layout])


def describe_differences(model: nn.Module, layout: str) -> list[str]:
    """Return a note on the differences between a network and the reference of this layout, if any."""
    layout = layout.partition(" ")[0]  # without a wrapper's prefix
    if layout not in REFERENCES:
        return []
    pads_same, epsilon = (True, 1e-4) if layout == "zoo" else (False, 1e-5)
    differences = []
    if find_strided_padding(model) != {pads_same}:
        theirs = "pad SAME" if pads_same else "pad kernel // 2 on every side"
        differences.append(f"strided convolutions {theirs} there, but not all of them here")
    epsilons = {module.eps for module in model.modules() if isinstance(module, nn.BatchNorm2d)}
    differences += [f"batch norms have an epsilon of {epsilon:g} there, {e:g} here" for e in epsilons - {epsilon}]
    if not differences:
        return []
    return [f"not quite the network of {REFERENCES[layout]}: {'; '.join(differences)}; accuracies will differ"]


def find_strided_padding(model: nn.Module) -> set[bool]:
    """Return whether strided convolutions larger than 1x1 pad SAME: {True}, {False}, or both if they differ."""
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    return {isinstance(conv, SameConv2d) for conv in convolutions if conv.stride[0] > 1 and conv.kernel_size[0] > 1}


def choose_export_layout(model: nn.Module) -> Layout:
    """Return "zoo" if the network pads SAME as that does, otherwise "mindcv"; "own" if neither has the network."""
    if not has_reference(model):
        return "own"
    return "zoo" if find_strided_padding(model) == {True} else "mindcv"
