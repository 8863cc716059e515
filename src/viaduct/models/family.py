"""The record of a model family, which other packages read.

A family is a file in this folder with `family = Family(...)`; being in the folder is registration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from viaduct.models.links import Link

# For each naming scheme ("layout") of TensorFlow's checkpoints: which variables hold each tensor of the network. The
# layout of a network with a single scheme is called "".
Layouts = dict[str, "list[Link]"]
Shapes = Mapping[str, tuple[int, ...]]  # of a checkpoint's tensors, by name


@dataclass(frozen=True)
class TensorflowNames:
    """Names of a network's tensors in the checkpoints of its TensorFlow reference."""

    scope: str  # prefix of its variables
    apply_to: Callable[[nn.Module], bool]  # True for the networks that these names are for
    layouts: Callable[[nn.Module], Layouts]  # the naming schemes that checkpoints may have
    default_layout: str = ""  # the scheme for exports
    # Keyword arguments of `models.build` for the network of a checkpoint, from the shapes of its tensors.
    find_options: Callable[[Shapes], dict[str, Any]] = lambda shapes: {}


@dataclass(frozen=True)
class Family:
    """Record of one model family."""

    variants: Mapping[str, Callable[..., nn.Module]]  # name -> builder(classes, **options)
    input_size: int = 224  # pixels
    classes: int = 1001  # of the reference: ImageNet's 1000 and one for background
    preprocess: str = "official"  # name of the reference's preprocessing (data/preprocess.py)
    tensorflow: TensorflowNames | None = None
    # Returns our name of each tensor -> torchvision's; empty for a network that torchvision does not have.
    torchvision_names: Callable[[nn.Module], dict[str, str]] | None = None
    peers: Mapping[str, str] = field(default_factory=dict)  # variant -> name of the network in torchvision and timm
