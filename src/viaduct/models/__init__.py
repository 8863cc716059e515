"""The networks: plain PyTorch modules, independent of devices, data and checkpoints.

    from viaduct import models
    network = models.build("resnet50_v1", classes=10)

A family is a file of this folder with an object `family` (see family.py). Families are imported when first used, so
importing this package does not import torch.
"""

from __future__ import annotations

import importlib
import inspect
import operator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from viaduct.errors import BadValue, UnknownName
from viaduct.models import sources
from viaduct.models.family import Family

if TYPE_CHECKING:
    from torch import nn

SHOW_ALL = "`viaduct models` shows all of them."
MAX_CLASSES = 1_000_000  # ImageNet has 1,000 classes, all nouns of WordNet are 82,000


def build(name: str, classes: int = 1001, **options: Any) -> nn.Module:
    """Return a new network with `classes` outputs and new weights, drawn as in its reference implementation.

    Options are keyword arguments of the family's class: build("amoebanet_d", classes=10, aux=False). Networks of other
    packages have names such as timm:convnext_tiny (see sources/), and the initial weights that these packages give.
    """
    classes = check_classes(classes)
    if sources.is_foreign(name):
        return sources.build(name, classes, **options)
    known = list_options(name)
    for option in options:
        if option not in known:
            raise UnknownName(f"option of {name}", option, known)
    return find_family(name).variants[name](classes, **options)


def list_options(name: str) -> list[str]:
    """Return the options of a network of viaduct, besides the number of classes."""
    return [key for key in inspect.signature(find_family(name).variants[name]).parameters if key != "classes"]


def check_classes(classes: Any) -> int:
    """Return the number of classes; raise BadValue if it is no whole number or out of range."""
    try:
        count = operator.index(classes)
    except TypeError:
        count = None
    if count is None or isinstance(classes, bool):
        raise BadValue(f"classes is {classes!r}; it must be a whole number, such as 1001.")
    if not 1 <= count <= MAX_CLASSES:
        raise BadValue(f"a network cannot have {count:,} classes.", f"Give 1 to {MAX_CLASSES:,}.")
    return count


def names() -> list[str]:
    """Return the name of every network of viaduct, family by family."""
    return [name for family in families().values() for name in family.variants]


def find_family_name(name: str) -> str:
    """Return the name of the file with a network's family, such as "resnet"; raise UnknownName if there is none."""
    if not isinstance(name, str):
        raise BadValue(f"a network is given by its name, not by {name!r}.", SHOW_ALL)
    for file, family in families().items():
        if name in family.variants:
            return file
    raise UnknownName("model", name, names(), SHOW_ALL)


def find_family(name: str) -> Family:
    """Return the family that a network belongs to."""
    return families()[find_family_name(name)]


@cache
def families() -> dict[str, Family]:
    """Return every family by the name of its file, in alphabetical order."""
    files = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    found = {file: getattr(import_family_file(file), "family", None) for file in files}
    return {file: family for file, family in found.items() if isinstance(family, Family)}


def import_family_file(file: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{file}")
