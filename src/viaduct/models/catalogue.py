"""Sizes and sources of all networks and of their layers, without importing torch or building a network.

    entry = catalogue.find_entry("resnet50_v1")
    entry.parameters.at(classes=10), entry.macs.at(10), entry.input_size, entry.source
    for layer in entry.layers:
        layer.parameters.at(classes=10), layer.macs.at(10), layer.outputs.at(10), layer.is_spatial

catalogue.json is generated from the networks themselves: `python -m viaduct.models.catalogue` writes it (part of
`make results`), and a test builds every network and compares. Each kind of layer is written once per network; "order"
lists the kind of each layer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.errors import UnknownName
from viaduct.models import SHOW_ALL

if TYPE_CHECKING:
    from viaduct.models.sizes import Part

FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Count:
    """Number of parameters, MACs or output values, as a linear function of the number of classes."""

    fixed: int
    per_class: int

    @staticmethod
    def from_values(one_class: int, two_classes: int) -> Count:
        """Return the count with these values for one class and for two."""
        return Count(2 * one_class - two_classes, two_classes - one_class)

    def at(self, classes: int) -> int:
        """Return the count for a number of classes."""
        return self.fixed + self.per_class * classes


def add_counts(counts: Iterable[Count]) -> Count:
    summands = list(counts)
    return Count(sum(count.fixed for count in summands), sum(count.per_class for count in summands))


@dataclass(frozen=True)
class LayerSizes:
    """Sizes of a layer for one image of the network's usual size.

    They are those of an evaluation: a layer that only training uses (in an auxiliary head) has 0 MACs and outputs.
    """

    parameters: Count
    macs: Count  # multiply-accumulate operations of convolutions and dense layers
    outputs: Count
    is_spatial: bool  # its MACs and outputs grow with the area of the image

    def to_row(self) -> list[int]:
        """Return the numbers of the layer as catalogue.json stores them."""
        counts = (self.parameters, self.macs, self.outputs)
        return [*(number for count in counts for number in (count.fixed, count.per_class)), int(self.is_spatial)]

    @staticmethod
    def from_row(row: list[int]) -> LayerSizes:
        return LayerSizes(Count(*row[0:2]), Count(*row[2:4]), Count(*row[4:6]), bool(row[6]))


@dataclass(frozen=True)
class Entry:
    """A network in the list of `viaduct models`."""

    family: str  # name of its file in this folder
    source: str  # first line of the file's docstring
    classes: int  # number of classes in the reference implementation
    input_size: int  # side of the images in pixels
    needs_image_size: bool  # True if the network is built for one size of images
    layers: list[LayerSizes]

    @property
    def parameters(self) -> Count:
        return add_counts(layer.parameters for layer in self.layers)

    @property
    def parameters_in_training_only(self) -> Count:
        """Number of parameters of layers that only training uses: those of an auxiliary head."""
        return add_counts(layer.parameters for layer in self.layers if layer.outputs == Count(0, 0))

    @property
    def macs(self) -> Count:
        return add_counts(layer.macs for layer in self.layers)


@cache
def read_entries() -> dict[str, Entry]:
    """Return the networks by name, family by family."""
    entries = {}
    for name, record in json.loads(FILE.read_text()).items():
        kinds = [LayerSizes.from_row(row) for row in record.pop("kinds")]
        order = record.pop("order")
        entries[name] = Entry(**record, layers=[kinds[number] for number in order])
    return entries


def find_entry(name: str) -> Entry:
    """Return the entry of a network; raise UnknownName if it is not one of viaduct's."""
    entries = read_entries()
    if name not in entries:
        raise UnknownName("model", name, entries, SHOW_ALL)
    return entries[name]


def compute_entry(name: str) -> Entry:
    """Build a network with one class and with two, and measure its layers."""
    from viaduct import models
    from viaduct.models.sizes import measure

    one_class, two_classes = measure(name, 1, layers=True), measure(name, 2, layers=True)
    layers = [compute_layer(*pair) for pair in zip(one_class.parts, two_classes.parts, strict=True)]
    module, family = models.import_family_file(one_class.family), models.find_family(name)
    source = (module.__doc__ or "").split("\n")[0].rstrip(".")
    return Entry(one_class.family, source, family.classes, family.input_size, family.needs_image_size, layers)


def compute_layer(one_class: Part, two_classes: Part) -> LayerSizes:
    """Return the sizes of a layer, from a network with one class and from one with two."""
    outputs = [prod(part.output) if part.output else 0 for part in (one_class, two_classes)]
    return LayerSizes(
        Count.from_values(one_class.parameters, two_classes.parameters),
        Count.from_values(one_class.macs, two_classes.macs),
        Count.from_values(*outputs),
        one_class.output is not None and len(one_class.output) == 3,
    )


def main() -> None:
    from viaduct import models

    lines = []
    for name in models.names():
        entry = compute_entry(name)
        rows = [layer.to_row() for layer in entry.layers]
        kinds = [list(row) for row in dict.fromkeys(map(tuple, rows))]
        record: dict[str, Any] = vars(entry) | {"kinds": kinds, "order": [kinds.index(row) for row in rows]}
        del record["layers"]
        lines.append(f" {json.dumps(name)}: {json.dumps(record, separators=(',', ':'))}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
