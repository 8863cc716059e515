"""Reference dump of a TensorFlow 1 script: every tensor of chosen steps, in tfdbg's names.

    OUT/step_000000/{operator, / and . as _}.{output}.{time in microseconds}.npy

The script is not changed: no session is wrapped by hand, nothing is pasted into a debugger. All files of a step bear
one time; of two operators whose names become one the second has an earlier one, and readers take the first. Names that
are too long for a file system are written under a number, with `mapping.csv` beside them.
"""

from __future__ import annotations

import csv
import fnmatch
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from viaduct.rehearsal import tf1_stage
from viaduct.scripts.runner import Ended, Script, StopScript, run_script

LONGEST = 255


def dump(golden: Golden, script: Script) -> Ended:
    """Run a script on the stage, on the CPU, and write its steps; how it ended."""
    tf1_stage.install("original")
    from viaduct.rehearsal.tf1_stage import sessions

    sessions.observers.append(observer_of(golden))
    ended = run_script(script)
    golden.abandon()
    return ended


@dataclass
class Golden:
    """The steps and operators to dump, and the files written."""

    folder: Path
    chosen: Callable[[int], bool]  # whether a step is to be written
    last: int
    run_on: bool = False
    only: tuple[str, ...] = ()  # shell patterns of operators' names; none: all
    taken: int = 0
    written: dict[int, int] = field(default_factory=dict)  # tensors by step
    met: set[str] = field(default_factory=set)  # names of operators, where only some are wanted
    left_out: int = 0  # operators inside loops and branches, of the last step

    def write(self, step: int, values: list[tuple[str, int, np.ndarray[Any, Any]]], time: int) -> None:
        """Beside its place first: a step is there whole or not at all."""
        beside = self.folder / f".step_{step:06d}.part"
        beside.mkdir(parents=True)
        taken: dict[str, str] = {}  # a file's name, and how the operator would have it called
        for op, index, array in values:
            name = file_name(op, index, time, taken)
            np.save(beside / name, array, allow_pickle=False)
        if long := [(name.removesuffix(".npy"), full) for name, full in taken.items() if name != full]:
            with (beside / "mapping.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows(long)
        beside.rename(self.folder / f"step_{step:06d}")
        self.written[step] = len(values)

    def wants(self, op: str) -> bool:
        """Return True if an operator is dumped."""
        if self.only:
            self.met.add(op)
        return not self.only or any(fnmatch.fnmatchcase(op, pattern) for pattern in self.only)

    def abandon(self) -> None:
        """Remove an unfinished dump."""
        for beside in self.folder.glob(".step_*.part"):
            shutil.rmtree(beside)


def file_name(op: str, index: int, time: int, taken: dict[str, str]) -> str:
    """Return a file name for an output: an earlier time if it is taken, a number if it is too long."""
    stem = f"{re.sub(r'[/.]', '_', op)}.{index}"
    while (full := f"{stem}.{time}.npy") in taken.values():
        time -= 1
    name = full if len(full) < LONGEST else f"{len(taken)}.npy"
    taken[name] = full
    return name


def observer_of(golden: Golden) -> Any:
    """Return the observer that writes a dump."""
    from viaduct.rehearsal.tf1_stage import reach, sessions, snapshot

    class Dumping(sessions.Observer):
        def begins(self, run: sessions.Pass) -> None:
            if run.training and golden.taken > golden.last and not golden.run_on:
                raise StopScript

        def select_tensors(self, run: sessions.Pass) -> list[Any]:
            tensors: list[Any] = []
            run.notes[id(self)] = tensors
            if run.training and golden.chosen(golden.taken):
                tensors += snapshot.list_tensors(run)
                dead = reach.perhaps_dead(run.reach.ops)
                outputs = [tensor for op in run.reach.ops for tensor in op.outputs]
                golden.left_out = sum(tensor.op in dead or reach.in_a_branch(tensor) for tensor in outputs)
            return tensors

        def receive_values(self, run: sessions.Pass, values: list[Any]) -> None:
            if not run.training:
                return
            if tensors := run.notes[id(self)]:
                found = [v for v in snapshot.iterate_values(run, tensors, values) if golden.wants(v.op.name)]
                golden.write(golden.taken, [(v.op.name, v.index, v.array) for v in found], snapshot.microseconds())
            golden.taken += 1

    return Dumping()
