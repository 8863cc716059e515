"""Sizes and sources of all networks, without building one: importing torch alone takes seconds.

    entry = catalogue.entries()["resnet50_v1"]
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
    """Figure that grows with the number of classes."""

    fixed: int
    per_class: int

    @staticmethod
    def through(at_one: int, at_two: int) -> Count:
        """Return the figure that has these values for one class and for two."""
        return Count(2 * at_one - at_two, at_two - at_one)

    def at(self, classes: int) -> int:
        """Return the figure for so many classes."""
        return self.fixed + self.per_class * classes


@dataclass(frozen=True)
class Entry:
    """Network as `viaduct models` lists it."""

    family: str
    source: str  # first line of the family's docstring
    classes: int  # of the reference
    input_size: int  # pixels
    parameters: Count
    parameters_in_training_only: Count
    macs: Count


@cache
def entries() -> dict[str, Entry]:
    """Read the catalogue: networks by name, family by family."""
    counts = ("parameters", "parameters_in_training_only", "macs")
    return {
        name: Entry(**{**row, **{field: Count(**row[field]) for field in counts}})
        for name, row in json.loads(FILE.read_text()).items()
    }


def compute_entry(name: str) -> Entry:
    """Measure one network for the catalogue."""
    from viaduct import models
    from viaduct.models.sizes import measure

    few, more = measure(name, 1), measure(name, 2)
    module, record = models.module_of(few.family), models.families()[few.family]

    def count(figure: str) -> Count:
        return Count.through(getattr(few, figure), getattr(more, figure))

    return Entry(
        few.family,
        (module.__doc__ or "").split("\n")[0].rstrip("."),
        record.classes,
        record.input_size,
        *map(count, ("parameters", "parameters_in_training_only", "multiplications")),
    )


def main() -> None:
    """Write catalogue.json."""
    from viaduct import models

    rows = [f" {json.dumps(name)}: {json.dumps(asdict(compute_entry(name)))}" for name in models.names()]
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
