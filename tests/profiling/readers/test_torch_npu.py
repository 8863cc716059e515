"""Folders of torch_npu's profiler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from viaduct.errors import BadData
from viaduct.profiling.readers import read_any

from .profiler_files import STEP_TRACE_TIME, ZERO, write_rows, write_torch_npu


def test_databases_alone_are_refused_with_what_to_do(tmp_path: Path) -> None:
    output = tmp_path / "a_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    (output / "ascend_pytorch_profiler_0.db").write_bytes(b"SQLite")
    with pytest.raises(BadData, match="has only databases"):
        read_any(tmp_path)


def test_raw_data_that_was_not_analysed_is_named(tmp_path: Path) -> None:
    (tmp_path / "a_ascend_pt" / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    with pytest.raises(BadData, match="has no results: it is empty"):
        read_any(tmp_path)


def test_steps_without_a_trace_have_an_iteration_and_no_phases(tmp_path: Path) -> None:
    write_torch_npu(tmp_path, trace=False)
    profile = read_any(tmp_path)
    assert not profile.facts.phases_measured
    assert any("not in these files" in sentence for sentence in profile.facts.phases_found_by)
    assert profile.iteration_us == pytest.approx(100)  # computing 60 + communication 10 + free 30
    assert profile.facts.zero_unix_us is None
    columns = profile.tables["step_trace_time"]["columns"]
    assert "communication(not overlapped)" in columns


def test_a_recording_without_steps_has_none(tmp_path: Path) -> None:
    output = write_torch_npu(tmp_path, trace=False)
    write_rows(output / "step_trace_time.csv", STEP_TRACE_TIME, [[0, "", 60, 10, 5, 15, 30, 100, 0, 10, 2]])
    profile = read_any(output)
    assert list(profile.steps) == []
    assert any("without a step number or a time, which were left out" in note for note in profile.facts.notes)


def test_a_damaged_trace_leaves_the_tables(tmp_path: Path) -> None:
    output = write_torch_npu(tmp_path)
    (output / "trace_view.json").write_text('[{"ph": "X", "na')
    (output / "communication.json").write_text("{")
    profile = read_any(tmp_path)
    assert profile.iteration_us == pytest.approx(100)
    assert any(note.startswith("trace_view.json: it holds no events") for note in profile.facts.notes)
    assert "communication.json is damaged and was not read." in profile.facts.notes


def test_kernels_of_no_process_are_left_alone(tmp_path: Path) -> None:
    output = write_torch_npu(tmp_path)
    events = json.loads((output / "trace_view.json").read_text())
    for event in events:
        del event["pid"]
    (output / "trace_view.json").write_text(json.dumps(events))
    assert len(read_any(tmp_path).steps) == 3


def test_the_phases_are_those_of_the_kernels(tmp_path: Path) -> None:
    write_torch_npu(tmp_path)
    profile = read_any(tmp_path)
    assert profile.facts.phases_measured
    assert [step.number for step in profile.steps] == [0, 1, 2]
    step = profile.steps[1]
    assert step.forward_backward_us == pytest.approx(60, abs=0.5)  # kernels from 20 to 80
    assert step.update_tail_us == pytest.approx(12, abs=0.5)
    assert step.data_tail_us == pytest.approx(28, abs=0.5)
    assert step.loader_wait_us == pytest.approx(9, abs=0.5)
    assert profile.facts.versions == {"cann": "8.0.RC2"}


def test_collectives_say_what_of_them_is_exposed(tmp_path: Path) -> None:
    write_torch_npu(tmp_path)
    collective = read_any(tmp_path).steps[1].collectives[0]
    assert collective.duration_us == pytest.approx(20)
    assert collective.exposed_us == pytest.approx(15, abs=0.5)  # the convolution covers 5


def test_the_size_of_collectives_comes_from_communication_json(tmp_path: Path) -> None:
    output = write_torch_npu(tmp_path)
    times = {"Start Timestamp(us)": ZERO + 150, "Elapse Time(ms)": 0.01}
    facts = {"Communication Time Info": times, "Communication Bandwidth Info": {"SDMA": {"Transit Size(MB)": 2}}}
    total = {"Communication Time Info": {"Elapse Time(ms)": 5}}
    operations = {"hcom_allReduce__5_0@17": facts, "Total Op Info": total}
    (output / "communication.json").write_text(json.dumps({"step1": {"p2p": {}, "collective": operations}}))
    collectives = [each for step in read_any(tmp_path).steps for each in step.collectives]
    assert [(each.name, each.bytes, each.duration_us) for each in collectives] == [("hcom_allReduce", 2 << 20, 10.0)]


def test_operators_know_host_device_and_the_line_of_the_script(tmp_path: Path) -> None:
    write_torch_npu(tmp_path)
    (operator,) = read_any(tmp_path).operators
    assert (operator.name, operator.calls, operator.location) == ("aten::conv2d", 1.0, "train.py:41")
    assert (operator.self_us, operator.total_us, operator.device_us) == (4, 9, 30)
    assert operator.shapes == "[8, 3, 4, 4]"


def test_memory_has_its_peak_and_who_held_it(tmp_path: Path) -> None:
    output = write_torch_npu(tmp_path)
    columns = ["Component", "Timestamp(us)", "Total Allocated(MB)", "Total Reserved(MB)", "Device Type"]
    rows = [["PTA", ZERO + 10, 1, 4, "NPU:0"], ["PTA", ZERO + 20, 3, 4, "NPU:0"], ["APP", ZERO + 20, 0, 9, "NPU:0"]]
    write_rows(output / "memory_record.csv", columns, rows)
    owned = [["aten::empty", 2048, ZERO + 15, 10], ["aten::relu", 512, ZERO + 1, 3], ["aten::relu", 512, ZERO + 19, ""]]
    write_rows(output / "operator_memory.csv", ["Name", "Size(KB)", "Allocation Time(us)", "Duration(us)"], owned)
    profile = read_any(tmp_path)
    assert max(point.allocated for point in profile.memory) == 3 << 20
    assert [(owner.name, owner.bytes) for owner in profile.memory_owners] == [
        ("aten::empty", 2 << 20),
        ("aten::relu", 1 << 19),
    ]


def test_folders_side_by_side_are_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_torch_npu(tmp_path, rank)
    profile = read_any(tmp_path)
    assert profile.ranks == [0, 1]
    assert profile.tables["step_trace_time"]["columns"][0] == "Rank"


def test_folders_that_name_no_ranks_are_numbered(tmp_path: Path) -> None:
    for rank in (0, 1):
        output = write_torch_npu(tmp_path, rank)
        (output.parent / f"profiler_info_{rank}.json").unlink()
    profile = read_any(tmp_path)
    assert profile.ranks == [0, 1]
    assert any("numbered in the order of their names" in note for note in profile.facts.notes)
