"""Scripts with one planted problem each, and healthy ones, profiled with the real `viaduct profile run`.

`benchmarks/planted_problems.py` prints a table of them; test_planted_problems.py, which is slow, tests each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from viaduct.devices import cpu
from viaduct.profiling.folder import read_profile
from viaduct.profiling.record import Profile

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """One script or recipe, and the advice that must come first; none for a healthy one."""

    name: str
    target: str
    expected: str = ""
    ranks: int = 1
    needs_bf16: bool = False

    @property
    def obstacle(self) -> str:
        """Return why the case cannot be run on this machine; nothing where it can."""
        if self.needs_bf16 and "bf16" not in cpu.list_native_dtypes():
            return "this processor has no bf16 instructions"
        return ""


def plant_problem(file: str, expected: str, ranks: int = 1, needs_bf16: bool = False) -> Case:
    return Case(file, str(HERE / "scripts" / f"{file}.py"), expected, ranks, needs_bf16)


def healthy(file: str, ranks: int = 1, needs_bf16: bool = False) -> Case:
    return Case(file, str(HERE / "healthy" / f"{file}.py"), "", ranks, needs_bf16)


PLANTED = (
    plant_problem("slow_loader", "loader"),
    plant_problem("item_each_step", "synchronisation"),
    plant_problem("fp32_layer", "fp32_island", needs_bf16=True),
    plant_problem("channels_first", "layout"),
    plant_problem("tiny_batches", "small_batch"),
    plant_problem("uneven_ranks", "stragglers", ranks=2),
    plant_problem("recompile_each_step", "recompilation"),
    plant_problem("manual_all_reduce", "communication", ranks=2),
)
HEALTHY = (
    healthy("mlp"),
    healthy("cnn_channels_last"),
    healthy("vit"),
    healthy("rnn"),
    healthy("bf16_autocast", needs_bf16=True),
    healthy("ddp", ranks=2),
    healthy("loader_workers"),
    healthy("accumulation"),
    healthy("compiled"),
    Case("shapes_taster", "shapes_taster"),
)


def profile_case(case: Case, out: Path, steps: int = 20) -> Profile:
    """Run `viaduct profile run` on a case and return the profile with its advice."""
    command = [sys.executable, "-m", "viaduct", "profile", "run", case.target, "--steps", str(steps), "--out", str(out)]
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    ended = subprocess.run(
        [*command, "--ranks", str(case.ranks)], capture_output=True, text=True, env=environment, cwd=out.parent
    )
    if ended.returncode:
        raise RuntimeError(f"{case.name} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return read_profile(out)
