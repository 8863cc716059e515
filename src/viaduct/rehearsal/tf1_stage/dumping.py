"""Dumps of training steps, requested by the session option enable_dump.

The paths are those of a dump that was made on the NPU and converted to .npy files:

    {dump_path}/{time}/{device}/{model}/{model id}/{step}/{type}.{operator}.{task}.{stream}.{time}.output.0.npy

Steps count from 0 as in dump_step; without dump_step every step is dumped. With dump_data "stats" the tensors'
statistics are written to statistic.csv instead. dump_layer names the operators to dump, dump_mode selects their inputs,
outputs or both.
"""

from __future__ import annotations

import csv
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

from viaduct.cards import NPU
from viaduct.rehearsal.tf1_stage import sessions, snapshot
from viaduct.rehearsal.tf1_stage.sessions import GraphRun, SessionRecord
from viaduct.rehearsal.tf1_stage.snapshot import OutputValue


class Dumps(sessions.Observer):
    """Dumps the training steps of sessions whose options request it."""

    def __init__(self) -> None:
        self.started: dict[int, str] = {}  # the time of each session's first dump, by the id of its record

    def select_tensors(self, run: GraphRun) -> list[Any]:
        """Return all tensors of a step if it is dumped."""
        is_dumped = run.is_training and is_dump_requested(run.session_record, run.session_record.steps)
        tensors = snapshot.list_tensors(run) if is_dumped else []
        run.notes[id(self)] = tensors  # for `receive_values`
        return tensors

    def receive_values(self, run: GraphRun, values: list[Any]) -> None:
        tensors = run.notes[id(self)]
        if not tensors:
            return
        step = run.session_record.steps - 1  # `sessions.record_run` has counted this step already
        started = self.started.setdefault(id(run.session_record), time.strftime("%Y%m%d%H%M%S"))
        write_step(run, list(snapshot.iterate_values(run, tensors, values)), step_folder(run, started, step))


def is_dump_requested(record: SessionRecord, step: int) -> bool:
    """Return True if the session's options request a dump of this step."""
    values = record.npu_options.values
    if not (record.npu_options.is_on_npu and values.get("enable_dump")):
        return False
    listed = values.get("dump_step")  # such as 0|3|5-9
    ranges = [entry.partition("-") for entry in str(listed).split("|")] if listed else []
    return not listed or any(int(first) <= step <= int(last or first) for first, _, last in ranges)


def step_folder(run: GraphRun, started: str, step: int) -> Path:
    device = os.environ.get(NPU.device_variable) or os.environ.get("DEVICE_ID") or "0"  # ASCEND_DEVICE_ID
    model, model_id = "ge_default", "1"  # the same in every dump: on the CPU no model is compiled
    return Path(run.session_record.npu_options.values["dump_path"], started, device, model, model_id, str(step))


def write_step(run: GraphRun, values: list[OutputValue], folder: Path) -> None:
    """Write the values of a step, each in an .npy file, or only their statistics."""
    folder.mkdir(parents=True, exist_ok=True)
    options = run.session_record.npu_options.values
    layers = set(str(options.get("dump_layer") or "").split())
    tasks = {op: task for task, op in enumerate(dict.fromkeys(value.op for value in values), 1)}
    arrays = {(value.op, value.index): value.array for value in values}
    rows: list[tuple[str, np.ndarray[Any, Any]]] = []
    time_us, stream = time.time_ns() // 1000, 1  # the CPU has one stream
    for value in values:
        if layers and value.op.name not in layers:
            continue
        stem = f"{value.op.type}.{re.sub(r'[/.]', '_', value.op.name)}.{tasks[value.op]}.{stream}.{time_us}"
        rows += select_arrays(value, stem, arrays, str(options.get("dump_mode") or "output"))
    if options.get("dump_data") == "stats":
        write_statistics(folder, rows)
    else:
        for name, array in rows:
            np.save(folder / f"{name}.npy", array, allow_pickle=False)


def select_arrays(
    value: OutputValue, stem: str, arrays: dict[Any, Any], mode: str
) -> list[tuple[str, np.ndarray[Any, Any]]]:
    """Return (name, array) of an output, of its operator's inputs, or of both, as `mode` says.

    An operator's inputs are returned for its output 0 only, so that they are written once.
    """
    rows: list[tuple[str, np.ndarray[Any, Any]]] = []
    if mode in ("input", "all") and value.index == 0:
        inputs = [arrays.get((tensor.op, tensor.value_index)) for tensor in value.op.inputs]
        rows += [(f"{stem}.input.{n}", array) for n, array in enumerate(inputs) if array is not None]
    if mode in ("output", "all"):
        rows.append((f"{stem}.output.{value.index}", value.array))
    return rows


def write_statistics(folder: Path, rows: list[tuple[str, np.ndarray[Any, Any]]]) -> None:
    with (folder / "statistic.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["Name", "Data Type", "Shape", "Max Value", "Min Value", "Avg Value", "L2Norm Value"])
        for name, array in rows:
            flat = array.astype(np.float64).reshape(-1) if array.size else np.zeros(1)
            statistics = [flat.max(), flat.min(), flat.mean(), np.sqrt(np.square(flat).sum())]
            table.writerow([name, array.dtype, "x".join(map(str, array.shape)), *statistics])
