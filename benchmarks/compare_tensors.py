"""Compare 200 pairs of 4 MB float32 tensors with `viaduct compare` and with msprobe; measure whole commands.

    python benchmarks/compare_tensors.py [--peer-python VENV/bin/python] [--repeats 3] [--out FILE]

The script writes two dumps in msprobe's layout, which both tools read: a golden one, and one with an error of 1e-3 in
every element. It runs the two commands alternately and prints medians. Time is that of the whole process; memory is
the largest sum over the processes of a command. Without --peer-python it installs msprobe into a temporary
environment, which needs a package registry.
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
from run_description import write_record

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
    """Write two dumps of `pairs` modules with one output each."""
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
            written[name] = save_output(side / "step0" / "rank0" / "dump_tensor_data", f"{name}.output.0.pt", values)
    for side, written in zip(sides, entries, strict=True):
        write_documents(side / "step0" / "rank0", written)
    return sides


def save_output(folder: Path, name: str, values: np.ndarray) -> dict[str, Any]:
    """Save the output of a module, and return its entry in dump.json."""
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
    """Run a command and sample the memory of all its processes."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    begin, worked = time.perf_counter(), children_cpu_seconds()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        largest = 0.0
        while process.poll() is None:
            largest = max(largest, sum(map(read_private_memory, list_family(process.pid))))
            time.sleep(0.05)
        seconds = time.perf_counter() - begin
        output.seek(0)
        if process.returncode not in allowed:
            sys.exit(f"{shlex.join(command)} ended with {process.returncode}:\n{output.read().decode()[-3000:]}")
    return Sample(seconds, children_cpu_seconds() - worked, largest)


def children_cpu_seconds() -> float:
    """Return CPU seconds of all child processes that have ended, with their children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def list_family(pid: int) -> list[int]:
    """Return the ids of a process and its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(member for child in children for member in list_family(int(child)))]


def read_private_memory(pid: int) -> float:
    """Return the MiB of a process without pages of mapped files, which belong to the page cache."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def make_commands(peer: Path, sides: tuple[Path, Path], folder: Path, repeat: int) -> dict[str, list[str]]:
    left, right = (str(side / "step0" / "rank0" / "dump.json") for side in sides)
    ours, theirs = folder / f"viaduct{repeat}", folder / f"msprobe{repeat}"
    verb = [sys.executable, "-m", "viaduct", "compare", *map(str, sides), "--out", str(ours)]
    program = [str(peer.with_name("msprobe")), "compare", "-tp", left, "-gp", right, "-o", str(theirs)]
    return {"viaduct compare": verb, "msprobe 26.2 compare": program}


def check_complete(folder: Path, pairs: int, repeat: int) -> None:
    """Assert that both tools compared every pair."""
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
            for tool, command in make_commands(peer, sides, folder, repeat).items():
                sample = run_timed(command, allowed=(0, 1))
                samples.setdefault(tool, []).append(sample)
                text = f"{sample.seconds:7.2f} s {sample.cpu_seconds:7.2f} CPU s {sample.memory_mib:7.0f} MiB"
                print(f"{tool:22s} {text}", file=sys.stderr)
            check_complete(folder, pairs, repeat)
            for tool in ("viaduct", "msprobe"):
                shutil.rmtree(folder / f"{tool}{repeat}")
    return samples


def make_rows(samples: Samples) -> list[dict[str, str]]:
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
    rows = make_rows(samples)
    for row in rows:
        print(" ".join(f"{value:>22s}" for value in row.values()))
    if options.out:
        title = f"Comparing {options.pairs} pairs of 4 MB float32 tensors"
        by_tool = {tool: [sample._asdict() for sample in taken] for tool, taken in samples.items()}
        write_record(options.out, devices.get("cpu"), title, rows, by_tool, NOTE)


if __name__ == "__main__":
    main()
