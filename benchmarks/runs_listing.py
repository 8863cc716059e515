"""Measure `viaduct runs` over thousands of run directories.

    python benchmarks/runs_listing.py                    2,000 runs of 60 log lines with 600 losses each
    python benchmarks/runs_listing.py --runs 500 --repeat 3

cold    no index: every file of every run is read (the files themselves are in the page cache)
warm    an index exists and nothing has changed
grown   100 of the runs have one more log line

Times are those of the whole command, a new process that writes its table to a file; medians of --repeat.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from runs.sample_runs import make_run

GROWN = 100
LINE = '{"kind": "log", "step": 610, "epoch": 1.0, "loss": 0.2, "top1": 0.5, "lr": 0.1, "images_per_s": 640.0}\n'


def time_command(folder: Path, cache: Path) -> float:
    """Return the seconds of one `viaduct runs`."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "viaduct", "runs", str(folder)], env=environment, stdout=out, check=True)
        seconds = time.perf_counter() - began
        assert out.tell() > 0, "nothing was printed"
    return seconds


def measure(folder: Path, cache: Path, repeat: int) -> dict[str, float]:
    times: dict[str, list[float]] = {"cold": [], "warm": [], "grown": []}
    for _ in range(repeat):
        shutil.rmtree(cache, ignore_errors=True)
        times["cold"].append(time_command(folder, cache))
        times["warm"].append(time_command(folder, cache))
        for run in sorted(folder.iterdir())[:GROWN]:
            with (run / "metrics.jsonl").open("a") as file:
                file.write(LINE)
        times["grown"].append(time_command(folder, cache))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "runs"
        for number in range(arguments.runs):
            make_run(folder / f"try{number:05}", lr=0.01 * (1 + number % 40), seed=number)
        times = measure(folder, Path(temporary) / "cache", arguments.repeat)
    print(f"{arguments.runs:,} runs on {platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    for name, seconds in times.items():
        print(f"{name:6} {seconds:.2f} s")


if __name__ == "__main__":
    main()
