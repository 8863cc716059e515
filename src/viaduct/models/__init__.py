"""The networks: plain modules without devices, data or checkpoints, each with a table of variants.

    from viaduct import models
    network = models.build("resnet50_v1", classes=10)

A family is a file here with a table `variants`, from a name to something that takes the number of classes and,
as keywords, the options of the family. Families are imported when first asked for, so importing this package
does not import torch.
"""

from __future__ import annotations

import importlib
import inspect
import operator
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from viaduct.errors import BadValue, UnknownName

if TYPE_CHECKING:
    from torch import nn

    Variants = Mapping[str, Callable[..., nn.Module]]

SHOW_ALL = "`viaduct models` shows all of them."
MOST_CLASSES = 1_000_000  # ImageNet has 1,000 classes, all of WordNet's nouns 82,000
FAMILIES = ("resnet", "resnet_cifar", "resnet_book", "resnet_v15", "resnext", "amoebanet")


def build(name: str, classes: int = 1001, **options: Any) -> nn.Module:
    """A fresh network with as many outputs as there are classes, initialised as its reference is.

    Options are the keywords of the family's class: build("amoebanet_d", classes=10, aux=False).
    """
    classes = checked_classes(classes)
    variant = variants_of(family_of(name))[name]
    known = [key for key in inspect.signature(variant).parameters if key != "classes"]
    for option in options:
        if option not in known:
            raise UnknownName(f"option of {name}", option, known)
    return variant(classes, **options)


def checked_classes(classes: Any) -> int:
    try:
        count = operator.index(classes)
    except TypeError:
        count = None
    if count is None or isinstance(classes, bool):
        raise BadValue(f"classes is {classes!r}; it must be a whole number, such as 1001.")
    if not 1 <= count <= MOST_CLASSES:
        raise BadValue(f"a network cannot have {count:,} classes.", f"Give 1 to {MOST_CLASSES:,}.")
    return count


def names() -> list[str]:
    """Every name that `build` knows, family by family."""
    return [name for family in FAMILIES for name in variants_of(family)]


def family_of(name: str) -> str:
    """The file that has this network."""
    if not isinstance(name, str):
        raise BadValue(f"a network is given by its name, not by {name!r}.", SHOW_ALL)
    for family in FAMILIES:
        if name in variants_of(family):
            return family
    raise UnknownName("model", name, names(), SHOW_ALL)


def variants_of(family: str) -> Variants:
    variants: Variants = module_of(family).variants
    return variants


def module_of(family: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{family}")
