"""Name maps: which variables of a TensorFlow checkpoint hold which tensors of a network, one file for each reference.

A file here has `SCOPE`, how its variables begin; `FILES`, where in `models/` its networks are; `claims(model)`, whether
a network is its; and `layouts(model)`, its links under the name of each layout (ResNeXt has two, the others one
without a name). `mindspore` has the names of MindSpore's networks, for all of ours.
"""

from __future__ import annotations

from typing import Protocol

from torch import nn

from viaduct.errors import BadValue
from viaduct.weights.maps import amoebanet, mindspore, official, resnext, v15
from viaduct.weights.maps.link import Link

__all__ = ["FAMILIES", "Family", "Link", "family_of", "foreign_names", "layouts_of", "mindspore"]


class Family(Protocol):
    SCOPE: str
    FILES: tuple[str, ...]

    def claims(self, model: nn.Module) -> bool: ...
    def layouts(self, model: nn.Module) -> dict[str, list[Link]]: ...


FAMILIES: tuple[Family, ...] = (official, v15, resnext, amoebanet)


def family_of(model: nn.Module) -> Family | None:
    return next((family for family in FAMILIES if family.claims(model)), None)


def foreign_names(model: nn.Module) -> dict[str, str]:
    """Return TensorFlow's and MindSpore's names of a network's tensors, in every layout, with ours."""
    family = family_of(model)
    layouts = [*(family.layouts(model).values() if family else ()), *mindspore.layouts(model).values()]
    return {source: link.target for links in layouts for link in links for source in link.sources}


def layouts_of(model: nn.Module) -> dict[str, list[Link]]:
    """The links of each layout in which a checkpoint of this network may be."""
    family = family_of(model)
    if family is None:
        raise BadValue(
            f"this network ({type(model).__name__}) has no TensorFlow reference, so the names of its variables "
            "are not known.",
            "Networks with one: resnet*_v1, resnet*_v2, resnet*_cifar, resnet50_v15, resnext*, amoebanet_d.",
        )
    return family.layouts(model)
