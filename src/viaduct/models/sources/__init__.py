"""Networks of other packages, by name: `timm:NAME`, `torchvision:NAME`, `package.module:function`.

    sources.build("timm:convnext_tiny", classes=37)
    sources.read_input("torchvision:resnet50")        size, mean, deviation and interpolation of its images
    sources.list_names("timm", "convnext*")

Each source is a file in this folder with the same functions: `build`, `list_names`, `read_input`. A package is imported
when a name of it is used. Weights are never downloaded.
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
    """Preprocessing of a network's images for evaluation; the defaults are ImageNet's usual ones."""

    size: int = 224  # side of the images in pixels
    interpolation: str = "bilinear"
    crop_share: float = 0.875  # side of the central crop, as a share of the resized shorter side
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)  # of each colour channel, for values from 0 to 1
    deviation: tuple[float, float, float] = (0.229, 0.224, 0.225)  # standard deviation, for values from 0 to 1


def is_foreign(name: object) -> bool:
    """Return True for the name of a network of another package."""
    return isinstance(name, str) and ":" in name


def is_function(name: str) -> bool:
    """Return True for `package.module:function`."""
    return is_foreign(name) and name.partition(":")[0] not in PACKAGES


def find_function(name: str) -> Callable[..., Any]:
    """Import and return the function `package.module:function`, which builds a network."""
    function: Callable[..., Any] = import_source("function").find_function(name)
    return function


def build(name: str, classes: int, **options: Any) -> nn.Module:
    """Return a new network of a source with `classes` outputs."""
    source, name_in_source = split_name(name)
    network: nn.Module = source.build(name_in_source, classes, **options)
    if find_classifier(network, classes) is None:
        message = f"{name} has no classifier of {classes:,} outputs: none of its layers has so many."
        hint = "viaduct trains image classifiers; features, detectors and segmenters have no such layer."
        raise BadValue(message, hint)
    return network


def read_input(name: str) -> InputSettings:
    """Return the source's preprocessing for this network."""
    source, name_in_source = split_name(name)
    settings: InputSettings = source.read_input(name_in_source)
    return settings


def list_names(source: str, pattern: str = "*") -> list[str]:
    """Return the names of a source's networks that match a pattern, prefixed with the source."""
    if source not in PACKAGES:
        raise UnknownName("source of networks", source, PACKAGES)
    names = import_source(source).list_names()
    matches = [name for name in names if fnmatchcase(name, pattern or "*")]
    if not matches:
        raise UnknownName(f"network of {source}", pattern, names)
    return [f"{source}:{name}" for name in matches]


def split_name(name: str) -> tuple[Any, str]:
    """Return the module of a source, and the network's name in the source; a user's function keeps its whole name."""
    source, _, network_name = name.partition(":")
    if not source or not network_name:
        raise BadValue(f"{name!r} names no network.", "Write timm:NAME, torchvision:NAME or package.module:function.")
    if source in PACKAGES:
        return import_source(source), network_name
    return import_source("function"), name


def import_source(source: str) -> Any:
    return importlib.import_module(f"{__name__}.{source}_source")


def import_package(package: str) -> Any:
    """Import an optional package; raise BadValue with the reason if that fails."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == package:
            message = f"networks of {package} need the package {package}, which is not installed."
            raise BadValue(message, f"pip install {package}") from None
        raise BadValue(f"{package} is installed, but cannot be imported: {error}.") from None
    except Exception as error:  # for instance a package that was built for another release of torch
        first = (str(error).splitlines() or [""])[0]
        raise BadValue(
            f"{package} is installed, but cannot be imported: {type(error).__name__}: {first}",
            "Its version must fit the installed torch.",
        ) from None


def find_classifier(network: nn.Module, classes: int | None = None) -> str | None:
    """Return the name of the last linear or convolution layer with this number of outputs; None if there is none.

    Without `classes` the layer may have any number of outputs.
    """
    from torch import nn

    classifier = None
    for path, layer in network.named_modules():
        outputs = getattr(layer, "out_features", None) or getattr(layer, "out_channels", None)
        if isinstance(layer, nn.Linear | nn.Conv2d) and classes in (None, outputs):
            classifier = path
    return classifier
