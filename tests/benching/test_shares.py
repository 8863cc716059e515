"""Traces written by hand: microseconds in, milliseconds a step out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from training import tiny_runs
from viaduct.benching import shares
from viaduct.profiling import kinds
from viaduct.profiling.events import nest_events
from viaduct.recipes import Lars, Thor
from viaduct.training.rundir import RunDir


def event(category: str, name: str, begin: float, duration: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": duration, "tid": 1, "args": more}


def test_kernels_side_by_side_are_not_counted_twice() -> None:
    events = [event("kernel", "wgrad", 0, 1000), event("kernel", "batch_norm", 500, 1000)]
    found = shares.attribute_kernels(nest_events(events), steps=1, ms_per_step=1.5)
    assert found.by_kind == {kinds.CONVOLUTION: 1.0, kinds.NORMALISATION: 0.5}
    assert found.host_gaps == 0


def test_what_the_card_has_nothing_to_do_in_is_a_gap_and_waits_for_data_while_the_host_fetches() -> None:
    fetch = event("user_annotation", shares.FETCH, 1000, 750)
    on_card = event("gpu_user_annotation", shares.FETCH, 0, 9000)  # the same mark, as the card's timeline has it
    events = [event("kernel", "wgrad", 0, 1000), fetch, on_card, event("kernel", "wgrad", 2000, 1000)]
    found = shares.attribute_kernels(nest_events(events), steps=1, ms_per_step=3.0)
    assert found.by_kind == {kinds.CONVOLUTION: 2.0}
    assert found.host_gaps == pytest.approx(0.25)
    assert found.data_wait == pytest.approx(0.75)


def test_gaps_that_the_profiler_itself_makes_do_not_count() -> None:
    events = [event("kernel", "wgrad", 0, 1000), event("kernel", "wgrad", 5000, 1000)]
    found = shares.attribute_kernels(
        nest_events(events), steps=1, ms_per_step=2.0
    )  # as it was timed without the profiler
    assert found.host_gaps == 0
    assert sum(found.by_kind.values()) == 2.0


def test_kernels_that_the_profiler_slows_down_are_not_longer_than_the_step() -> None:
    found = shares.attribute_kernels(nest_events([event("kernel", "wgrad", 0, 3000)]), steps=1, ms_per_step=2.0)
    assert found.by_kind == {kinds.CONVOLUTION: 2.0}
    assert found.host_gaps == 0


def test_a_product_that_a_convolution_launched_is_a_convolution() -> None:
    operator = event("cpu_op", "aten::cudnn_convolution", 0, 10, **{"External id": 7})
    launched = event("kernel", "nvjet_tst_128x128", 5, 100, **{"External id": 7})
    alone = event("kernel", "nvjet_tst_128x128", 105, 100, **{"External id": 8})
    found = shares.attribute_kernels(nest_events([operator, launched, alone]), steps=1, ms_per_step=0.2)
    assert found.by_kind == {kinds.CONVOLUTION: 0.1, kinds.PRODUCT: 0.1}


def test_a_profile_without_kernels_says_so() -> None:
    assert shares.attribute_kernels(nest_events([]), 1, 1.0).why_not == "the profiler saw no kernel"


def test_an_operator_has_the_time_that_those_inside_it_do_not_take() -> None:
    events = [
        event("user_annotation", shares.WINDOW, 0, 1000),
        event("user_annotation", shares.FETCH, 0, 100),
        event("cpu_op", "aten::cat", 10, 50),
        event("cpu_op", "aten::convolution", 100, 600),
        event("cpu_op", "aten::mkldnn_convolution", 200, 400),
        event("cpu_op", "aten::batch_norm", 700, 200),
    ]
    found = shares.attribute_operators(nest_events(events), steps=1, ms_per_step=2.0)  # twice as long as in the profile
    assert found.by_kind == pytest.approx({kinds.CONVOLUTION: 1.2, kinds.NORMALISATION: 0.4})
    assert found.data_wait == pytest.approx(0.2)
    assert found.host_gaps == pytest.approx(0.2)
    assert found.largest[0]["name"] == "aten::mkldnn_convolution"


UPDATE = "Optimizer.step#LarsOptimizer.step"


def test_what_runs_inside_of_an_optimizers_step_is_the_optimizers() -> None:
    events = [
        event("user_annotation", shares.WINDOW, 0, 1000),
        event("cpu_op", "aten::mm", 0, 500),
        event("user_annotation", UPDATE, 500, 400),
        event("user_annotation", "Optimizer.step#SGD.step", 550, 50),
        event("cpu_op", "aten::linalg_vector_norm", 550, 100),
        event("cpu_op", "aten::mm", 650, 200),
        event("cpu_op", "aten::mul", 900, 100),
    ]
    found = shares.attribute_operators(nest_events(events), steps=1, ms_per_step=1.0)
    assert found.by_kind == pytest.approx({kinds.PRODUCT: 0.5, kinds.OPTIMIZER: 0.3, kinds.OTHER: 0.1})


def test_so_is_what_it_launches_on_a_card() -> None:
    events = [
        event("user_annotation", UPDATE, 0, 20),
        event("cpu_op", "aten::mm", 0, 10, **{"External id": 7}),
        event("kernel", "nvjet_tst_128x128", 5, 100, **{"External id": 7}),
    ]
    assert shares.attribute_kernels(nest_events(events), steps=1, ms_per_step=0.1).by_kind == pytest.approx(
        {kinds.OPTIMIZER: 0.1}
    )


@pytest.mark.parametrize("part", [Lars(), Thor(frequency=1)])
def test_the_optimizers_of_our_own_carry_the_mark(part: Lars | Thor, tmp_path: Path) -> None:
    training = tiny_runs.build_training(replace(tiny_runs.RECIPE, optimizer=part), RunDir(tmp_path))
    training.set_training_mode()
    batches = training.iterate_batches()
    training.run_step(next(batches))
    events = shares.record_trace(lambda steps: training.run_step(next(batches)), 1, "cpu")
    (begin, end), *others = shares.OptimizerSpans(events).spans
    assert not others
    assert end > begin


def test_a_device_whose_kernels_nobody_sees_is_named() -> None:
    assert "npu" in (shares.profile_steps(lambda steps: None, 1, "npu", 1.0).why_not or "")
