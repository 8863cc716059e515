"""Names in tensorflow/tpu's AmoebaNet-D and its Ascend port: our modules are called after its scopes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from viaduct.models.amoebanet import AmoebaNet, auxiliary_grid
from viaduct.weights.maps.link import Link, conv, dense, norm

SCOPE = "cell_stem_0/"
FILES: tuple[str, ...] = ("amoebanet",)
MOST_CELLS, MOST_FILTERS = 64, 4096  # a file that claims more is not believed
SILENT = ("cells", "entry", "previous")  # parts of our names that are no scopes


def claims(model: nn.Module) -> bool:
    return isinstance(model, AmoebaNet)


def layouts(model: nn.Module) -> dict[str, list[Link]]:
    assert isinstance(model, AmoebaNet)
    auxiliary = f"aux_{model.aux_after.removeprefix('cell_')}/aux_logits"
    links: list[Link] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            links.append(conv(name, f"{scope_of(name, auxiliary)}/weights"))
        elif isinstance(module, nn.BatchNorm2d):
            links += norm(name, scope_of(name, auxiliary))
        elif isinstance(module, nn.Linear):
            scope = auxiliary if name.startswith("aux.") else "final_layer"
            links += dense(name, f"{scope}/FC", "weights", "biases")
    return {"": links}


def scope_of(name: str, auxiliary: str) -> str:
    """`cells.cell_0.combinations.1.right.conv_1x7` is `cell_0/comb_iter_1/right/1x7`."""
    words = [word.removeprefix("conv_") for word in name.split(".") if word not in SILENT]
    if words[0] == "aux":
        return f"{auxiliary}/{'Conv' if words[1] == 'conv' else words[1]}"
    if len(words) > 2 and words[1] == "combinations":
        words[1:3] = [f"comb_iter_{words[2]}"]
    return "/".join(words)


def options_in(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """How large the network of a checkpoint is: what `models.build` must be told. Empty where that is not clear."""
    numbers = [int(found[1]) for name in shapes if (found := re.match(r"cell_(\d{1,3})/", name))]
    entry, stem = shapes.get("cell_0/1x1/weights", ()), shapes.get("stem/conv0/weights", ())
    if not numbers or len(entry) != 4 or len(stem) != 4:
        return {}
    if max(numbers) >= MOST_CELLS or not 1 <= stem[3] <= MOST_FILTERS or not 1 <= entry[3] <= MOST_FILTERS:
        return {}
    options = {"cells": max(numbers) + 1, "filters": entry[3], "stem_filters": stem[3]}
    auxiliary = [shape for name, shape in shapes.items() if re.fullmatch(r"aux_\d+/aux_logits/Conv/weights", name)]
    if not auxiliary or not auxiliary[0]:
        return {**options, "aux": False}
    return {**options, "image": picture_size(auxiliary[0][0])}


def picture_size(grid: int) -> int:
    """A size of picture whose auxiliary head has a kernel of this size; the usual ones first."""
    sizes = (224, 299, *range(67, 1025))
    return next((size for size in sizes if auxiliary_grid(size) == grid), 224)
