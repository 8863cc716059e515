"""Traces of torch.profiler."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from viaduct.errors import BadData
from viaduct.profiling.readers import read_any

from .profiler_files import make_kineto


def write(path: Path, **options: int | bool) -> Path:
    path.write_text(json.dumps(make_kineto(**options), indent=1))  # type: ignore[arg-type]
    return path


def test_a_trace_without_events_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pt.trace.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    with pytest.raises(BadData, match="has no events of torch"):
        read_any(tmp_path)


def test_a_trace_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = write(tmp_path / "a.pt.trace.json").read_text()
    trace = read_any(tmp_path)
    (tmp_path / "a.pt.trace.json").write_text(text[: int(len(text) * 0.7)])
    profile = read_any(tmp_path)
    assert 0 < len(profile.steps) < len(trace.steps) or profile.steps[-1] != trace.steps[-1]
    assert profile.steps[0] == trace.steps[0]
    assert any("truncated or damaged after" in note for note in profile.facts.notes)


def test_a_packed_trace_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps(make_kineto(steps=400)).encode())
    (tmp_path / "a.pt.trace.json.gz").write_bytes(packed[: len(packed) // 2])
    profile = read_any(tmp_path)
    assert 0 < len(profile.steps) < 400
    assert any("truncated or damaged after" in note for note in profile.facts.notes)


def test_a_step_in_which_nothing_was_computed_is_none(tmp_path: Path) -> None:
    trace = make_kineto(steps=3)
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    for name, duration in (("ProfilerStep#5", 20.0), (loader, 10.0)):
        event = {"ph": "X", "pid": 7, "tid": 1, "cat": "user_annotation", "name": name, "ts": 5300.0, "dur": duration}
        trace["traceEvents"].append(event)
    (tmp_path / "a.pt.trace.json").write_text(json.dumps(trace))
    profile = read_any(tmp_path)
    assert [step.number for step in profile.steps] == [2, 3, 4]
    assert profile.facts.phases_measured


def test_forward_passes_alone_have_no_phases(tmp_path: Path) -> None:
    trace = make_kineto()
    marks = ("Optimizer.step", "autograd")
    trace["traceEvents"] = [event for event in trace["traceEvents"] if not event["name"].startswith(marks)]
    (tmp_path / "a.pt.trace.json").write_text(json.dumps(trace))
    profile = read_any(tmp_path)
    assert not profile.facts.phases_measured
    assert any("not in the trace" in sentence for sentence in profile.facts.phases_found_by)


def test_a_trace_without_marks_has_operators_and_no_steps(tmp_path: Path) -> None:
    trace = make_kineto()
    marks = ("Optimizer.step", "ProfilerStep")
    trace["traceEvents"] = [event for event in trace["traceEvents"] if not event["name"].startswith(marks)]
    (tmp_path / "a.pt.trace.json").write_text(json.dumps(trace))
    profile = read_any(tmp_path)
    assert list(profile.steps) == []
    assert next(operator.calls for operator in profile.operators if operator.name == "aten::conv2d") == 3
    assert any("its steps are not known" in note for note in profile.facts.notes)


def test_the_phases_of_the_host_are_found_from_the_marks_of_torch(tmp_path: Path) -> None:
    profile = read_any(write(tmp_path / "worker0.1.pt.trace.json"))
    assert profile.facts.device == "cpu"
    assert profile.facts.phases_measured
    for step in profile.regular_steps:
        assert step.iteration_us == pytest.approx(100)
        assert step.data_tail_us == pytest.approx(25)  # from the end of the optimizer at 95 to the convolution at 20
        assert step.forward_backward_us == pytest.approx(61)
        assert step.update_tail_us == pytest.approx(14)
        assert step.loader_wait_us == pytest.approx(9)
    phases = {operator.name: operator.phase for operator in profile.operators}
    assert phases["aten::conv2d"] == "forward"
    assert phases["autograd::engine::evaluate_function: ConvolutionBackward0"] == "backward"
    assert max(point.allocated for point in profile.memory) == 1002


def test_steps_end_with_the_optimizer_where_the_schedule_has_none(tmp_path: Path) -> None:
    trace = make_kineto(steps=4)
    trace["traceEvents"] = [event for event in trace["traceEvents"] if not event["name"].startswith("ProfilerStep")]
    (tmp_path / "a.pt.trace.json").write_text(json.dumps(trace))
    profile = read_any(tmp_path)
    assert [step.number for step in profile.steps] == [0, 1, 2, 3]
    assert profile.steps[2].iteration_us == pytest.approx(100)
    assert profile.steps[2].data_tail_us == pytest.approx(25)


def test_the_phases_of_a_gpu_are_those_of_its_kernels(tmp_path: Path) -> None:
    profile = read_any(write(tmp_path / "a.pt.trace.json", cuda=True))
    assert profile.facts.device == "cuda"
    assert profile.facts.description == "H200"
    step = profile.regular_steps[0]
    assert step.forward_backward_us == pytest.approx(70)  # kernels from 30 to 100
    assert step.update_tail_us == pytest.approx(9)  # the optimizer's kernel ends at 109
    assert step.data_tail_us == pytest.approx(21)
    (collective,) = step.collectives
    assert collective.duration_us == pytest.approx(20)
    assert collective.exposed_us == pytest.approx(10)  # one kernel runs until 90
    kernels = {kernel.name.split("_")[0]: kernel.kind for kernel in profile.kernels}
    assert kernels["ncclDevKernel"] == "communication"


def test_workers_of_a_folder_are_ranks_and_their_cycles_belong_together(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path / f"host_{10 + rank}.100.pt.trace.json", rank=rank)
    later = make_kineto(rank=0)
    for event in later["traceEvents"]:
        event["ts"] += 10_000
        event["name"] = event["name"].replace("ProfilerStep#", "ProfilerStep#1")
    (tmp_path / "host_10.200.pt.trace.json").write_text(json.dumps(later))
    profile = read_any(tmp_path)
    assert profile.ranks == [0, 1]
    assert [step.number for step in profile.steps if step.rank == 0] == [2, 3, 4, 12, 13, 14]
    assert [step.number for step in profile.steps if step.rank == 0 and step.previous_end_us is None] == [2, 12]


def test_workers_that_name_no_rank_are_numbered(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path / f"host_{10 + rank}.100.pt.trace.json")
    profile = read_any(tmp_path)
    assert profile.ranks == [0, 1]
    assert any("do not have distinct ranks" in note for note in profile.facts.notes)


def test_modules_that_the_profiler_saw_are_kept(tmp_path: Path) -> None:
    trace = make_kineto()
    times = [event["ts"] for event in trace["traceEvents"] if event["name"] == "aten::conv2d"]
    for start in times:
        module = {"ph": "X", "pid": 7, "tid": 1, "cat": "python_function", "name": "nn.Module: Conv2d_0"}
        trace["traceEvents"].append(module | {"ts": start - 1, "dur": 25.0, "args": {}})
    (tmp_path / "a.pt.trace.json").write_text(json.dumps(trace))
    operators = read_any(tmp_path).operators
    assert next(operator.module for operator in operators if operator.name == "aten::conv2d") == "Conv2d_0"


def test_operators_know_the_function_of_the_script_and_not_that_of_a_library(tmp_path: Path) -> None:
    trace = make_kineto()
    times = [event["ts"] for event in trace["traceEvents"] if event["name"] == "aten::conv2d"]
    for start in times:
        for depth, name in enumerate(
            ("/home/me/train.py(12): main", "torch/nn/functional.py(3): f", "threading.py(9): run")
        ):
            event = {"ph": "X", "pid": 7, "tid": 1, "cat": "python_function", "name": name, "args": {}}
            trace["traceEvents"].append(event | {"ts": start - 4 + depth, "dur": 30.0 - depth})
    (tmp_path / "a.pt.trace.json").write_text(json.dumps(trace))
    profile = read_any(tmp_path)
    found = next(operator for operator in profile.operators if operator.name == "aten::conv2d")
    assert found.location == "train.py:12 in main()"
    assert any("first lines of their functions" in note for note in profile.facts.notes)


def test_a_trace_of_torch_itself_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
    from torch.utils.data import DataLoader

    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    handler = tensorboard_trace_handler(str(tmp_path), worker_name="worker")
    plan = schedule(wait=0, warmup=1, active=4, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=handler, record_shapes=True
    ) as recording:
        for batch in DataLoader(torch.randn(48, 4), batch_size=8):
            optimizer.zero_grad()
            network(batch).square().mean().backward()
            optimizer.step()
            recording.step()
    found = read_any(tmp_path)
    assert [step.number for step in found.steps] == [1, 2, 3, 4]
    assert found.facts.phases_measured
    for step in found.regular_steps:
        parts = (step.data_tail_us or 0.0) + step.forward_backward_us + step.update_tail_us
        assert parts == pytest.approx(step.iteration_us)
        assert 0 < (step.loader_wait_us or 0.0) < (step.data_tail_us or 0.0)
    calls = {(operator.name, operator.phase): operator.calls for operator in found.operators}
    assert calls["aten::linear", "forward"] == 1  # one row for each of two shapes
    assert any(phase == "backward" for _, phase in calls)
    assert any(phase == "update" for _, phase in calls)
