"""Networks of other packages, by name: `timm:NAME`, `torchvision:NAME`, `package.module:function`.

    sources.build("timm:convnext_tiny", classes=37)
    sources.read_input("torchvision:resnet50")        size, mean, standard deviation, interpolation of its images
    sources.list_names("timm", "convnext*")

Each source is a file here with the same functions: `build`, `list_names`, `read_input`. Packages are imported when a
name of theirs is used. Weights are never downloaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from viaduct.errors import BadValue, UnknownName

if TYPE_CHECKING:
    from torch import nn

PACKAGES = ("timm", "torchvision")


@dataclass(frozen=True)
class InputSettings:
    """Preparation of a network's images for evaluation; mean and deviation are of values from 0 to 1."""

    size: int = 224
    interpolation: str = "bilinear"
    crop_share: float = 0.875  # side of the central crop, as a share of the resized shorter side
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)  # of ImageNet
    deviation: tuple[float, float, float] = (0.229, 0.224, 0.225)


def is_foreign(name: object) -> bool:
    """Return True for the name of a network that is not one of ours."""
    return isinstance(name, str) and ":" in name


def is_function(name: str) -> bool:
    """Return True for `package.module:function`."""
    return is_foreign(name) and name.partition(":")[0] not in PACKAGES


def find_function(name: str) -> Callable[..., Any]:
    """Import and return the function that makes a network `package.module:function`."""
    function: Callable[..., Any] = import_source("function").find_function(name)
    return function


def build(name: str, classes: int, **options: Any) -> nn.Module:
    """Return a fresh network of a source with as many outputs as there are classes."""
    source, entry = split_name(name)
    network: nn.Module = source.build(entry, classes, **options)
    refuse_missing_classifier(name, network, classes)
    return network


def read_input(name: str) -> InputSettings:
    """Return how the source prepares images for this network."""
    source, entry = split_name(name)
    settings: InputSettings = source.read_input(entry)
    return settings


def list_names(source: str, pattern: str = "*") -> list[str]:
    """Return the names of a source's classifiers that match a pattern, with the source before them."""
    if source not in PACKAGES:
        raise UnknownName("source of networks", source, PACKAGES)
    names = import_source(source).list_names()
    found = [name for name in names if fnmatchcase(name, pattern or "*")]
    if not found:
        raise UnknownName(f"network of {source}", pattern, names)
    return [f"{source}:{name}" for name in found]


def split_name(name: str) -> tuple[Any, str]:
    """Return the module of a source and the network's name in it; for a user's function, package.module:function."""
    source, _, entry = name.partition(":")
    if not source or not entry:
        raise BadValue(f"{name!r} names no network.", "Write timm:NAME, torchvision:NAME or package.module:function.")
    if source in PACKAGES:
        return import_source(source), entry
    return import_source("function"), name


def import_source(source: str) -> Any:
    """Import the module that knows a package of networks."""
    return importlib.import_module(f"{__name__}.{source}_source")


def import_package(package: str) -> Any:
    """Import an optional package; raise BadValue with how to install it, or why it cannot be imported."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == package:
            what = f"networks of {package} need the package {package}, which is not installed."
            raise BadValue(what, f"pip install {package}") from None
        raise BadValue(f"{package} is installed, but cannot be imported: {error}.") from None
    except Exception as error:  # built for another torch, for instance
        first = (str(error).splitlines() or [""])[0]
        raise BadValue(
            f"{package} is installed, but cannot be imported: {type(error).__name__}: {first}",
            "Its version must fit the installed torch.",
        ) from None


def refuse_missing_classifier(name: str, network: nn.Module, classes: int) -> None:
    """Refuse a network without a layer of as many outputs as there are classes."""
    if find_classifier(network, classes) is None:
        what = f"{name} has no classifier of {classes:,} outputs: no layer of it ends in so many."
        raise BadValue(what, "viaduct trains image classifiers; features, detectors and segmenters have no such layer.")


def find_classifier(network: nn.Module, classes: int | None = None) -> str | None:
    """Return the name of the last linear or convolution layer with as many outputs as classes; None: any number."""
    from torch import nn

    found = None
    for path, layer in network.named_modules():
        outputs = getattr(layer, "out_features", None) or getattr(layer, "out_channels", None)
        if isinstance(layer, nn.Linear | nn.Conv2d) and classes in (None, outputs):
            found = path
    return found
