"""Profile eight scripts with a planted problem and ten healthy ones, and check the advice of `viaduct profile run`.

    python benchmarks/planted_problems.py [--only tiny_batches,mlp] [--steps 20] [--out FILE]

Each script in tests/profiling/scripts has one problem; those in tests/profiling/healthy have none. They are profiled
on the CPU by the ordinary command, those of several ranks with gloo. A problem counts as found if the first advice is
the one for this problem. A healthy run counts as quiet if there is no advice at all.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from profiling.problem_cases import HEALTHY, PLANTED, Case, profile_case
from viaduct import devices
from viaduct.training.summary import describe_machine, read_commit


@dataclass(frozen=True)
class Row:
    """Result of one case."""

    case: str
    expected: str
    found: list[str]  # rules in their order
    title: str
    gain_ms: float | None
    iteration_ms: float | None
    right: bool | None  # None: could not be run here
    seconds: float

    def __str__(self) -> str:
        verdict = "-" if self.right is None else "right" if self.right else "WRONG"
        iteration = "-" if self.iteration_ms is None else f"{self.iteration_ms:.1f}"
        gain = "-" if self.gain_ms is None else f"{self.gain_ms:.3g}"
        return f"{self.case:20} {self.expected or 'nothing':16} {verdict:6} {iteration:>9} {gain:>9}  {self.title}"


def run_case(case: Case, steps: int) -> Row:
    if case.obstacle:
        return Row(case.name, case.expected, [], case.obstacle, None, None, None, 0.0)
    began = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            profile = profile_case(case, Path(folder) / "prof", steps)
    except RuntimeError as error:  # go on with the other cases
        return Row(case.name, case.expected, [], str(error).splitlines()[-1], None, None, False, 0.0)
    names = [advice.name for advice in profile.advice]
    right = names[:1] == [case.expected] if case.expected else not names
    first = profile.advice[0] if profile.advice else None
    gain = None if first is None or first.gain_us is None else first.gain_us / 1e3
    iteration = None if profile.iteration_us is None else profile.iteration_us / 1e3
    title = first.title if first else "nothing stands out"
    return Row(case.name, case.expected, names, title, gain, iteration, right, time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", default="", help="names of cases, with commas")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    cases = [case for case in (*PLANTED, *HEALTHY) if not only or case.name in only]
    print(f"{'case':20} {'first advice':16} {'':6} {'step ms':>9} {'gain ms':>9}  what it said", flush=True)
    rows = []
    for case in cases:
        rows.append(run_case(case, options.steps))
        print(rows[-1], flush=True)
    print_count("problems found", [row for row in rows if row.expected])
    print_count("healthy runs without advice", [row for row in rows if not row.expected])
    if options.out:
        facts = {"date": datetime.now(timezone.utc).isoformat(timespec="seconds"), "commit": read_commit()}
        record = {**facts, "machine": describe_machine(devices.get("cpu")), "rows": [asdict(row) for row in rows]}
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(row.right is not False for row in rows) else 1


def print_count(label: str, rows: list[Row]) -> None:
    run = [row for row in rows if row.right is not None]
    if run:
        print(f"{label}: {sum(bool(row.right) for row in run)} of {len(run)}")


if __name__ == "__main__":
    sys.exit(main())
