"""Operators, kernels and memory of steps on a real card; `make test-gpu`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from viaduct.profiling.nvml import GpuReader
from viaduct.profiling.recorder import OperatorRecorder, RecordedSteps

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here"),
]
HERE = Path(__file__)
ITEM = HERE.read_text().splitlines().index("        loss.item()  # synchronises") + 1


def build_network() -> nn.Sequential:
    layers = [
        nn.Conv2d(3, 64, 3),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    ]
    return nn.Sequential(*layers).cuda()


@pytest.fixture(scope="module")
def recorded() -> RecordedSteps:
    network = build_network()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    # Large enough that cuBLAS's workspaces (64 MiB on an H200), which exist before the recording, are a small share.
    images, labels = torch.randn(128, 3, 64, 64, device="cuda"), torch.randint(0, 10, (128,), device="cuda")
    recorder = OperatorRecorder("cuda", script_folder=HERE.parent)
    recorder.add_network(network)
    for step in range(6):
        if step == 3:
            recorder.start()
        loss = nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()  # synchronises
        if step >= 3:
            recorder.end_step()
    return recorder.stop()


def test_only_what_waits_synchronises(recorded: RecordedSteps) -> None:
    waits = [row for row in recorded.operators if row.synchronises]
    assert [(row.name, row.calls, row.location) for row in waits] == [
        ("aten::_local_scalar_dense", 1, f"{HERE.name}:{ITEM}")
    ]


def test_kernels_belong_to_operators_of_all_phases(recorded: RecordedSteps) -> None:
    on_device = sum(row.device_us or 0.0 for row in recorded.operators)
    assert on_device == pytest.approx(sum(kernel.time_us for kernel in recorded.kernels), rel=0.1)
    phases = {row.phase for row in recorded.operators if row.device_us}
    assert {"forward", "backward", "update"} <= phases
    assert {"convolution", "normalisation", "optimizer"} <= {kernel.kind for kernel in recorded.kernels}


def test_backward_kernels_know_their_module(recorded: RecordedSteps) -> None:
    rows = [row for row in recorded.operators if row.name == "aten::convolution_backward"]
    assert [(row.module, row.phase) for row in rows] == [("0", "backward")]


def test_owners_explain_the_peak(recorded: RecordedSteps, show: Callable[[str], None]) -> None:
    peak = max(point.allocated for point in recorded.memory)
    owners = {owner.name: owner.bytes for owner in recorded.memory_owners}
    show(f"peak {peak:,} bytes: {owners}")
    assert sum(owners.values()) == pytest.approx(peak, rel=0.01)
    assert owners.get("allocated before recording, not identified", 0) < 0.2 * peak


def test_a_replayed_graph_has_its_kernels() -> None:
    network, images = build_network().eval(), torch.randn(8, 3, 32, 32, device="cuda")
    with torch.no_grad():
        network(images)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            network(images)
        recorder = OperatorRecorder("cuda")
        recorder.start()
        graph.replay()
        recorder.end_step()
    assert sum(kernel.calls for kernel in recorder.stop().kernels) >= 4


def test_nvml_answers(show: Callable[[str], None]) -> None:
    gpus = GpuReader.open()
    began = time.perf_counter()
    values = gpus.read()
    show(f"{1000 * (time.perf_counter() - began):.1f} ms: {values}")
    number = min(gpus.handles)
    assert values[f"gpu {number} memory MiB"] > 0
    assert 0 <= values[f"gpu {number} %"] <= 100
