"""Measure how much data around a script slows `viaduct carry` down.

    python benchmarks/carry_large_folder.py [--turns 3] [--out FILE]

The folders contain 20 GiB of sparse files, 50 GiB of checkpoints or 20,000 small files beside the same script, and
are compared with a folder that contains the script only. Turns alternate; seconds are medians of whole commands.
`more` is the additional time, `more CPU` the additional CPU time, which depends less on other work on the machine.
Sparse files need disk space only if they are copied.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from run_description import write_record

from viaduct import devices

SCRIPT = """\
import torch

model = torch.nn.Linear(8, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    x = torch.randn(4, 8).cuda()
    loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 0, 1]).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def make_sparse(folder: Path, name: str, count: int, gibibytes: int) -> None:
    folder.mkdir()
    for number in range(count):
        with (folder / f"{name}_{number}").open("wb") as file:
            file.truncate(gibibytes << 30)


def make_small(folder: Path, count: int) -> None:
    for number in range(count):
        inside = folder / f"class_{number % 20}"
        inside.mkdir(parents=True, exist_ok=True)
        (inside / f"{number}.txt").write_bytes(b"0123456789" * 100)


FOLDERS: dict[str, Callable[[Path], None]] = {
    "nothing else": lambda folder: None,
    "20 GiB of sparse files": lambda folder: make_sparse(folder / "data", "part", 20, 1),
    "50 GiB of checkpoints": lambda folder: make_sparse(folder / "checkpoints", "model.ckpt", 10, 5),
    "20,000 small files": lambda folder: make_small(folder / "data", 20_000),
}


def carry(folder: Path) -> tuple[float, float]:
    """Return wall-clock and CPU seconds of one `viaduct carry`, including its child processes."""
    command = [sys.executable, "-m", "viaduct", "carry", str(folder), "--entry", "train.py", "--steps", "3"]
    out = folder.with_name("carried")
    before, worked = time.perf_counter(), children_cpu_seconds()
    answer = subprocess.run([*command, "--out", str(out)], cwd=folder, capture_output=True, text=True)
    seconds, work = time.perf_counter() - before, children_cpu_seconds() - worked
    if answer.returncode != 0:
        raise SystemExit(f"carry ended with {answer.returncode}:\n{answer.stderr}{answer.stdout}")
    shutil.rmtree(out)
    return seconds, work


def children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the figures here, for docs/results/")
    options = parser.parse_args()
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in FOLDERS}
    with tempfile.TemporaryDirectory() as parent:
        for number, (_, fill) in enumerate(FOLDERS.items()):
            folder = Path(parent) / str(number) / "project"
            folder.mkdir(parents=True)
            (folder / "train.py").write_text(SCRIPT)
            fill(folder)
        for _ in range(options.turns):
            for number, name in enumerate(FOLDERS):
                samples[name].append(carry(Path(parent) / str(number) / "project"))
    typical = {
        name: [statistics.median(column) for column in zip(*pairs, strict=True)] for name, pairs in samples.items()
    }
    base, work = typical["nothing else"]
    rows = []
    for name, (seconds, worked) in typical.items():
        row = {"folder": name, "seconds": f"{seconds:.1f}", "more": f"{seconds - base:+.1f} s"}
        rows.append({**row, "more CPU": f"{worked - work:+.1f} s"})
        print(
            f"{name:>25s} {seconds:6.1f} s {seconds - base:+5.1f} s {seconds / base:5.2f} CPU {worked - work:+5.1f} s"
        )
    if options.out:
        title = "`viaduct carry` of a small script, with data next to it"
        write_record(options.out, devices.get("cpu"), title, rows, {"seconds": samples})


if __name__ == "__main__":
    main()
