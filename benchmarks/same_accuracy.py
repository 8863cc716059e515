"""Compare the accuracy of fast and plain training: the same recipe with several seeds.

    python benchmarks/same_accuracy.py --data cifar-10-batches-bin --device cuda

quick: bf16, graph mode, sinks, viaduct's kernels (if the device has them). plain: fp32, eager, every step driven by
the host, PyTorch's kernels. The script prints the top-1 of every run, both means, their difference and its standard
error. It exits with 1 if the difference is at least 0.3 points and at least two standard errors. --at-once N runs N
trainings in parallel: their rates then mean nothing, but their accuracy is valid.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

POINTS = 0.3
WAYS = {
    "quick": ["--precision", "bf16", "--mode", "graph", "--sink", "50", "--kernels", "auto"],
    "plain": ["--precision", "fp32", "--mode", "eager", "--sink", "0", "--kernels", "off"],
}


def train(options: argparse.Namespace, variant: str, seed: int) -> dict[str, Any]:
    run = options.runs / f"{variant}-{seed}"
    command = [sys.executable, "-m", "viaduct", "train", options.recipe, "--data", str(options.data)]
    command += ["--device", options.device, "--run", str(run), "--seed", str(seed), "--epochs", str(options.epochs)]
    made = subprocess.run([*command, "--eval-every", "0", *WAYS[variant]], capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"{variant}, seed {seed}: {(made.stderr or made.stdout).strip()[-2000:]}")
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    print(f"{variant}, seed {seed}: {100 * summary['final']['top1']:.2f} %", flush=True)
    return summary


def compare_means(quick: list[float], plain: list[float]) -> tuple[float, float]:
    """Return the difference of the means and its standard error, in percentage points."""
    error = math.sqrt(stdev(quick) ** 2 / len(quick) + stdev(plain) ** 2 / len(plain))
    return fmean(quick) - fmean(plain), error


def make_row(variant: str, runs: list[dict[str, Any]], tops: list[float]) -> dict[str, str]:
    last = runs[-1]
    kernels = last.get("own_kernels") or 0
    how = f"{last['precision']}, {last['mode']}, sink {last['sink']}{' on the device' * bool(last['sink_on_device'])}, "
    each = ", ".join(f"{top:.2f}" for top in tops)
    return {
        "way": variant,
        "how": f"{how}{kernels} parts on own kernels",
        "top-1 % by seed": each,
        "mean": f"{fmean(tops):.2f}",
        "deviation": f"{stdev(tops):.2f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="resnet50_cifar10_modern")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/same_accuracy"), help="where the runs go")
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error("--seeds must be at least 2: one run has no deviation")
    wanted = [(variant, seed) for seed in range(1, options.seeds + 1) for variant in ("plain", "quick")]
    with ThreadPoolExecutor(options.at_once) as pool:
        done = dict(zip(wanted, pool.map(lambda run: train(options, *run), wanted), strict=True))
    runs = {variant: [done[variant, seed] for seed in range(1, options.seeds + 1)] for variant in WAYS}
    tops = {variant: [100 * run["final"]["top1"] for run in runs[variant]] for variant in WAYS}
    difference, error = compare_means(tops["quick"], tops["plain"])
    harmless = abs(difference) < POINTS or abs(difference) < 2 * error
    for variant in WAYS:
        print(make_row(variant, runs[variant], tops[variant]))
    print(f"quick - plain: {difference:+.2f} points, standard error {error:.2f}: {'harmless' if harmless else 'HARM'}")
    if options.out:
        options.out.write_text(json.dumps(make_record(options, runs, tops, difference, error), indent=1) + "\n")
    sys.exit(0 if harmless else 1)


def make_record(
    options: argparse.Namespace,
    runs: dict[str, list[dict[str, Any]]],
    tops: dict[str, list[float]],
    difference: float,
    error: float,
) -> dict[str, Any]:
    any_run = runs["quick"][0]
    side = f" {options.at_once} trainings shared the device, so there are no rates." if options.at_once > 1 else ""
    flags = f"--data DIR --device {options.device} --epochs {options.epochs} --seeds {options.seeds}"
    return {
        "kind": "benchmark",
        "title": f"{options.recipe}, {options.epochs} epochs: quick steps against plain ones",
        "command": f"python benchmarks/same_accuracy.py {flags} --at-once {options.at_once}",
        "commit": any_run["commit"],
        "machine": any_run["machine"],
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "note": f"Difference of the means {difference:+.2f} points, standard error {error:.2f}.{side} Quick: "
        f"`{shlex.join(WAYS['quick'])}`; plain: `{shlex.join(WAYS['plain'])}`.",
        "columns": ["way", "how", "top-1 % by seed", "mean", "deviation"],
        "rows": [make_row(variant, runs[variant], tops[variant]) for variant in WAYS],
        "samples": {
            variant: [{"seed": run["seed"], "top1": run["final"]["top1"]} for run in taken]
            for variant, taken in runs.items()
        },
    }


if __name__ == "__main__":
    main()
