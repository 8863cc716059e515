"""What a model family declares for other packages: its networks, sizes, preprocessing and names in other frameworks.

A family is a file in this folder with `family = Family(...)`; being in the folder is registration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from viaduct.models.links import Link

# A layout is a naming scheme of TensorFlow's checkpoints: a link for each tensor of a network, to the variables that
# hold its values. Layouts are listed by name.
Layouts = dict[str, "list[Link]"]
ONLY_LAYOUT = ""  # name of the layout of a network that has a single one
Shapes = Mapping[str, tuple[int, ...]]  # shapes of a checkpoint's tensors by name


@dataclass(frozen=True)
class TensorflowNames:
    """Names of a network's tensors in the checkpoints of its TensorFlow reference."""

    scope: str  # prefix of some variables in each of these checkpoints, and in no other reference's
    apply_to: Callable[[nn.Module], bool]  # returns True for a network that has these names
    layouts: Callable[[nn.Module], Layouts]  # returns the layouts that checkpoints of a network may have
    default_layout: str = ONLY_LAYOUT  # the layout of exports
    # Returns the keyword arguments of `models.build` for a checkpoint's network, from the shapes in the checkpoint.
    find_options: Callable[[Shapes], dict[str, Any]] = lambda shapes: {}


@dataclass(frozen=True)
class Family:
    """One model family."""

    variants: Mapping[str, Callable[..., nn.Module]]  # name of a network -> builder(classes, **options)
    input_size: int = 224  # side of the images in pixels
    classes: int = 1001  # number of classes in the reference: ImageNet's 1000 and one for background
    preprocess: str = "official"  # name of the reference's preprocessing (a file of data/references/)
    needs_image_size: bool = False  # the builder takes the side of the images as the option `image`
    tensorflow: TensorflowNames | None = None
    # Returns torchvision's name of each tensor by ours; empty for a network that torchvision does not have.
    torchvision_names: Callable[[nn.Module], dict[str, str]] | None = None
    # Variant -> name in torchvision and timm of the network that `viaduct bench` compares it with; one may lack it.
    peers: Mapping[str, str] = field(default_factory=dict)
