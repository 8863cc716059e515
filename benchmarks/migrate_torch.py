"""Measure the time of `viaduct migrate` for one ImageNet-style PyTorch script, including start-up.

    python benchmarks/migrate_torch.py
    python benchmarks/migrate_torch.py --runs 9 --out docs/results/migrate_torch_cpu.json

The script is examples/torch/imagenet_ddp.py in a separate folder. Each run is a new process that writes a migrated
copy. If a vendor's own converter is installed, it does the same work in turns with viaduct, and the ratio is printed;
otherwise the table says that it is missing. Ascend's pytorch_gpu2npu.sh is found through ASCEND_TOOLKIT_HOME,
ASCEND_HOME_PATH or PATH; Cambricon's torch_gpu2mlu.py in torch_mlu or through TORCH_GPU2MLU. The aim is a median
under 1.5 s.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from run_description import write_record

from viaduct import devices

SCRIPT = Path(__file__).parents[1] / "examples" / "torch" / "imagenet_ddp.py"
PROMISE = 1.5
Command = Callable[[Path, Path], list[str]]  # of a project and a new folder


def make_command(to: str) -> Command:
    return lambda project, out: [
        *(sys.executable, "-m", "viaduct", "migrate"),
        str(project),
        "--to",
        to,
        "--out",
        str(out),
    ]


def find_ascend() -> Command | None:
    """Return the command of Ascend's converter, as its guide describes it; None if it is not installed."""
    homes = [os.environ[name] for name in ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH") if name in os.environ]
    candidates = [Path(home) / "tools" / "ms_fmk_transplt" / "pytorch_gpu2npu.sh" for home in homes]
    found = next((str(path) for path in candidates if path.is_file()), None) or shutil.which("pytorch_gpu2npu.sh")
    return (lambda project, out: ["bash", found, "-i", str(project), "-o", str(out), "-v", "2.1.0"]) if found else None


def find_cambricon() -> Command | None:
    """Return the command of Cambricon's converter, which writes beside its input; None if it is not installed."""
    spec = importlib.util.find_spec("torch_mlu")
    home = Path(spec.origin).parent if spec and spec.origin else None
    named = os.environ.get("TORCH_GPU2MLU")
    candidates = [Path(named)] if named else []
    candidates += [
        home.joinpath(*parts, "torch_gpu2mlu", "torch_gpu2mlu.py") for parts in (("tools",), ("..", "tools")) if home
    ]
    found = next((str(path) for path in candidates if path.is_file()), None)
    return (lambda project, out: [sys.executable, found, "-i", str(project)]) if found else None


VENDORS = {"npu": ("Ascend's converter", find_ascend), "mlu": ("Cambricon's converter", find_cambricon)}


def time_command(command: Command) -> float:
    """Return the seconds of one process on a fresh copy of the script."""
    with tempfile.TemporaryDirectory() as scratch:
        project, out = Path(scratch) / "project", Path(scratch) / "out"
        project.mkdir()
        shutil.copy(SCRIPT, project)
        command_line = command(project, out)
        began = time.perf_counter()
        answer = subprocess.run(command_line, capture_output=True, text=True)
        took = time.perf_counter() - began
    if answer.returncode != 0:
        sys.exit(f"{shlex.join(command_line)} ended with {answer.returncode}:\n{answer.stdout}{answer.stderr}")
    return took


def measure(to: str, runs: int) -> dict[str, Any]:
    title, find = VENDORS.get(to, ("", lambda: None))
    vendor = find()
    time_command(make_command(to))  # compiled modules and files are in memory from now on
    mine, theirs = [], []
    for _ in range(runs):
        mine.append(time_command(make_command(to)))
        if vendor:
            theirs.append(time_command(vendor))
    return {"to": to, "ours_s": mine, "vendor": title, "vendor_s": theirs}


def make_row(found: dict[str, Any]) -> dict[str, str]:
    mine, theirs = found["ours_s"], found["vendor_s"]
    missing = "not installed" if found["vendor"] else "none exists"
    return {
        "--to": found["to"],
        "median, s": f"{median(mine):.2f}",
        "fastest, s": f"{min(mine):.2f}",
        "slowest, s": f"{max(mine):.2f}",
        f"under {PROMISE} s": "yes" if median(mine) < PROMISE else "no",
        "vendor's tool, s": f"{median(theirs):.2f}" if theirs else missing,
        "ratio": f"{median(theirs) / median(mine):.1f}" if theirs else "",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--to", choices=["npu", "mlu", "any"], action="append", help="one of them; else all")
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    found = [measure(to, options.runs) for to in options.to or ("npu", "mlu", "any")]
    rows = [make_row(measured) for measured in found]
    widths = {column: max(len(column), *(len(line[column]) for line in rows)) for column in rows[0]}
    for line in [dict(zip(widths, widths, strict=True)), *rows]:
        print("  ".join(f"{line[column]:>{width}}" for column, width in widths.items()))
    if options.out:
        lines = SCRIPT.read_text().count("\n")
        note = f"{SCRIPT.name}, {lines} lines; a process of its own each time, from its start to a written copy."
        write_record(options.out, devices.get("cpu"), "Migrating one PyTorch script", rows, found, note)


if __name__ == "__main__":
    main()
