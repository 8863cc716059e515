"""The networks: plain modules without devices, data or checkpoints, each with a table of variants.

    from viaduct import models
    network = models.build("resnet50_v1", classes=10)

A family is a file here with a table `variants`, from a name to something that takes the number of classes.
Families are imported when first asked for, so importing this package does not import torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from viaduct.errors import BadValue, UnknownName

if TYPE_CHECKING:
    from torch import nn

    Variants = Mapping[str, Callable[[int], nn.Module]]

FAMILIES = ("resnet", "resnet_cifar", "resnet_book")


def build(name: str, classes: int = 1001) -> nn.Module:
    """A fresh network with as many outputs as there are classes, initialised as its reference is."""
    if classes < 1:
        raise BadValue(f"a network cannot have {classes} classes.", "Give 1 or more.")
    for family in FAMILIES:
        variants = variants_of(family)
        if name in variants:
            return variants[name](classes)
    raise UnknownName("model", name, names(), f"There are: {', '.join(names())}.")


def names() -> list[str]:
    """Every name that `build` knows, family by family."""
    return [name for family in FAMILIES for name in variants_of(family)]


def variants_of(family: str) -> Variants:
    variants: Variants = importlib.import_module(f"{__name__}.{family}").variants
    return variants
