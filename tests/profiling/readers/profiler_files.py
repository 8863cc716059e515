"""Small files as other profilers write them: a few steps of a network, with their columns and names."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

STEP_TRACE = (
    *("Device_id", "Iteration ID", "FP Start(us)", "BP End(us)", "Iteration End(us)", "Iteration Time(us)"),
    *("FP to BP Time(us)", "Iteration Refresh(us)", "Data Aug Bound(us)", "Model ID", "Reduce Start(us)"),
    "Reduce Duration(us)",
)
OP_SUMMARY = (
    *("Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "Task Type", "Task Start Time(us)"),
    *("Task Duration(us)", "Task Wait Time(us)", "Input Shapes", "Input Data Types"),
)
STEP_TRACE_TIME = (
    *(
        "Device_id",
        "Step",
        "Computing",
        "Communication(Not Overlapped)",
        "Overlapped",
        "Communication",
        "Free",
        "Stage",
    ),
    *("Bubble", "Communication(Not Overlapped and Exclude Receive)", "Preparing"),
)
KERNEL_DETAILS = (
    *("Step Id", "Device_id", "Model ID", "Task ID", "Stream ID", "Name", "Type", "OP State", "Accelerator Core"),
    *("Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Dim", "Input Shapes", "Input Data Types"),
)
OPERATOR_DETAILS = (
    *("Name", "Input Shapes", "Call Stack", "Host Self Duration(us)", "Host Total Duration(us)"),
    *("Device Self Duration(us)", "Device Total Duration(us)", "Device Self Duration With AICore(us)"),
)
ZERO = 1_700_000_000_000_000.0  # microseconds since 1970


def write_rows(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def write_msprof(folder: Path, device: int = 0, steps: int = 4, data: float = 10.0) -> Path:
    """Write the folder mindstudio_profiler_output of a device and return its path.

    In each step forward and backward take 70 µs, the update 20 µs and the data tail `data` µs; one all-reduce.
    """
    output = folder / f"PROF_00000{device}_20240101000000_ABC" / "mindstudio_profiler_output"
    trace, tasks = [], []
    end = ZERO
    for number in range(1, steps + 1):
        forward = end + data
        backward, previous = forward + 70, end
        end = backward + 20
        first = number == 1
        times = ["N/A" if first else end - previous, 70, 20, "N/A" if first else data]
        trace.append([device, number, forward, backward, end, *times, 1, backward - 5, 12])
        tasks += [
            ["resnet/conv1/Conv2D", "Conv2D", "AI_CORE", f"{forward}\t", 40, 0, '"8,3,4,4;2,3,1,1"', "FLOAT16;FLOAT16"],
            ["gradients/resnet/conv1/grad", "Conv2DBackpropFilter", "AI_CORE", forward + 40, 28, 0, "", "FLOAT16"],
            ["hcom/allreduce", "HcomAllReduce", "HCCL", backward - 5, 12, 0, "", "FLOAT"],
            ["Momentum/update", "ApplyMomentum", "AI_CORE", end - 10, "N/A", 0, "", "FLOAT"],
        ]
    write_rows(output / "step_trace_20240101.csv", STEP_TRACE, trace)
    write_rows(output / "op_summary_20240101.csv", OP_SUMMARY, [[device, 1, 1, 3, *task] for task in tasks])
    return output


def write_torch_npu(parent: Path, rank: int = 0, steps: int = 3, trace: bool = True, computing: float = 60.0) -> Path:
    """Write one rank's folder: computing 60, uncovered communication 10, free 30 in each step."""
    folder = parent / f"host_{100 + rank}_2024010100000{rank}_ascend_pt"
    output = folder / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    (folder / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank, "cann_version": "8.0.RC2"}))
    timed = [[rank, n, computing, 10, 5, 15, 30, computing + 40, 0, 10, 2] for n in range(steps)]
    write_rows(output / "step_trace_time.csv", STEP_TRACE_TIME, timed)
    kernels, operators = [], []
    for number in range(steps):
        begin = ZERO + 100 * number
        kernels += [
            [number, "aclnnConv", "Conv2D", "dynamic", "AI_CORE", f"{begin + 20}\t", 30, 0, 8, '"8,3,4,4"', "FLOAT"],
            [number, "hcom_allReduce__1", "hcom_allReduce_", "", "HCCL", begin + 45, 20, 0, 0, "", ""],
        ]
        stack = "/usr/lib/python3/site-packages/torch/nn/conv.py(10): forward;\r\n/home/me/train.py(41): main"
        operators.append(["aten::conv2d", '"8,3,4,4"', stack, 4, 9, 30, 30, 30])
    write_rows(output / "kernel_details.csv", KERNEL_DETAILS, [[row[0], rank, 1, 1, 2, *row[1:]] for row in kernels])
    write_rows(output / "operator_details.csv", OPERATOR_DETAILS, operators)
    if trace:
        (output / "trace_view.json").write_text(json.dumps(make_npu_trace(steps)))
    return output


def make_npu_trace(steps: int) -> list[dict[str, Any]]:
    """Return a list of events as trace_view.json has it: times as texts, kernels tied by flows."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": "Python"}},
        {"ph": "M", "pid": 2, "tid": 0, "name": "process_name", "args": {"name": "Ascend Hardware"}},
    ]

    def add(name: str, start: float, duration: float, pid: int = 1, cat: str = "cpu_op", **args: Any) -> None:
        times = {"ts": f"{ZERO + start:.3f}", "dur": duration}
        events.append({"ph": "X", "pid": pid, "tid": pid, "name": name, "cat": cat, **times, "args": args})

    def launch(number: int, host: float, start: float, duration: float) -> None:
        add("kernel", start, duration, 2, "", **{"Task Type": "AI_CORE"})
        flow = {"cat": "async_npu", "name": "torch_to_npu", "id": number, "bp": "e"}
        events.append({"ph": "s", "pid": 1, "tid": 1, "ts": f"{ZERO + host:.3f}", **flow})
        events.append({"ph": "f", "pid": 2, "tid": 2, "ts": f"{ZERO + start:.3f}", **flow})

    for number in range(steps):
        begin = 100.0 * number
        add(f"ProfilerStep#{number}", begin, 100)
        add("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin + 1, 9)
        add("aten::to", begin + 10, 2)
        add("aten::conv2d", begin + 15, 5)
        add("autograd::engine::evaluate_function: ConvolutionBackward0", begin + 30, 10)
        add("Optimizer.step#SGD.step", begin + 60, 10)
        launch(3 * number, begin + 16, begin + 20, 20)
        launch(3 * number + 1, begin + 35, begin + 50, 30)
        launch(3 * number + 2, begin + 65, begin + 80, 12)
    return events


def make_kineto(steps: int = 3, cuda: bool = False, rank: int | None = None) -> dict[str, Any]:
    """Return a trace as torch.profiler writes it; a step of 100: loader 10, forward 20, backward 40, optimizer 10."""
    events: list[dict[str, Any]] = []

    def add(name: str, start: float, duration: float, cat: str = "cpu_op", tid: int = 1, **args: Any) -> None:
        events.append(
            {"ph": "X", "pid": 7, "tid": tid, "name": name, "cat": cat, "ts": start, "dur": duration, "args": args}
        )

    def launch(number: int, host: float, start: float, duration: float, name: str = "sm90_fprop") -> None:
        add("cudaLaunchKernel", host, 1, "cuda_runtime", correlation=number)
        add(name, start, duration, "kernel", 9, correlation=number, **{"External id": number})

    for number in range(steps):
        begin = 5000 + 100.0 * number
        add(f"ProfilerStep#{number + 2}", begin, 100, "user_annotation")
        add("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", begin + 1, 9, "user_annotation")
        add("aten::to", begin + 11, 1)
        shapes: dict[str, Any] = {"Input Dims": [[8, 3, 4, 4]], "Input type": ["float"], "Sequence number": number}
        add("aten::conv2d", begin + 20, 20, **shapes)
        sequence: dict[str, Any] = {"Sequence number": number}
        add("autograd::engine::evaluate_function: ConvolutionBackward0", begin + 41, 40, **sequence)
        add("Optimizer.step#SGD.step", begin + 85, 10, "user_annotation")
        events.append(
            {"ph": "s", "pid": 7, "tid": 1, "cat": "fwdbwd", "id": number, "ts": begin + 20, "name": "fwdbwd"}
        )
        memory = {"Total Allocated": 1000 + number, "Device Type": 1 if cuda else 0, "Bytes": 8}
        events.append({"ph": "i", "pid": 7, "tid": 1, "name": "[memory]", "ts": begin + 21, "args": memory})
        if cuda:
            launch(10 * number + 1, begin + 25, begin + 30, 15)
            launch(10 * number + 2, begin + 60, begin + 65, 25)
            launch(10 * number + 3, begin + 62, begin + 80, 20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)")
            launch(10 * number + 4, begin + 86, begin + 101, 8)
    header: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"name": "H200"}] if cuda else []}
    if rank is not None:
        header["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
    return {**header, "baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": events, "traceName": "x"}
