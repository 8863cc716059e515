"""Tables that msprof and torch_npu's profiler share."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.profiling import ascend_tables, kinds
from viaduct.profiling.ascend_tables import (
    TaskTable,
    clean_shapes,
    find_kind,
    find_phase,
    name_dtype,
    read_memory_owners,
    read_memory_record,
    read_statistics,
)
from viaduct.profiling.csv_files import read_rows
from viaduct.profiling.record import MemoryPoint

from .readers.profiler_files import write_rows

TASK = (
    "Op Name",
    "OP Type",
    "Task Type",
    "Task Start Time(us)",
    "Task Duration(us)",
    "Input Shapes",
    "Input Data Types",
)


def read_tasks(folder: Path, *rows: tuple[object, ...]) -> TaskTable:
    tasks = TaskTable()
    for row in read_rows(write_rows(folder / "tasks.csv", TASK, rows), []):
        tasks.add(row)
    return tasks


def test_a_task_without_a_duration_is_left_out(tmp_path: Path) -> None:
    tasks = read_tasks(
        tmp_path, ("a", "Conv2D", "AI_CORE", 5, "N/A", "", ""), ("b", "Conv2D", "AI_CORE", 5, -1, "", "")
    )
    assert (tasks.rows, tasks.list_kernels(1, 0), tasks.computing) == (0, [], [])


def test_tasks_of_one_type_and_dtype_are_one_kernel_and_collectives_do_not_compute(tmp_path: Path) -> None:
    tasks = read_tasks(
        tmp_path,
        ("net/conv1/Conv2D", "Conv2D", "AI_CORE", 0, 10, "8,3;4,3", "FLOAT16;FLOAT16"),
        ("net/conv2/Conv2D", "Conv2D", "AI_CORE", 10, 30, "8,3;4,3", "FLOAT16;FLOAT16"),
        ("hcom_allReduce_1", "", "HCCL", 20, 50, "", "FLOAT"),
    )
    collective, convolution = tasks.list_kernels(steps=2, rank=3)
    assert (convolution.name, convolution.calls, convolution.time_us, convolution.rank) == ("Conv2D", 1.0, 20.0, 3)
    assert (convolution.kind, convolution.dtype) == (kinds.CONVOLUTION, "float16")
    assert collective.kind == kinds.COMMUNICATION
    assert tasks.computing == [(0, 10), (10, 40)]
    assert [(row.start_us, row.duration_us) for row in tasks.collectives] == [(20, 50)]
    assert [row.module for row in tasks.list_nodes(2, 3)][1:] == ["net/conv2", "net/conv1"]


def test_many_spans_of_computing_are_joined_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ascend_tables, "MAX_SPANS", 3)
    rows = [(f"n{number}", "Add", "AI_VECTOR_CORE", 10 * number, 10, "", "") for number in range(9)]
    tasks = read_tasks(tmp_path, *rows)
    assert len(tasks.computing) <= 4
    assert sum(end - start for start, end in tasks.computing) == 90


def test_only_scopes_that_have_gradients_are_forward() -> None:
    trained = {"net"}
    assert find_phase("Conv2D", "metrics/conv", trained) == "other"
    assert find_phase("Conv2D", "net/conv1", trained) == "forward"
    assert find_phase("Conv2D", "gradients/net/conv1_grad", trained) == "backward"
    assert find_phase("ApplyMomentum", "gradients/net/conv1", trained) == "update"


@pytest.mark.parametrize(
    ("name", "core", "kind"),
    [
        ("Conv2D", "HCCL", kinds.COMMUNICATION),
        ("FusedBatchNormV3", "AI_CORE", kinds.NORMALISATION),
        ("MaxPoolGradWithArgmax", "", kinds.POOLING),
        ("Conv2DBackpropFilter", "", kinds.CONVOLUTION),
        ("ApplyMomentum", "", kinds.OPTIMIZER),
        ("BatchMatMulV2", "", kinds.PRODUCT),
        ("Trans_Data", "", kinds.COPIES),
        ("ReduceSum", "", kinds.REDUCTION),
        ("Mul", "", kinds.ELEMENTWISE),
        ("SomethingNew", "", kinds.OTHER),
    ],
)
def test_the_kind_of_work_is_known_by_the_type(name: str, core: str, kind: str) -> None:
    assert find_kind(name, core) == kind


def test_shapes_and_types_are_written_as_torch_writes_them() -> None:
    assert clean_shapes('"32,3,8,8;4,3,3,3;"') == "[32, 3, 8, 8], [4, 3, 3, 3]"
    assert clean_shapes("") == ""
    assert [name_dtype(cell) for cell in ("DT_BF16;FLOAT", '"FLOAT16"', "COMPLEX64", "")] == [
        *("bfloat16", "float16", "complex64", ""),
    ]


def test_memory_is_that_of_one_component(tmp_path: Path) -> None:
    columns = ("Component", "Timestamp(us)", "Total Allocated(MB)", "Total Reserved(MB)")
    rows = [("APP", 0, 900, 900), ("PTA", 0, 1, 4), ("PTA", 5, 3, "N/A"), ("GE", 0, 50, 60), ("PTA", "N/A", 99, 99)]
    points = read_memory_record(read_rows(write_rows(tmp_path / "memory.csv", columns, rows), []), 2)
    assert [(row.allocated, row.reserved, row.rank) for row in points] == [(1 << 20, 4 << 20, 2), (3 << 20, None, 2)]


def test_owners_are_those_alive_at_the_peak(tmp_path: Path) -> None:
    columns = ("Name", "Size(KB)", "Allocation Time(us)", "Duration(us)")
    rows = [("early", 9, 0, 5), ("add", 1, 0, 50), ("add", 2, 10, "N/A"), ("late", 9, 20, 5), ("conv", 4, 9, 2)]
    path = write_rows(tmp_path / "owners.csv", columns, rows)
    points = [MemoryPoint(0.0, 1), MemoryPoint(10.0, 9), MemoryPoint(20.0, 5)]
    owners = read_memory_owners(read_rows(path, []), 1, points)
    assert [(row.name, row.bytes, row.rank) for row in owners] == [("conv", 4096, 1), ("add", 3072, 1)]
    assert read_memory_owners(read_rows(path, []), 1, []) == []


def test_a_statistic_has_a_row_for_each_type_the_longest_first(tmp_path: Path) -> None:
    columns = ("Device_id", "OP Type", "Core Type", "Count", "Total Time(us)")
    rows = [(0, "Add", "AIV", 4, 8), (0, "Mul", "AIV", 4, 80), (0, "Sub", "AIV", "N/A", 80)]
    kernels = read_statistics(read_rows(write_rows(tmp_path / "statistic.csv", columns, rows), []), 2, 0)
    assert [(kernel.name, kernel.calls, kernel.time_us) for kernel in kernels] == [("Mul", 2, 40), ("Add", 2, 4)]
