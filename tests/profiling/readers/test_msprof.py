"""Folders of msprof."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from viaduct.profiling.readers import read_any
from viaduct.profiling.record import Profile

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


def test_phases_that_one_device_lacks_are_not_called_missing_on_the_other(tmp_path: Path) -> None:
    rows = [
        [device, n, ZERO + 100 * n - 90, ZERO + 100 * n - 20, ZERO + 100 * n, 100, 70, 20, 10, 1, "N/A", "N/A"]
        for device in (0, 1)
        for n in (1, 2, 3)
    ]
    rows[-1][2] = "N/A"
    write_rows(tmp_path / "PROF_1" / "mindstudio_profiler_output" / "step_trace_1.csv", STEP_TRACE, rows)
    facts = read_any(tmp_path).facts
    assert not facts.phases_measured
    assert [sentence for sentence in facts.phases_found_by if "N/A" in sentence] == [
        "rank 1: 1 steps have FP start or BP end N/A: they count as forward + backward completely."
    ]


def test_iterations_that_cannot_be_steps_are_left_out_with_a_note(tmp_path: Path) -> None:
    def make_row(number: object, forward: object, backward: object, end: object, time: object) -> list[object]:
        return [0, number, forward, backward, end, time, 70, 20, "N/A", 1, "N/A", "N/A"]

    rows = [
        make_row("N/A", ZERO, ZERO + 70, ZERO + 90, 100),
        make_row(1, ZERO, ZERO + 70, "N/A", 100),
        make_row(3, ZERO + 70, ZERO, ZERO + 90, 100),
        make_row(5, "N/A", ZERO + 470, ZERO + 490, "N/A"),
        make_row(7, ZERO + 600, ZERO + 670, ZERO + 690, 100),
    ]
    write_rows(tmp_path / "PROF_1" / "mindstudio_profiler_output" / "step_trace_1.csv", STEP_TRACE, rows)
    profile = read_any(tmp_path)
    assert [step.number for step in profile.steps] == [7]
    (note,) = (note for note in profile.facts.notes if note.startswith("step_trace: 4 iterations of device 0"))
    assert note.endswith("left out: a number, end or length is missing, or time points are out of order.")


def test_a_trace_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    output = write_msprof(tmp_path)
    for name in ("step_trace_20240101.csv", "op_summary_20240101.csv"):
        text = (output / name).read_text()
        (output / name).write_text(text[: len(text) - 45])
    profile = read_any(tmp_path)
    assert [step.number for step in profile.steps] == [1, 2, 3]
    assert sum("its last line is truncated" in note for note in profile.facts.notes) == 2


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
    assert any("truncated or damaged after" in note for note in profile.facts.notes)
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


# Several devices

TASK = [1, 1, 3, "conv1", "Conv2D", "AI_CORE", ZERO, 5, 0, "", "FLOAT"]


def list_kernels(profile: Profile) -> list[tuple[int, str, float]]:
    return sorted((kernel.rank, kernel.name, round(kernel.time_us, 3)) for kernel in profile.kernels)


def test_the_rows_of_two_devices_in_one_file_are_two_ranks(tmp_path: Path) -> None:
    """msprof exports a run of PyTorch on devices 4 and 6 as one file without a step trace."""
    output = tmp_path / "PROF_1" / "mindstudio_profiler_output"
    other = [*TASK[:3], "mul", "Mul", *TASK[5:7], 80, *TASK[8:]]
    write_rows(output / "op_summary_20240101.csv", OP_SUMMARY, [[4, *TASK], [6, *other], [6, *other]])
    columns = ["Device_id", "Component", "Timestamp(us)", "Total Allocated(KB)", "Total Reserved(KB)"]
    memory = [[4, "GE", ZERO, 1, 9], [6, "GE", ZERO + 1, 700, 900], [4, "GE", ZERO + 2, 2, 9]]
    write_rows(output / "memory_record_20240101.csv", columns, memory)
    owners = [[4, "small", 1, ZERO, "N/A"], [6, "large", 600, ZERO, "N/A"]]
    columns = ["Device_id", "Name", "Size(KB)", "Allocation Time(us)", "Duration(us)"]
    write_rows(output / "operator_memory_20240101.csv", columns, owners)
    columns = ["Device_id", "OP Type", "Core Type", "Count", "Total Time(us)"]
    write_rows(
        output / "op_statistic_20240101.csv", columns, [[4, "Conv2D", "AI_CORE", 1, 5], [6, "Mul", "AIV", 2, 160]]
    )
    write_rows(output / "api_statistic_20240101.csv", ["Device_id", "API Name", "Time(us)"], [["host", "launch", 3]])
    columns = ["Device_id", "Timestamp(us)", "Rx Bandwidth efficiency(%)"]
    write_rows(output / "nic_20240101.csv", columns, [[4, ZERO, 25], [6, ZERO, 75]])
    profile = read_any(tmp_path)
    assert list_kernels(profile) == [(4, "Conv2D", 5), (6, "Mul", 160)]
    assert {operator.rank: operator.name for operator in profile.operators} == {4: "Conv2D", 6: "Mul"}
    assert sorted((point.rank, point.allocated >> 10) for point in profile.memory) == [(4, 1), (4, 2), (6, 700)]
    assert {owner.rank: owner.name for owner in profile.memory_owners} == {4: "small", 6: "large"}
    assert profile.facts.ranks == 2
    table = profile.tables["op_statistic"]
    assert [row[:3] for row in table["rows"]] == [["4", 4, "Conv2D"], ["6", 6, "Mul"]]
    assert profile.tables["api_statistic"]["rows"] == [["host", "launch", 3]]
    assert [list(sample.values.values()) for sample in profile.samples] == [[25]]
    assert any("those that rank 4 sampled" in note for note in profile.facts.notes)


def test_a_device_that_no_path_names_is_the_one_of_its_rows(tmp_path: Path) -> None:
    write_rows(tmp_path / "PROF_1" / "mindstudio_profiler_output" / "op_summary_1.csv", OP_SUMMARY, [[3, *TASK]])
    assert list_kernels(read_any(tmp_path)) == [(3, "Conv2D", 5)]


def test_files_of_older_releases_belong_to_the_device_of_their_folder(tmp_path: Path) -> None:
    for device, name, time in ((0, "Add", 10), (1, "Mul", 70)):
        summary = tmp_path / "device_9" / "PROF_1" / f"device_{device}" / "summary"  # device_9 is no folder of msprof
        columns = ["OP Type", "Core Type", "Count", "Total Time(us)"]
        write_rows(summary / f"op_statistic_{device}_1_1.csv", columns, [[name, "AIV", 1, time]])
        write_rows(summary / f"step_trace_{device}_1_1.csv", STEP_TRACE[1:], [
            [n, ZERO + 100 * n, ZERO + 100 * n + 50 + device, ZERO + 100 * n + 60, 100, 50, 10, 40, 1, "N/A", "N/A"]
            for n in (1, 2)
        ])  # fmt: skip
    profile = read_any(tmp_path / "device_9")
    assert list_kernels(profile) == [(0, "Add", 5), (1, "Mul", 35)]
    assert [(step.rank, round(step.forward_backward_us)) for step in profile.steps] == [
        (0, 50),
        (0, 50),
        (1, 51),
        (1, 51),
    ]


def make_timeline(labels: bool) -> list[dict[str, object]]:
    """Return the step traces of devices 0 and 1, whose processes are labelled behind their slices."""
    events: list[dict[str, object]] = []
    for device, forward in ((0, 70.0), (1, 40.0)):
        for number in (1, 2):
            common = {"ph": "X", "pid": 100 + device * labels, "tid": 3}
            begin = ZERO + 100 * number + 5 * device
            events += [{**common, "name": f"FP_BP Time {number}", "ts": begin, "dur": forward},
                       {**common, "name": f"Iteration {number}", "ts": begin, "dur": 90.0}]  # fmt: skip
        label = {
            "ph": "M",
            "pid": 100 + device,
            "tid": 0,
            "name": "process_labels",
            "args": {"labels": f"NPU {device}"},
        }
        events += [label] * labels
    return events


def test_a_timeline_of_two_devices_has_the_steps_of_each(tmp_path: Path) -> None:
    output = tmp_path / "PROF_1" / "mindstudio_profiler_output"
    write_rows(output / "op_summary_1.csv", OP_SUMMARY, [[0, *TASK], [1, *TASK]])
    (output / "msprof_1.json").write_text(json.dumps(make_timeline(labels=True)))
    profile = read_any(tmp_path)
    assert [(step.rank, round(step.forward_backward_us)) for step in profile.steps] == [
        (0, 70),
        (0, 70),
        (1, 40),
        (1, 40),
    ]
    (output / "msprof_1.json").write_text(json.dumps(make_timeline(labels=False)))
    assert any("perhaps of several devices in one process" in note for note in read_any(tmp_path).facts.notes)


def test_of_a_device_in_two_recordings_a_note_names_what_was_read(tmp_path: Path) -> None:
    for number, name in ((1, "Add"), (2, "Mul")):
        row = [0, *TASK[:4], name, *TASK[5:]]
        write_rows(tmp_path / f"PROF_{number}" / "mindstudio_profiler_output" / "op_summary_1.csv", OP_SUMMARY, [row])
    profile = read_any(tmp_path)
    assert list_kernels(profile) == [(0, "Mul", 5)]
    assert any(
        note.startswith("PROF_1 and PROF_2 both have device 0; its data in PROF_1 were left out")
        for note in profile.facts.notes
    )


def test_recordings_of_one_device_each_are_ranks_without_a_step_trace_too(tmp_path: Path) -> None:
    for device in (0, 1):
        output = tmp_path / f"PROF_{device}" / "mindstudio_profiler_output"
        write_rows(output / "op_summary_1.csv", OP_SUMMARY, [[device, *TASK[:6], 5 + device, *TASK[7:]]])
        (output.parent / f"device_{device}").mkdir()
    assert [rank for rank, _, _ in list_kernels(read_any(tmp_path))] == [0, 1]


def test_of_several_exports_the_newest_is_read(tmp_path: Path) -> None:
    output = tmp_path / "PROF_1" / "mindstudio_profiler_output"
    for time in (20240101000000, 20240102000000):
        write_rows(output / f"op_summary_{time}.csv", OP_SUMMARY, [[0, *TASK]])
    write_rows(output.parent / "device_0" / "summary" / "op_summary_0_1_1.csv", OP_SUMMARY[1:], [TASK])
    profile = read_any(tmp_path)
    assert list_kernels(profile) == [(0, "Conv2D", 5)]
    assert "Older exports of the same files were not read: op_summary_20240101000000.csv." in profile.facts.notes


def test_rows_that_could_be_of_two_devices_are_named_in_a_note(tmp_path: Path) -> None:
    output = tmp_path / "PROF_1" / "mindstudio_profiler_output"
    write_rows(output / "op_summary_1.csv", OP_SUMMARY[1:], [TASK, TASK])
    for device in (2, 5):
        (output.parent / f"device_{device}" / "data").mkdir(parents=True)
    profile = read_any(output)
    assert list_kernels(profile) == [(2, "Conv2D", 10)]
    (note,) = (note for note in profile.facts.notes if "does not name its device" in note)
    assert "one of 2, 5" in note
