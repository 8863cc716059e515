"""Sizes of the layers of all networks, without building one: `viaduct launch plan` works without torch.

    for layer in layers.read_layers("resnet50_v1"):
        layer.parameters.at(classes=1001), layer.macs.at(1001), layer.outputs.at(1001), layer.is_spatial

layers.json is generated from the networks themselves: `python -m viaduct.models.layers` writes it (part of
`make results`), and a test builds every network and compares. Each kind of layer is written once per network; "order"
lists the kind of each layer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.errors import UnknownName
from viaduct.models.catalogue import Count

if TYPE_CHECKING:
    from viaduct.models.sizes import Part

FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class LayerSizes:
    """Sizes of a layer for one image of the network's usual size; a layer used in training only has no outputs."""

    parameters: Count
    macs: Count
    outputs: Count
    is_spatial: bool  # its MACs and outputs grow with the area of the image

    def to_row(self) -> list[Any]:
        """Return the numbers of the layer as layers.json stores them."""
        counts = (self.parameters, self.macs, self.outputs)
        return [*(number for count in counts for number in (count.fixed, count.per_class)), int(self.is_spatial)]

    @staticmethod
    def from_row(row: list[int]) -> LayerSizes:
        return LayerSizes(Count(*row[0:2]), Count(*row[2:4]), Count(*row[4:6]), bool(row[6]))


def read_layers(name: str) -> list[LayerSizes]:
    """Return the layers of a network in their order."""
    networks = read_file()
    if name not in networks:
        raise UnknownName("model", name, networks, "`viaduct models` shows all of them.")
    kinds = [LayerSizes.from_row(row) for row in networks[name]["kinds"]]
    return [kinds[number] for number in networks[name]["order"]]


@cache
def read_file() -> dict[str, dict[str, Any]]:
    """Return, for each network, {"kinds": its different rows, "order": the index of the row of each layer}."""
    networks: dict[str, dict[str, Any]] = json.loads(FILE.read_text())
    return networks


def compute_layer(one_class: Part, two_classes: Part) -> LayerSizes:
    """Return the sizes of a layer as functions of the number of classes, from a network with one class and with two."""
    outputs = [prod(part.output) if part.output else 0 for part in (one_class, two_classes)]
    return LayerSizes(
        Count.from_values(one_class.parameters, two_classes.parameters),
        Count.from_values(one_class.multiplications, two_classes.multiplications),
        Count.from_values(*outputs),
        one_class.output is not None and len(one_class.output) == 3,
    )


def main() -> None:
    from viaduct import models
    from viaduct.models.sizes import measure

    lines = []
    for name in models.names():
        pairs = zip(measure(name, 1, layers=True).parts, measure(name, 2, layers=True).parts, strict=True)
        rows = [compute_layer(*pair).to_row() for pair in pairs]
        kinds = [list(row) for row in dict.fromkeys(map(tuple, rows))]
        entry = {"kinds": kinds, "order": [kinds.index(row) for row in rows]}
        lines.append(f" {json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
