"""Reference (golden) dump of a TensorFlow 1 script: the tensors of chosen training steps, in files named as by tfdbg.

    OUT/step_000000/{operator, / and . as _}.{output}.{time in microseconds}.npy

The script is not changed. Tensors that cannot be fetched (`snapshot.py`) are left out. The files of a step have the
same time, unless the names of two operators become the same file name: then the second has an earlier time, and readers
take the file with the latest time. A file with too long a name is written under a number, which `mapping.csv` maps to
the name.
"""

from __future__ import annotations

import csv
import fnmatch
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from viaduct.atomic_files import replace_folder
from viaduct.rehearsal import tf1_stage
from viaduct.rehearsal.tf1_stage import sessions, snapshot, subgraph
from viaduct.rehearsal.tf1_stage.sessions import GraphRun
from viaduct.scripts.runner import Script, ScriptResult, StopScript, run_script

MAX_NAME_LENGTH = 255  # of a file, on common file systems


def dump_script(golden: GoldenDump, script: Script) -> ScriptResult:
    """Run a script on the CPU, dump its steps, and return its end; GPU devices are the CPU too."""
    tf1_stage.install("original")
    sessions.observers.append(golden)
    return run_script(script)


@dataclass
class GoldenDump(sessions.Observer):
    """A reference dump: its settings and its progress. It writes the chosen steps and stops the script after them."""

    folder: Path
    is_dumped: Callable[[int], bool]  # returns True for a step to dump
    last: int  # the last step to dump; the script is stopped at the step after it
    continues_after_last: bool = False  # the script is not stopped after `last`
    name_patterns: tuple[str, ...] = ()  # shell patterns of operators' names; empty: all operators
    steps_taken: int = 0  # training steps so far
    written: dict[int, int] = field(default_factory=dict)  # number of tensors by step
    operators: set[str] = field(default_factory=set)  # names of all operators in the dumped steps, dumped or not
    omitted: int = 0  # tensors inside or behind loops and branches in the last dumped step

    def before_run(self, run: GraphRun) -> None:
        if run.is_training and self.steps_taken > self.last and not self.continues_after_last:
            raise StopScript

    def select_tensors(self, run: GraphRun) -> list[Any]:
        tensors: list[Any] = []
        run.notes[id(self)] = tensors
        if run.is_training and self.is_dumped(self.steps_taken):
            tensors += snapshot.list_tensors(run)
            dead = subgraph.find_perhaps_dead(run.subgraph.ops)
            outputs = [tensor for op in run.subgraph.ops for tensor in op.outputs]
            self.omitted = sum(tensor.op in dead or subgraph.is_in_branch(tensor) for tensor in outputs)
        return tensors

    def receive_values(self, run: GraphRun, values: list[Any]) -> None:
        if not run.is_training:
            return
        if tensors := run.notes[id(self)]:
            outputs = list(snapshot.iterate_values(run, tensors, values))
            self.operators |= {output.op.name for output in outputs}
            arrays = [(v.op.name, v.index, v.array) for v in outputs if self.is_selected(v.op.name)]
            self.write(self.steps_taken, arrays, time.time_ns() // 1000)
        self.steps_taken += 1

    def write(self, step: int, values: list[tuple[str, int, np.ndarray[Any, Any]]], time_us: int) -> None:
        """Write the (operator, output, array) of a step into a folder, which is complete or absent."""
        with replace_folder(self.folder / f"step_{step:06d}", durable=False) as folder:
            full_names: dict[str, str] = {}  # by file name: the full name, which may be too long for a file
            for op, index, array in values:
                name = make_file_name(op, index, time_us, full_names)
                np.save(folder / name, array, allow_pickle=False)
            if numbered := [(name.removesuffix(".npy"), full) for name, full in full_names.items() if name != full]:
                with (folder / "mapping.csv").open("w", newline="", encoding="utf-8") as file:
                    csv.writer(file).writerows(numbered)
        self.written[step] = len(values)

    def is_selected(self, op: str) -> bool:
        """Return True if an operator is to be dumped."""
        return not self.name_patterns or any(fnmatch.fnmatchcase(op, pattern) for pattern in self.name_patterns)


def make_file_name(op: str, index: int, time_us: int, full_names: dict[str, str]) -> str:
    """Return a unique file name for an operator's output, and add it to `full_names`."""
    stem = f"{re.sub(r'[/.]', '_', op)}.{index}"
    while (full := f"{stem}.{time_us}.npy") in full_names.values():
        time_us -= 1
    name = full if len(full) < MAX_NAME_LENGTH else f"{len(full_names)}.npy"
    full_names[name] = full
    return name
