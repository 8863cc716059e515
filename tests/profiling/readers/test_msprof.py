"""Folders of msprof."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from viaduct.profiling.readers import read_any

from .profiler_files import OP_SUMMARY, STEP_TRACE, ZERO, write_msprof, write_rows


def test_a_trace_without_fp_and_bp_points_has_no_phases(tmp_path: Path) -> None:
    rows = [
        [0, n, "N/A", "N/A", ZERO + 100 * n, 100 if n > 1 else "N/A", "N/A", "N/A", "N/A", 1, "N/A", "N/A"]
        for n in (1, 2, 3)
    ]
    write_rows(tmp_path / "PROF_1" / "mindstudio_profiler_output" / "step_trace_1.csv", STEP_TRACE, rows)
    profile = read_any(tmp_path)
    assert profile.iteration_us == pytest.approx(100)
    assert not profile.facts.phases_measured
    assert any("N/A" in sentence for sentence in profile.facts.phases_found_by)


def test_a_trace_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    output = write_msprof(tmp_path)
    for name in ("step_trace_20240101.csv", "op_summary_20240101.csv"):
        text = (output / name).read_text()
        (output / name).write_text(text[: len(text) - 45])
    profile = read_any(tmp_path)
    assert [step.number for step in profile.steps] == [1, 2, 3]
    assert sum("its last line is cut off" in note for note in profile.facts.notes) == 2


def test_empty_and_strange_files_are_named_and_the_others_read(tmp_path: Path) -> None:
    output = write_msprof(tmp_path)
    (output / "api_statistic_1.csv").write_bytes(b"")
    (output / "sys_mem_1.csv").write_bytes(b"\xef\xbb\xbfDevice_id,Memory Total(kB)\r\n0,1024\r\n")
    (output / "op_statistic_1.csv").write_bytes("OP Type,说明\nConv2D,卷积\n".encode("gb18030"))
    (output / "cpu_usage_1.csv").write_bytes(b"Cpu Type,User(%)\nAICPU,\xff\xfe\x00\n")
    profile = read_any(tmp_path)
    assert len(profile.steps) == 4
    assert "api_statistic_1.csv is empty." in profile.facts.notes
    assert profile.tables["sys_mem"] == {"columns": ["device id", "memory total (kb)"], "rows": [[0, 1024]]}
    assert profile.tables["op_statistic"]["rows"] == [["Conv2D", "卷积"]]
    assert "cpu_usage" in profile.tables


def test_the_phases_are_those_of_the_step_trace(tmp_path: Path) -> None:
    write_msprof(tmp_path, data=15.0)
    profile = read_any(tmp_path)
    assert profile.facts.kind == "msprof"
    assert profile.facts.phases_measured
    assert profile.steps[0].previous_end_us is None
    for step in profile.regular_steps:
        assert step.data_tail_us == pytest.approx(15, abs=0.5)  # 1970 + 54 years in a float leaves a quarter
        assert step.forward_backward_us == pytest.approx(70, abs=0.5)
        assert step.update_tail_us == pytest.approx(20, abs=0.5)
        assert step.collectives[0].duration_us == 12
        assert step.collectives[0].exposed_us == pytest.approx(9, abs=0.5)  # 3 of the 12 lie under the backward kernel
    assert min(step.forward_start_us for step in profile.steps) == 0
    assert profile.facts.zero_unix_us is not None


def test_operators_know_their_node_phase_and_kind(tmp_path: Path) -> None:
    write_msprof(tmp_path)
    profile = read_any(tmp_path)
    convolution = next(operator for operator in profile.operators if operator.name == "Conv2D")
    assert (convolution.module, convolution.phase, convolution.calls) == ("resnet/conv1", "forward", 1.0)
    assert convolution.device_us == pytest.approx(40)
    assert convolution.shapes == "[8, 3, 4, 4], [2, 3, 1, 1]"
    assert convolution.dtypes == "float16, float16"
    kinds = {kernel.name: kernel.kind for kernel in profile.kernels}
    assert kinds == {"Conv2D": "convolution", "Conv2DBackpropFilter": "convolution", "HcomAllReduce": "communication"}
    assert next(operator.phase for operator in profile.operators if "Backprop" in operator.name) == "backward"
    assert any("time on the host is not in these files" in note for note in profile.facts.notes)


def test_older_releases_are_read_from_summary_and_timeline(tmp_path: Path) -> None:
    summary = tmp_path / "PROF_1" / "device_3" / "summary"
    columns = [name for name in OP_SUMMARY if name != "Device_id"]
    row = [1, 1, 3, "conv1", "Conv2D", "AI_CORE", 10, 5, 0, "", "FLOAT"]
    write_rows(summary / "op_summary_3_1_1.csv", columns, [row])
    events = [
        {"ph": "X", "pid": 1, "tid": 1, "ts": 100.0 * n, "dur": 70.0, "name": f"FP_BP Time {n}"} for n in range(1, 4)
    ]
    events += [
        {"ph": "X", "pid": 1, "tid": 1, "ts": e["ts"], "dur": 90.0, "name": f"Iteration {n + 1}"}
        for n, e in enumerate(events)
    ]
    timeline = tmp_path / "PROF_1" / "device_3" / "timeline" / "step_trace_3_1.json"
    timeline.parent.mkdir()
    timeline.write_text(json.dumps(events)[:-40])  # cut off in the last event
    profile = read_any(tmp_path / "PROF_1")
    assert profile.ranks == [3]
    assert [step.number for step in profile.steps] == [1, 2, 3]
    assert profile.steps[1].data_tail_us == pytest.approx(10)
    assert profile.steps[1].update_tail_us == pytest.approx(20)
    assert any("cut off or damaged after" in note for note in profile.facts.notes)
    assert profile.kernels[0].rank == 3


def test_several_devices_are_ranks_on_one_clock(tmp_path: Path) -> None:
    for device in range(2):
        write_msprof(tmp_path, device)
    profile = read_any(tmp_path)
    assert profile.ranks == [0, 1]
    assert profile.facts.ranks == 2


def test_slices_of_a_large_summary_belong_together(tmp_path: Path) -> None:
    output = write_msprof(tmp_path)
    (output / "op_summary_20240101.csv").rename(output / "op_summary_slice_0_20240101.csv")
    row = [0, 1, 9, 3, "pool", "MaxPool", "AI_CORE", ZERO, 8, 0, "", "FLOAT16"]
    write_rows(output / "op_summary_slice_1_20240101.csv", OP_SUMMARY, [row])
    names = {kernel.name for kernel in read_any(tmp_path).kernels}
    assert {"Conv2D", "MaxPool"} <= names


def test_kernels_come_from_the_statistic_where_there_is_no_summary(tmp_path: Path) -> None:
    output = write_msprof(tmp_path)
    (output / "op_summary_20240101.csv").unlink()
    columns = ["Device_id", "Op Type", "Core Type", "Count", "Total Time(us)", "Ratio(%)"]
    write_rows(output / "op_statistic_1.csv", columns, [[0, "MatMul", "AI_CORE", 8, 400, 100]])
    profile = read_any(output)
    assert [(kernel.name, kernel.kind, kernel.calls, kernel.time_us) for kernel in profile.kernels] == [
        ("MatMul", "matrix product", 2.0, 100.0)
    ]
