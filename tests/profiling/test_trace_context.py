from __future__ import annotations

from typing import Any

from profiling.traces import ENGINE_THREAD, annotate, make_event, read_trace
from viaduct.profiling.trace_context import MODULE_ANNOTATION, Context, Trace

LOSS = "aten::nll_loss"


def find_context(trace: Trace, name: str) -> Context:
    return next(trace.contexts[id(event)] for event in trace.operators if event.name == name)


def make_step(start: float, sequence: int) -> list[Any]:
    """Return a step: batch, forward in a module, loss, backward in another thread, clipping, update, logging."""
    return [
        annotate("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start, 50),
        make_event("aten::stack", start + 10, 20),
        annotate(MODULE_ANNOTATION + "layer1.conv", start + 100, 50),
        make_event("aten::conv2d", start + 110, 30, Sequence_number=sequence),
        make_event(LOSS, start + 200, 10, Sequence_number=sequence + 1),
        make_event(
            "autograd::engine::evaluate_function: NllLossBackward0", start + 300, 20, "cpu_op", ENGINE_THREAD,
            Sequence_number=sequence + 1,
        ),
        make_event(
            "autograd::engine::evaluate_function: ConvolutionBackward0", start + 330, 60, "cpu_op", ENGINE_THREAD,
            Sequence_number=sequence,
        ),
        make_event("aten::convolution_backward", start + 340, 40, "cpu_op", ENGINE_THREAD),
        make_event("aten::_foreach_norm", start + 400, 20, Sequence_number=sequence + 2),
        make_event("aten::linalg_vector_norm", start + 405, 5),
        annotate("Optimizer.step#SGD.step", start + 500, 100),
        make_event("aten::add_", start + 510, 10, Sequence_number=sequence + 2),
        make_event("aten::item", start + 700, 10, Sequence_number=sequence + 2),
    ]  # fmt: skip


def test_an_operator_that_only_peeks_at_the_next_number_is_no_forward_operator() -> None:
    trace = read_trace(*make_step(0, 5), *make_step(1000, 7), steps=2)
    norms = [trace.contexts[id(event)] for event in trace.operators if event.name == "aten::_foreach_norm"]
    assert [context.phase for context in norms] == ["update", "update"]


def test_operators_outside_of_the_steps_do_not_count() -> None:
    trace = read_trace(
        make_event("aten::early", -5, 3), make_event("aten::inside", 5, 3), make_event("aten::late", 1000, 3)
    )
    assert [event.name for event in trace.operators] == ["aten::inside"]


def test_each_operator_has_the_phase_of_its_place_in_the_step() -> None:
    trace = read_trace(*make_step(0, 5), *make_step(1000, 7), steps=2)
    expected = {
        "aten::stack": "data", "aten::conv2d": "forward", LOSS: "forward", "aten::convolution_backward": "backward",
        "aten::linalg_vector_norm": "update", "aten::add_": "update", "aten::item": "other",
    }  # fmt: skip
    assert {name: find_context(trace, name).phase for name in expected} == expected


def test_backward_operators_have_the_module_of_their_forward_operator() -> None:
    trace = read_trace(*make_step(0, 5))
    assert find_context(trace, "aten::convolution_backward").module == "layer1.conv"
    assert find_context(trace, "autograd::engine::evaluate_function: NllLossBackward0").module == ""


def test_the_innermost_module_counts() -> None:
    marks = [
        annotate(MODULE_ANNOTATION + "net", 0, 100),
        annotate(MODULE_ANNOTATION + "net.fc", 10, 50),
        make_event("aten::mm", 20, 5),
    ]
    assert find_context(read_trace(*marks), "aten::mm").module == "net.fc"


def test_a_script_without_modules_has_phases_by_its_gradients() -> None:
    backward = "autograd::engine::evaluate_function: MmBackward0"
    events = [make_event("aten::mm", 10, 5, Sequence_number=1), make_event(backward, 50, 9, Sequence_number=1)]
    trace = read_trace(*events, make_event("aten::sub_", 70, 5))
    assert [trace.contexts[id(event)].phase for event in trace.operators] == ["forward", "backward", "update"]
