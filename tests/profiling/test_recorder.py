from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from profiling.traces import annotate, launch, make_event
from viaduct.profiling.recorder import CLOCK, OperatorRecorder, RecordedSteps

HERE = Path(__file__)
ITEM = HERE.read_text().splitlines().index("        loss.item()  # synchronises") + 1


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, 5)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.stem(images)).mean((2, 3)))
        return logits


@pytest.fixture(scope="module")
def recorded() -> RecordedSteps:
    """Three recorded steps of a small network."""
    network = Network()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    loader = DataLoader(TensorDataset(torch.randn(12, 3, 8, 8), torch.randint(0, 5, (12,))), 4)
    recorder = OperatorRecorder("cpu", rank=3, script_folder=HERE.parent)
    recorder.add_network(network)
    batches = iter(loader)
    began = time.perf_counter_ns() / 1000
    recorder.start()
    for images, labels in batches:
        loss = nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()  # synchronises
        recorder.end_step()
    ended = time.perf_counter_ns() / 1000
    found = recorder.stop()
    assert all(began <= point.time_us <= ended for point in found.memory)
    return found


def test_a_recorder_that_never_started_has_a_note() -> None:
    assert OperatorRecorder("cpu").stop() == RecordedSteps(notes=["operators were not recorded: no step was reached"])


def test_a_step_that_did_not_end_is_reported_and_what_was_seen_is_kept() -> None:
    recorder = OperatorRecorder("cpu")
    recorder.start()
    torch.ones(3).add(1)
    found = recorder.stop()
    assert "did not end" in found.notes[0]
    assert "aten::add" in {row.name for row in found.operators}


def test_another_devices_kernels_are_named_as_missing() -> None:
    recorder = OperatorRecorder("npu")
    recorder.list_activities()
    assert "does not see the kernels of npu" in recorder.notes[0]


def test_nothing_outside_of_the_steps_is_in_the_rows() -> None:
    recorder = OperatorRecorder("cpu")
    torch.ones(3).sin()
    recorder.start()
    torch.ones(3).cos()
    recorder.end_step()
    torch.ones(3).tan()
    names = {row.name for row in recorder.stop().operators}
    assert "aten::cos" in names
    assert not names & {"aten::sin", "aten::tan"}


def test_operators_of_an_evaluation_are_no_operators_of_a_step() -> None:
    recorder = OperatorRecorder("cpu")
    recorder.start()
    for number in range(3):
        if number == 1:
            torch.ones(3).tan()
        torch.ones(3).cos()
        recorder.end_step(leave_out=number == 1)
    found = recorder.stop()
    assert {row.name: row.calls for row in found.operators if row.name in ("aten::cos", "aten::tan")} == {
        "aten::cos": 1
    }
    assert "1 of 3 recorded steps were interrupted, for example by an evaluation" in found.notes[0]


def test_recording_ends_before_it_takes_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viaduct.profiling.recorder.MAX_GROWTH_BYTES", -(1 << 40))
    recorder = OperatorRecorder("cpu")
    recorder.start()
    torch.ones(3).cos()
    recorder.end_step()
    torch.ones(3).tan()
    recorder.end_step()
    found = recorder.stop()
    assert "recording ended after 1 of the steps" in found.notes[0]
    assert "aten::cos" in {row.name for row in found.operators}
    assert "aten::tan" not in {row.name for row in found.operators}


def test_modules_forward_and_backward_are_known(recorded: RecordedSteps) -> None:
    rows = {row.name: (row.module, row.phase, row.calls) for row in recorded.operators}
    assert rows["aten::convolution"] == ("stem", "forward", 1)
    assert rows["aten::convolution_backward"] == ("stem", "backward", 1)
    assert rows["aten::addmm"] == ("head", "forward", 1)
    assert {row.phase for row in recorded.operators} == {"data", "forward", "backward", "update", "other"}
    assert {row.rank for row in recorded.operators} == {3}


def test_the_line_of_a_synchronisation_is_known(recorded: RecordedSteps) -> None:
    waits = [row for row in recorded.operators if row.synchronises]
    assert [(row.name, row.calls) for row in waits] == [("aten::_local_scalar_dense", 1)]
    assert waits[0].location in (f"{HERE.name}:{ITEM}", f"{HERE.name} in recorded()")


def test_work_of_the_convolution_is_counted_once(recorded: RecordedSteps) -> None:
    rows = [row for row in recorded.operators if row.phase == "forward" and row.module == "stem" and row.flops]
    assert sum(row.flops or 0 for row in rows) == 2 * (4 * 4 * 6 * 6) * 27


def test_kernels_have_kinds_and_no_helper_is_one(recorded: RecordedSteps) -> None:
    assert {"convolution", "matrix product", "optimizer"} <= {kernel.kind for kernel in recorded.kernels}
    assert not {"aten::empty", "aten::conv2d", "aten::linear"} & {kernel.name for kernel in recorded.kernels}


def test_owners_explain_the_peak(recorded: RecordedSteps) -> None:
    peak = max(point.allocated for point in recorded.memory)
    assert sum(owner.bytes for owner in recorded.memory_owners) == peak
    owners = {owner.name: owner.bytes for owner in recorded.memory_owners}
    weights = sum(parameter.nbytes for parameter in Network().parameters())
    assert owners["parameters"] >= weights


def test_events_are_on_the_hosts_clock_without_python_functions(recorded: RecordedSteps) -> None:
    operators = [event for event in recorded.events if event.get("cat") == "cpu_op"]
    points = [point.time_us for point in recorded.memory]
    assert operators
    assert any(points[0] <= event["ts"] <= points[-1] for event in operators)
    assert not any(event.get("cat") == "python_function" for event in recorded.events)


def test_a_trace_of_a_gpu_becomes_rows_on_the_hosts_clock() -> None:
    recorder = OperatorRecorder("cuda")
    recorder.marks = [50_000.5, 51_000.5]
    raw = [
        annotate(CLOCK, 0, 1),
        annotate(CLOCK, 1000, 1),
        make_event("aten::addmm", 100, 50, External_id=2),
        *launch(9, 110, "sm90_gemm", 1200, 70, External_id=2),
        make_event("cudaStreamSynchronize", 300, 900, "cuda_runtime", correlation=10),
    ]
    found = recorder.evaluate(raw, 0, {})
    assert [(row.name, row.device_us, row.synchronises) for row in found.operators] == [
        ("cudaStreamSynchronize", 0.0, True),
        ("aten::addmm", 70.0, False),
    ]
    assert [(kernel.name, kernel.kind, kernel.operator) for kernel in found.kernels] == [
        ("sm90_gemm", "matrix product", "aten::addmm")
    ]
    assert next(event["ts"] for event in found.events if event["name"] == "aten::addmm") == 50_100


def test_a_trace_without_clock_annotations_gives_no_rows() -> None:
    recorder = OperatorRecorder("cpu")
    recorder.marks = [1.0, 2.0]
    found = recorder.evaluate([annotate(CLOCK, 0, 1), make_event("aten::add", 5, 5)], 0, {})
    assert found.operators == []
    assert "lost events" in found.notes[0]
