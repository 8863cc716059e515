"""A sink for a step of one's own. Devices that capture are stood in for here; tests/gpu asks a real one."""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import viaduct
from viaduct.errors import BadValue
from viaduct.training import step_sink
from viaduct.training.step_sink import WARM_UP_CALLS, StepSink

BATCHES = [(torch.randn(4, 3), torch.randint(0, 2, (4,))) for _ in range(12)]


def make_step(network: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


class Graphs:
    """A device that seems to capture: a replay runs the work again."""

    NAME = "cpu"

    def __init__(self) -> None:
        self.captured = self.waited = 0

    def get_graph_class(self) -> object:
        return object

    def synchronize(self) -> None:
        self.waited += 1

    def capture(self, device: object, work: Callable[[], None]) -> Callable[[], None]:
        self.captured += 1
        return work


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    made = Graphs()
    monkeypatch.setattr(step_sink.devices, "get", lambda name: made)
    monkeypatch.setattr(step_sink, "capture_graph", made.capture)
    return made


def test_results_are_those_of_the_step_itself() -> None:
    network = nn.Linear(3, 2)
    other = copy.deepcopy(network)
    step = make_step(other)
    with viaduct.sink(make_step(network), steps=5) as run:
        losses = [run(*batch).clone() for batch in BATCHES]
    plain = [step(*batch).detach() for batch in BATCHES]
    assert all(map(torch.equal, losses, plain))
    assert all(map(torch.equal, network.parameters(), other.parameters()))
    assert not losses[0].requires_grad


def test_a_device_without_graphs_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "viaduct")
    with viaduct.sink(make_step(nn.Linear(3, 2))) as run:
        for batch in BATCHES[:3]:
            run(*batch)
    assert [record.getMessage() for record in caplog.records] == [
        "viaduct.sink: each call runs the step itself, because cpu captures no graphs"
    ]


def test_a_captured_step_is_taken_once_a_call(graphs: Graphs) -> None:
    network = nn.Linear(3, 2)
    other = copy.deepcopy(network)
    step = make_step(other)
    with viaduct.sink(make_step(network), steps=5) as run:
        for number, batch in enumerate(BATCHES):
            assert torch.equal(run(*batch), step(*batch).detach())
            assert graphs.captured == int(number >= WARM_UP_CALLS)
        assert graphs.waited == len(BATCHES) // 5
    assert graphs.waited == len(BATCHES) // 5 + 1
    assert run.replay is None
    assert run.buffers == []
    assert all(map(torch.equal, network.parameters(), other.parameters()))


def test_random_numbers_of_the_host_are_refused_where_steps_are_captured(graphs: Graphs) -> None:
    with viaduct.sink(lambda x: x * random.random()) as run:
        for _ in range(WARM_UP_CALLS - 1):
            run(torch.ones(2))
        with pytest.raises(BadValue, match="uses Python's random numbers, and a replay would draw none"):
            run(torch.ones(2))


def test_autocast_around_a_captured_step_is_refused(graphs: Graphs) -> None:
    with viaduct.sink(lambda x: x * 2) as run, torch.autocast("cpu", torch.bfloat16):
        for _ in range(WARM_UP_CALLS):
            run(torch.ones(2))
        with pytest.raises(BadValue, match=r"Put `with torch\.autocast"):
            run(torch.ones(2))


@pytest.mark.parametrize(("error", "wanted"), [(RuntimeError, BadValue), (KeyError, KeyError)])
def test_a_step_that_cannot_be_captured_is_refused(
    graphs: Graphs, monkeypatch: pytest.MonkeyPatch, error: type[Exception], wanted: type[Exception]
) -> None:
    def capture(device: object, work: Callable[[], None]) -> None:
        raise error("operation not permitted when stream is capturing")

    monkeypatch.setattr(step_sink, "capture_graph", capture)
    with viaduct.sink(lambda x: x * 2) as run:
        for _ in range(WARM_UP_CALLS):
            run(torch.ones(2))
        with pytest.raises(wanted, match="not permitted"):
            run(torch.ones(2))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            (torch.ones(3, 3), BATCHES[0][1]),
            r"1 is torch.float32 \[3, 3\] on cpu, and was torch.float32 \[4, 3\]",
        ),
        (
            (torch.ones(4, 3).double(), BATCHES[0][1]),
            r"1 is torch.float64 \[4, 3\] on cpu, and was torch.float32",
        ),
        ((torch.ones(4, 3, device="meta"), BATCHES[0][1]), r"\[4, 3\] on meta, and was torch.float32 \[4, 3\] on cpu"),
        ((torch.ones(4, 3),), "1 inputs, and the first call had 2"),
        ((torch.ones(4, 3), 7), "input 2 is of type int; inputs must be tensors"),
        ((torch.ones(4, 3, requires_grad=True), BATCHES[0][1]), "input 1 requires a gradient"),
    ],
)
def test_other_inputs_than_in_the_first_call_are_refused(inputs: tuple[Any, ...], message: str) -> None:
    with viaduct.sink(make_step(nn.Linear(3, 2))) as run:
        run(*BATCHES[0])
        with pytest.raises(BadValue, match=message):
            run(*inputs)
        run(*BATCHES[1])  # which goes on


def test_it_is_entered_once_and_called_inside() -> None:
    sink = viaduct.sink(lambda x: x)
    with pytest.raises(BadValue, match="outside of its `with`"):
        sink(torch.ones(1))
    with sink, pytest.raises(BadValue, match="entered before"):
        sink.__enter__()
    with pytest.raises(BadValue, match="entered before"):
        sink.__enter__()
    with pytest.raises(BadValue, match="outside of its `with`"):
        sink(torch.ones(1))


def test_a_step_does_not_call_its_own_sink() -> None:
    sinks: list[StepSink] = []
    with viaduct.sink(lambda x: sinks[0](x)) as run:
        sinks.append(run)
        with pytest.raises(BadValue, match="called by the step that it runs"):
            run(torch.ones(1))


def test_errors_of_the_step_are_its_own() -> None:
    def step(x: Tensor) -> Tensor:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"), viaduct.sink(step) as run:
        run(torch.ones(1))


@pytest.mark.parametrize("made", [3.5, {"loss": torch.ones(1)}, (torch.ones(1), 2)])
def test_a_step_returns_tensors(made: Any) -> None:
    with viaduct.sink(lambda x: made) as run, pytest.raises(BadValue, match="it must return tensors"):
        run(torch.ones(1))


def test_a_step_returns_several_tensors_or_none() -> None:
    with viaduct.sink(lambda x: (x, [x + 1, None])) as run:
        first, (second, nothing) = run(torch.ones(1))
    assert (float(first), float(second), nothing) == (1.0, 2.0, None)
    with viaduct.sink(lambda: None) as run:
        assert run() is None


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "9"])
def test_a_length_that_is_no_number_of_steps_is_refused(steps: Any) -> None:
    with pytest.raises(BadValue, match="steps is"):
        viaduct.sink(lambda x: x, steps=steps)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(BadValue, match="the step is of type int"):
        viaduct.sink(3)  # type: ignore[arg-type]
