"""Spaces to search without measuring anything."""

from __future__ import annotations

from viaduct.search_space import Parameter, Point, Space

PARAMETERS = [
    *(
        Parameter("rows", (1, 2, 4, 8, 16, 32)),
        Parameter("columns", (1, 2, 4, 8, 16)),
        Parameter("unroll", (1, 2, 3, 4)),
    ),
    *(Parameter("order", ("ij", "ji", "k")), Parameter("prefetch", (False, True)), Parameter("stages", (1, 2, 3))),
]
DEFAULT = {"rows": 1, "columns": 1, "unroll": 1, "order": "ij", "prefetch": False, "stages": 1}
SMALL = Space([Parameter("a", (1, 2, 3)), Parameter("b", (1, 2))], default={"a": 2, "b": 1})


def spill_registers(point: Point) -> str | None:
    count = int(point["rows"]) * int(point["columns"])
    return f"{count} registers are more than 128" if count > 128 else None


SPACE = Space(PARAMETERS, [spill_registers], default=DEFAULT)  # 1,944 valid points
