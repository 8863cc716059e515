"""AmoebaNet-D as in tensorflow/tpu and its Ascend port (Real et al., https://arxiv.org/abs/1802.01548).

A stem convolution, two stem cells that halve the image, then normal cells. After one third of these, and after two
thirds, comes a reduction cell, which halves the image and doubles the filters. A cell reads the outputs of the two
cells before it.

In training mode a network with an auxiliary head returns (logits, auxiliary logits), otherwise only logits. Names
follow the TensorFlow scopes: `cells.cell_0.combinations.1.right.pre_1x1` is `cell_0/comb_iter_1/right/pre_1x1`.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.errors import BadValue
from viaduct.models import initialisers
from viaduct.models.amoebanet_cells import NORMAL, REDUCTION, Cell, Plan, Previous, norm, relu_in_place
from viaduct.models.family import ONLY_LAYOUT, Family, Shapes, TensorflowNames
from viaduct.models.links import Link, link_conv, link_dense, link_norm
from viaduct.models.resnet import at_least_float32

DropPathVersion = Literal["v1", "v2", "v3"]


class Stem(nn.Module):
    """3x3 convolution with stride 2, without padding, and a norm."""

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(3, filters, 3, stride=2, bias=False)
        self.conv0_bn = norm(filters)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        result: Tensor = self.conv0_bn(self.conv0(x_NCHW))
        return result


AUXILIARY_CHANNELS = (int(128 * 0.4), int(768 * 0.4))  # the reference scales 128 and 768 by 0.4


class Auxiliary(nn.Module):
    """Second classifier after two thirds of the cells, for training only; `grid` is the side of its pooled input."""

    def __init__(self, inputs: int, classes: int, grid: int) -> None:
        super().__init__()
        self.grid = grid
        projected, channels = AUXILIARY_CHANNELS
        self.proj = nn.Conv2d(inputs, projected, 1, bias=False)
        self.aux_bn0 = norm(projected)
        self.conv = nn.Conv2d(projected, channels, grid, bias=False)
        self.aux_bn1 = norm(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        self.check_size(x_NCHW)
        features = F.avg_pool2d(x_NCHW, 5, stride=3)
        features = relu_in_place(self.aux_bn0(self.proj(features)))
        features = relu_in_place(self.aux_bn1(self.conv(features)))
        return at_least_float32(self.head(features.flatten(1)))

    def check_size(self, x_NCHW: Tensor) -> None:
        """Raise BadValue for images whose pooled size is not the one that the head was built for."""
        if tuple(map(compute_pooled_size, x_NCHW.shape[2:])) != (self.grid, self.grid):
            raise BadValue(
                "the auxiliary head of AmoebaNet was built for images of another size.",
                'Give their size: build("amoebanet_d", image=…); or leave the head out: build(…, aux=False).',
            )


def compute_pooled_size(size: int) -> int:
    """Return the size along one axis of the output of the auxiliary head's pool."""
    return (size - 5) // 3 + 1


def compute_auxiliary_grid(image: int) -> int:
    """Return the side of the auxiliary head's pooled input, for images of this size: 4 for 224, 5 for 299.

    Raise BadValue if the images are too small for the head.
    """
    size = (image - 3) // 2 + 1  # after the stem's convolution
    for _ in range(3):  # two stem cells and one reduction cell
        size = -(-size // 2)
    if size < 5:
        message = f"images of {image}x{image} are too small for AmoebaNet's auxiliary head."
        raise BadValue(message, "It needs at least 67x67; aux=False leaves it out.")
    return compute_pooled_size(size)


class AmoebaNet(nn.Module):
    """Stem, cells, mean over the image, dropout, classifier.

    Drop path leaves out a share of the operations in training. The share rises over the training (version v1), from
    cell to cell (v2), or both (v3).
    """

    drop_path_progress: Tensor

    def __init__(
        self,
        classes: int,
        *,
        cells: int = 6,
        filters: int = 256,
        stem_filters: int = 32,
        image: int = 224,
        aux: bool = True,
        dropout_keep: float = 0.5,
        drop_path_keep: float = 1.0,
        drop_path_version: DropPathVersion = "v1",
    ) -> None:
        super().__init__()
        check_options(cells, filters, dropout_keep, drop_path_keep, drop_path_version)
        self.drop_path_keep = drop_path_keep
        self.drop_path_version = drop_path_version
        # The share of the training that is done: the training step writes it.
        self.register_buffer("drop_path_progress", torch.tensor(1.0), persistent=False)
        self.stem = Stem(stem_filters)
        self.cells = build_cells(cells, filters, stem_filters)
        self.aux_after = f"cell_{2 * cells // 3 - 1}"
        inputs = count_channels(self.cells, self.aux_after)
        self.aux = Auxiliary(inputs, classes, compute_auxiliary_grid(image)) if aux else None
        self.dropout = nn.Dropout(1 - dropout_keep)
        self.head = nn.Linear(count_channels(self.cells, f"cell_{cells - 1}"), classes)
        self.apply(initialisers.slim)

    def forward(self, images_NCHW: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        previous = self.stem(images_NCHW)
        x_NCHW = F.relu(previous)  # not in place, because the first cell also reads the stem before the ReLU
        auxiliary = None
        for index, (name, cell) in enumerate(self.cells.items()):
            previous, x_NCHW = x_NCHW, cell(x_NCHW, previous, self.compute_keep_probability(index))
            if self.training and self.aux is not None and name == self.aux_after:
                auxiliary = self.aux(x_NCHW)
        features = self.dropout(x_NCHW.mean((2, 3)))
        logits = at_least_float32(self.head(features))
        return logits if auxiliary is None else (logits, auxiliary)

    def compute_keep_probability(self, index: int) -> Tensor | None:
        """Return the probability with which an operation of this cell is kept; None if every operation is kept."""
        if not self.training or self.drop_path_keep == 1.0:
            return None
        dropped = torch.full_like(self.drop_path_progress, 1 - self.drop_path_keep, dtype=torch.float32)
        if self.drop_path_version in ("v2", "v3"):
            dropped = dropped * ((index + 1) / len(self.cells))
        if self.drop_path_version in ("v1", "v3"):
            dropped = dropped * self.drop_path_progress
        return 1 - dropped


def build_cells(cells: int, filters: int, stem_filters: int) -> nn.ModuleDict:
    """Return every cell under its name, in the order of the forward pass."""
    built = nn.ModuleDict()
    inputs, previous = stem_filters, None  # the first cell has one predecessor, the stem
    for name, plan, width in list_plans(cells, filters):
        stride = 2 if plan is REDUCTION else 1
        cell = Cell(plan, inputs, previous, width, stride)
        previous, inputs = Previous(inputs, is_twice_as_large=stride == 2), cell.outputs
        built[name] = cell
    return built


def list_plans(cells: int, filters: int) -> list[tuple[str, Plan, int]]:
    """Return name, plan and filters of every cell."""
    plans = [("cell_stem_0", REDUCTION, filters // 4), ("cell_stem_1", REDUCTION, filters // 2)]
    reductions = (cells // 3, 2 * cells // 3)
    for index in range(cells):
        if index in reductions:
            filters *= 2
            plans.append((f"reduction_cell_{reductions.index(index)}", REDUCTION, filters))
        plans.append((f"cell_{index}", NORMAL, filters))
    return plans


def count_channels(cells: nn.ModuleDict, name: str) -> int:
    """Return the number of channels of a cell's output."""
    cell = cells[name]
    assert isinstance(cell, Cell)
    return cell.outputs


def check_options(cells: int, filters: int, dropout_keep: float, drop_path_keep: float, version: str) -> None:
    """Raise BadValue for sizes and probabilities that the network cannot have."""
    if cells < 3:
        raise BadValue(f"AmoebaNet cannot have {cells} cells.", "Give 3 or more, one for each third of the network.")
    if filters < 16 or filters % 16:
        raise BadValue(f"AmoebaNet cannot have {filters} filters.", "Give a multiple of 16: its cells use quarters.")
    for name, keep in {"dropout_keep": dropout_keep, "drop_path_keep": drop_path_keep}.items():
        if not 0 < keep <= 1:
            raise BadValue(f"{name} is {keep}.", "Give a probability above 0 and up to 1.")
    if version not in ("v1", "v2", "v3"):
        raise BadValue(f"drop_path_version is {version!r}.", "Give v1, v2 or v3.")


# Names in TensorFlow checkpoints

MAX_CELLS, MAX_FILTERS = 64, 4096  # a checkpoint with more is taken for damaged
NOT_IN_SCOPES = ("cells", "entry", "previous")  # parts of our names that TensorFlow's scopes do not have


def link_tensors(model: nn.Module) -> dict[str, list[Link]]:
    """Return the links to TensorFlow's variables; modules have the names of its scopes."""
    assert isinstance(model, AmoebaNet)
    auxiliary = f"aux_{model.aux_after.removeprefix('cell_')}/aux_logits"
    links: list[Link] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            links.append(link_conv(name, f"{find_scope(name, auxiliary)}/weights"))
        elif isinstance(module, nn.BatchNorm2d):
            links += link_norm(name, find_scope(name, auxiliary))
        elif isinstance(module, nn.Linear):
            scope = auxiliary if name.startswith("aux.") else "final_layer"
            links += link_dense(name, f"{scope}/FC", "weights", "biases")
    return {ONLY_LAYOUT: links}


def find_scope(name: str, auxiliary: str) -> str:
    """Return the scope of a module: `cells.cell_0.combinations.1.right.conv_1x7` has `cell_0/comb_iter_1/right/1x7`."""
    parts = [part.removeprefix("conv_") for part in name.split(".") if part not in NOT_IN_SCOPES]
    if parts[0] == "aux":
        return f"{auxiliary}/{'Conv' if parts[1] == 'conv' else parts[1]}"
    if len(parts) > 2 and parts[1] == "combinations":
        parts[1:3] = [f"comb_iter_{parts[2]}"]
    return "/".join(parts)


def find_options(shapes: Shapes) -> dict[str, Any]:
    """Return the keyword arguments of AmoebaNet for a checkpoint; empty if its shapes do not imply them."""
    numbers = [int(match[1]) for name in shapes if (match := re.match(r"cell_(\d{1,3})/", name))]
    entry, stem = shapes.get("cell_0/1x1/weights", ()), shapes.get("stem/conv0/weights", ())
    if not numbers or len(entry) != 4 or len(stem) != 4:
        return {}
    if max(numbers) >= MAX_CELLS or not 1 <= stem[3] <= MAX_FILTERS or not 1 <= entry[3] <= MAX_FILTERS:
        return {}
    options = {"cells": max(numbers) + 1, "filters": entry[3], "stem_filters": stem[3]}
    auxiliary = [shape for name, shape in shapes.items() if re.fullmatch(r"aux_\d+/aux_logits/Conv/weights", name)]
    if not auxiliary or not auxiliary[0]:
        return {**options, "aux": False}
    return {**options, "image": find_image_size(auxiliary[0][0])}


def find_image_size(grid: int) -> int:
    """Return an image size whose auxiliary head has a kernel of `grid` x `grid`; 224 if there is none up to 1024."""
    sizes = (224, 299, *range(67, 1025))  # the usual sizes first
    return next((size for size in sizes if compute_auxiliary_grid(size) == grid), 224)


family = Family(
    {"amoebanet_d": AmoebaNet},
    preprocess="amoebanet",
    needs_image_size=True,  # its auxiliary head is made for one size
    tensorflow=TensorflowNames(
        scope="cell_stem_0/",
        apply_to=lambda model: isinstance(model, AmoebaNet),
        layouts=link_tensors,
        find_options=find_options,
    ),
)
