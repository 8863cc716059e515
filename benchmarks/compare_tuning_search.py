"""Compare the search methods of `viaduct tune` at equal numbers of measurements, on a recorded space.

    python benchmarks/compare_tuning_search.py [--seeds 100-129] [--table tests/tuning/recorded_space.json]

Prints a table in Markdown: how much slower than the exhaustive best the best point found is, the median over the seeds,
the worst seed, and the share of seeds within 3 %. Times are replayed from the record; nothing is measured.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "tuning"))

from recorded_space import RecordedSpace, read_recorded_space  # noqa: E402

MODES = ("GA", "RL", "RL,GA", "random")
COUNTS = (50, 100, 150, 200)


def format_row(recorded: RecordedSpace, mode: str, seeds: range) -> str:
    cells = []
    for count in COUNTS:
        gaps = [recorded.replay(mode, seed, count) for seed in seeds]
        near = sum(gap <= 0.03 for gap in gaps) / len(gaps)
        cells.append(f"{statistics.median(gaps):.1%} (worst {max(gaps):.1%}; {near:.0%})")
    return f"| {mode} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="100-129")
    parser.add_argument("--table", type=Path, default=ROOT / "tests" / "tuning" / "recorded_space.json")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split("-"))
    recorded = read_recorded_space(arguments.table)
    space, best = recorded.space, recorded.best
    near = sum(time <= best * 1.03 for time in recorded.times.values())
    default = recorded.times[space.encode(space.default)]
    print(f"{space.size} points, best {best} us, default {default} us, {near} points within 3 % of the best\n")
    print("| method | " + " | ".join(f"{count} measurements" for count in COUNTS) + " |")
    print("| --- " * (len(COUNTS) + 1) + "|")
    for mode in MODES:
        print(format_row(recorded, mode, range(first, last + 1)), flush=True)


if __name__ == "__main__":
    main()
