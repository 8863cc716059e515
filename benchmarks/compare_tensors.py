"""Seconds to compare 200 pairs of 4 MB float32 tensors: `viaduct compare` against msprobe's, whole commands.

    python benchmarks/compare_tensors.py [--peer-python VENV/bin/python] [--repeats 3] [--out FILE]

Makes two dumps in msprobe's layout (a golden one, and one with an error of 1e-3 in every element), which both tools
read, and runs both commands alternately; the table shows medians. Time counts from the start of the process to its
end, memory is the largest sum over the processes of a command. Without --peer-python msprobe is installed into an
environment of its own in a temporary folder, which needs a package registry.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from run_description import describe_run

from viaduct import devices

PEER = "mindstudio-probe==26.2.0"
TORCH = "torch==2.13.0"
SHAPE = (4, 256, 32, 32)  # 1,048,576 float32: 4 MB
ERROR = 1e-3  # beyond our limits: every row is bad and the explanation runs too
NOTE = (
    "Whole commands with their start, run alternately; medians. CPU seconds are those of all processes of a command: "
    "they depend less on what else the machine does. We compute ten measures, histograms, an explanation and a page; "
    "msprobe six measures and a CSV. Memory does not count pages of mapped files."
)


class Sample(NamedTuple):
    seconds: float
    cpu_seconds: float
    memory_mib: float  # the largest sum over the processes of the command


Samples = dict[str, list[Sample]]


def make_dumps(folder: Path, pairs: int) -> tuple[Path, Path]:
    """Two dumps of `pairs` modules with one output each."""
    generator = np.random.default_rng(0)
    sides = folder / "npu", folder / "gpu"
    entries: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for side in sides:
        (side / "step0" / "rank0" / "dump_tensor_data").mkdir(parents=True)
    for number in range(pairs):
        golden = generator.standard_normal(SHAPE, dtype=np.float32)
        noise = generator.standard_normal(SHAPE, dtype=np.float32)
        for side, values, written in zip(sides, (golden + np.float32(ERROR) * noise, golden), entries, strict=True):
            name = f"Module.layers.{number}.Conv2d.forward.0"
            written[name] = entry(side / "step0" / "rank0" / "dump_tensor_data", f"{name}.output.0.pt", values)
    for side, written in zip(sides, entries, strict=True):
        write_documents(side / "step0" / "rank0", written)
    return sides


def entry(folder: Path, name: str, values: np.ndarray) -> dict[str, Any]:
    """What dump.json says of a module with one output."""
    torch.save(torch.from_numpy(values), folder / name)
    wide = values.astype(np.float64)
    tensor = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": list(values.shape),
        "Max": wide.max(),
        "Min": wide.min(),
        "Mean": wide.mean(),
        "Norm": float(np.sqrt((wide**2).sum())),
        "requires_grad": True,
        "data_name": name,
    }
    return {"input_args": [], "input_kwargs": {}, "output": [tensor]}


def write_documents(folder: Path, written: dict[str, Any]) -> None:
    head = {"task": "tensor", "level": "L0", "framework": "pytorch", "dump_data_dir": str(folder / "dump_tensor_data")}
    (folder / "dump.json").write_text(json.dumps({**head, "data": written}))
    (folder / "construct.json").write_text(json.dumps(dict.fromkeys(written)))
    stacks = {str(number): [[name], ["File train.py, line 1, in main"]] for number, name in enumerate(written)}
    (folder / "stack.json").write_text(json.dumps(stacks))


def install_peer(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    for package in (TORCH, PEER):
        subprocess.run([folder / "bin/pip", "install", "-q", package], check=True)
    return folder / "bin/python"


def run_timed(command: list[str], allowed: tuple[int, ...]) -> Sample:
    """Run a command to its end, watching the memory of all its processes."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    begin, worked = time.perf_counter(), children_worked()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment)
        largest = 0.0
        while process.poll() is None:
            largest = max(largest, sum(map(private_memory, family(process.pid))))
            time.sleep(0.05)
        seconds = time.perf_counter() - begin
        said.seek(0)
        if process.returncode not in allowed:
            sys.exit(f"{shlex.join(command)} ended with {process.returncode}:\n{said.read().decode()[-3000:]}")
    return Sample(seconds, children_worked() - worked, largest)


def children_worked() -> float:
    """CPU seconds of the processes that have ended, with their own children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(member for child in children for member in family(int(child)))]


def private_memory(pid: int) -> float:
    """MiB that this process alone keeps; pages of mapped files are the system's cache and are not counted."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def commands(peer: Path, sides: tuple[Path, Path], folder: Path, repeat: int) -> dict[str, list[str]]:
    left, right = (str(side / "step0" / "rank0" / "dump.json") for side in sides)
    ours, theirs = folder / f"viaduct{repeat}", folder / f"msprobe{repeat}"
    verb = [sys.executable, "-m", "viaduct", "compare", *map(str, sides), "--out", str(ours)]
    program = [str(peer.with_name("msprobe")), "compare", "-tp", left, "-gp", right, "-o", str(theirs)]
    return {"viaduct compare": verb, "msprobe 26.2 compare": program}


def check(folder: Path, pairs: int, repeat: int) -> None:
    """Both tools must have compared every pair, or the times mean nothing."""
    ours = (folder / f"viaduct{repeat}" / "drift.csv").read_text().splitlines()
    theirs = next((folder / f"msprobe{repeat}").glob("compare_result_*.csv")).read_text().splitlines()
    assert len(ours) - 1 == len(theirs) - 1 == pairs, (len(ours), len(theirs))
    assert not any("refused" in line or "N/A" in line for line in ours)


def measure(peer: Path, pairs: int, repeats: int) -> Samples:
    samples: Samples = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sides = make_dumps(folder, pairs)
        for repeat in range(repeats):
            for tool, command in commands(peer, sides, folder, repeat).items():
                sample = run_timed(command, allowed=(0, 1))
                samples.setdefault(tool, []).append(sample)
                text = f"{sample.seconds:7.2f} s {sample.cpu_seconds:7.2f} CPU s {sample.memory_mib:7.0f} MiB"
                print(f"{tool:22s} {text}", file=sys.stderr)
            check(folder, pairs, repeat)
            for tool in ("viaduct", "msprobe"):
                shutil.rmtree(folder / f"{tool}{repeat}")
    return samples


def rows_of(samples: Samples) -> list[dict[str, str]]:
    rows = []
    for tool, taken in samples.items():
        seconds, worked = median(s.seconds for s in taken), median(s.cpu_seconds for s in taken)
        peers = samples["msprobe 26.2 compare"]
        rows.append(
            {
                "tool": tool,
                "seconds": f"{seconds:.2f}",
                "ratio": f"{seconds / median(s.seconds for s in peers):.3f}",
                "CPU seconds": f"{worked:.2f}",
                "ratio of CPU": f"{worked / median(s.cpu_seconds for s in peers):.3f}",
                "peak memory MiB": f"{max(s.memory_mib for s in taken):,.0f}",
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", type=Path, help="the Python of an environment that has msprobe")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        peer = options.peer_python or install_peer(Path(folder))
        samples = measure(peer.absolute(), options.pairs, options.repeats)
    rows = rows_of(samples)
    for row in rows:
        print(" ".join(f"{value:>22s}" for value in row.values()))
    if options.out:
        record = {
            "kind": "benchmark",
            "title": f"Comparing {options.pairs} pairs of 4 MB float32 tensors",
            **describe_run(devices.get("cpu")),
            "columns": list(rows[0]),
            "rows": rows,
            "note": NOTE,
            "samples": {tool: [sample._asdict() for sample in taken] for tool, taken in samples.items()},
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
