"""Names in Ascend's ResNeXt: numbered in order of creation, with two layouts of the grouped kernels.

(a) newer: one variable `fp32_vars/bottleneck_<stage>_<block>`, which takes no number from the convolutions;
(b) older, that of the published checkpoints: one `conv2d_N` for each of the 32 groups, numbered in line with the rest.
"""

from __future__ import annotations

from torch import nn

from viaduct.models.resnext import ResNeXt
from viaduct.weights.maps.link import Link, conv, dense, norm, numbered

SCOPE = "fp32_vars/"
FILES: tuple[str, ...] = ("resnext",)


def claims(model: nn.Module) -> bool:
    return isinstance(model, ResNeXt)


def layouts(model: nn.Module) -> dict[str, list[Link]]:
    return {"a": named(model, split=False), "b": named(model, split=True)}


def named(model: nn.Module, split: bool) -> list[Link]:
    links: list[Link] = []
    convs = norms = 0
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            if module.groups > 1 and not split:
                links.append(conv(name, f"{SCOPE}bottleneck_{place(name)}"))
                continue
            numbers = range(convs, convs + module.groups)
            links.append(conv(name, *(f"{SCOPE}{numbered('conv2d', number)}/kernel" for number in numbers)))
            convs += module.groups
        elif isinstance(module, nn.BatchNorm2d):
            links += norm(name, SCOPE + numbered("BatchNorm", norms))
            norms += 1
    return [*links, *dense("head", f"{SCOPE}dense")]


def place(name: str) -> str:
    """`stages.2.1.conv2` is block 1 of stage 2."""
    _, stage, block, *_ = name.split(".")
    return f"{stage}_{block}"
