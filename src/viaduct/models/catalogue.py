"""Sizes and sources of all networks, without importing torch.

    entry = catalogue.read_entries()["resnet50_v1"]
    entry.parameters.at(classes=10), entry.macs.at(10), entry.input_size, entry.source

catalogue.json is generated from the networks themselves: `python -m viaduct.models.catalogue` writes it (part of
`make results`), and a test builds every network and compares.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Count:
    """Number of parameters, MACs or outputs, as a linear function of the number of classes."""

    fixed: int
    per_class: int

    @staticmethod
    def from_values(one_class: int, two_classes: int) -> Count:
        """Return the figure with these values for one class and for two."""
        return Count(2 * one_class - two_classes, two_classes - one_class)

    def at(self, classes: int) -> int:
        """Return the figure for a number of classes."""
        return self.fixed + self.per_class * classes


@dataclass(frozen=True)
class Entry:
    """A network in the list of `viaduct models`."""

    family: str  # name of the file in this folder
    source: str  # first line of the file's docstring
    classes: int  # of the reference
    input_size: int  # pixels
    parameters: Count
    parameters_in_training_only: Count  # those of an auxiliary head
    macs: Count  # multiplications for one image


@cache
def read_entries() -> dict[str, Entry]:
    """Return the networks by name, family by family."""
    counts = ("parameters", "parameters_in_training_only", "macs")
    return {
        name: Entry(**{**row, **{field: Count(**row[field]) for field in counts}})
        for name, row in json.loads(FILE.read_text()).items()
    }


def compute_entry(name: str) -> Entry:
    """Measure one network for the catalogue."""
    from viaduct import models
    from viaduct.models.sizes import measure

    one_class, two_classes = measure(name, 1), measure(name, 2)
    module, record = models.import_family(one_class.family), models.families()[one_class.family]

    def count(figure: str) -> Count:
        return Count.from_values(getattr(one_class, figure), getattr(two_classes, figure))

    return Entry(
        one_class.family,
        (module.__doc__ or "").split("\n")[0].rstrip("."),
        record.classes,
        record.input_size,
        *map(count, ("parameters", "parameters_in_training_only", "multiplications")),
    )


def main() -> None:
    from viaduct import models

    rows = [f" {json.dumps(name)}: {json.dumps(asdict(compute_entry(name)))}" for name in models.names()]
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
