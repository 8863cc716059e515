"""A tuning space that was measured point by point, to be searched without measuring again.

`recorded_space.json` is what benchmarks/record_tuning_space.py wrote; it names operator, machine and command.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from viaduct.search_space import Code, Parameter, Point, Space
from viaduct.tuning.search import make_searcher

TABLE = Path(__file__).with_name("recorded_space.json")


@dataclass(frozen=True)
class RecordedSpace:
    """A space and the time of each of its points, in microseconds."""

    space: Space
    times: dict[Code, float]
    facts: dict[str, str]

    @property
    def best(self) -> float:
        return min(self.times.values())

    def replay(self, mode: str, seed: int, measurements: int) -> float:
        """Return how far the best point found is above the best there is: 0.03 is 3 % slower."""
        searcher = make_searcher(mode, self.space, seed, measurements)
        while (point := searcher.ask()) is not None:
            searcher.tell(point, self.times[self.space.encode(point)])
        assert searcher.best is not None
        return searcher.best[1] / self.best - 1


def read_recorded_space(path: Path = TABLE) -> RecordedSpace:
    table = json.loads(path.read_text())
    most = table["max_accumulators"]

    def limit_accumulators(point: Point) -> str | None:
        return "too many accumulators" if int(point["rows"]) * int(point["vectors"]) > most else None

    parameters = [Parameter(name, tuple(values)) for name, values in table["parameters"].items()]
    space = Space(parameters, [limit_accumulators], default=table["default"])
    facts = {name: table[name] for name in ("operator", "machine", "compiler", "date", "command")}
    return RecordedSpace(space, dict(zip(space.codes, table["times_us"], strict=True)), facts)
