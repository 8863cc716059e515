"""Reference (golden) dump of a TensorFlow 1 script: the tensors of chosen training steps, in tfdbg's names.

    OUT/step_000000/{operator, / and . as _}.{output}.{time in microseconds}.npy

The script is not changed: no session is wrapped by hand, nothing is pasted into a debugger. Tensors that cannot be
fetched (`snapshot.py`) are left out. All files of a step have the same time. Where the names of two operators become
the same file name, the second gets an earlier time; readers take the file with the latest. Names that are too long for
a file system are written under a number, with `mapping.csv` beside them.
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

MAX_NAME_LENGTH = 255  # of a file, on common file systems


def dump_script(golden: Golden, script: Script) -> Ended:
    """Run a script on the CPU, where GPU devices are the CPU too, dump its steps, and return how it ended."""
    tf1_stage.install("original")
    from viaduct.rehearsal.tf1_stage import sessions

    sessions.observers.append(make_observer(golden))
    ended = run_script(script)
    for incomplete in golden.folder.glob(".step_*.part"):
        shutil.rmtree(incomplete)
    return ended


@dataclass
class Golden:
    """Reference dump: the steps and operators to dump, and what was written so far."""

    folder: Path
    chosen: Callable[[int], bool]  # returns True for a step that is to be dumped
    last: int  # the last step to dump; the script is stopped at the step after it
    run_on: bool = False  # do not stop the script after `last`
    only: tuple[str, ...] = ()  # shell patterns of operators' names; empty: all operators
    taken: int = 0  # training steps so far
    written: dict[int, int] = field(default_factory=dict)  # number of tensors by step
    met: set[str] = field(default_factory=set)  # with `only`, the names of all operators that were tested
    left_out: int = 0  # tensors inside or behind loops and branches, of the last dumped step

    def write(self, step: int, values: list[tuple[str, int, np.ndarray[Any, Any]]], time: int) -> None:
        """Write a step into a hidden folder and rename it: a step's folder exists complete or not at all."""
        partial = self.folder / f".step_{step:06d}.part"
        partial.mkdir(parents=True)
        taken: dict[str, str] = {}  # by a file's name: the full name, which may be too long for a file
        for op, index, array in values:
            name = file_name(op, index, time, taken)
            np.save(partial / name, array, allow_pickle=False)
        if long := [(name.removesuffix(".npy"), full) for name, full in taken.items() if name != full]:
            with (partial / "mapping.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows(long)
        partial.rename(self.folder / f"step_{step:06d}")
        self.written[step] = len(values)

    def wants(self, op: str) -> bool:
        """Return True if an operator is dumped; with `only`, note its name."""
        if self.only:
            self.met.add(op)
        return not self.only or any(fnmatch.fnmatchcase(op, pattern) for pattern in self.only)


def file_name(op: str, index: int, time: int, taken: dict[str, str]) -> str:
    """Return a file name for an operator's output, and add it to `taken`; an earlier time makes it unique."""
    stem = f"{re.sub(r'[/.]', '_', op)}.{index}"
    while (full := f"{stem}.{time}.npy") in taken.values():
        time -= 1
    name = full if len(full) < MAX_NAME_LENGTH else f"{len(taken)}.npy"
    taken[name] = full
    return name


def make_observer(golden: Golden) -> Any:
    """Return the session observer that writes the chosen steps and stops the script after the last one."""
    from viaduct.rehearsal.tf1_stage import reach, sessions, snapshot

    class Dumping(sessions.Observer):
        def before_run(self, run: sessions.GraphRun) -> None:
            if run.training and golden.taken > golden.last and not golden.run_on:
                raise StopScript

        def select_tensors(self, run: sessions.GraphRun) -> list[Any]:
            tensors: list[Any] = []
            run.notes[id(self)] = tensors
            if run.training and golden.chosen(golden.taken):
                tensors += snapshot.list_tensors(run)
                dead = reach.find_perhaps_dead(run.reach.ops)
                outputs = [tensor for op in run.reach.ops for tensor in op.outputs]
                golden.left_out = sum(tensor.op in dead or reach.is_in_branch(tensor) for tensor in outputs)
            return tensors

        def receive_values(self, run: sessions.GraphRun, values: list[Any]) -> None:
            if not run.training:
                return
            if tensors := run.notes[id(self)]:
                found = [v for v in snapshot.iterate_values(run, tensors, values) if golden.wants(v.op.name)]
                golden.write(golden.taken, [(v.op.name, v.index, v.array) for v in found], snapshot.microseconds())
            golden.taken += 1

    return Dumping()
