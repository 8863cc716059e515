from __future__ import annotations

import pytest
import torch
from torch import distributed

from profiling.traces import annotate, make_event, read_trace
from viaduct.profiling.collectives import list_collectives
from viaduct.profiling.recorder import OperatorRecorder

GLOO = 20
SIZES = {"Input_Dims": [[1000]], "Input_type": ["float"]}


def test_waiting_in_c10d_is_no_computation() -> None:
    reduce = annotate("gloo:all_reduce", 100, 80, GLOO, **SIZES)
    (found,) = list_collectives(read_trace(reduce, make_event("c10d::allreduce_", 90, 100)))
    assert (found.duration_us, found.exposed_us, found.bytes) == (80, 80, 4000)


def test_what_is_computed_meanwhile_hides_a_collective() -> None:
    reduce = annotate("gloo:all_reduce", 100, 80, GLOO)
    (found,) = list_collectives(read_trace(reduce, make_event("aten::mm", 120, 40), make_event("aten::mm", 170, 100)))
    assert (found.exposed_us, found.bytes) == (30, None)


def test_two_collectives_at_once_do_not_expose_the_same_moment_twice() -> None:
    first, second = annotate("gloo:all_reduce", 100, 80, GLOO), annotate("gloo:all_reduce", 120, 100, GLOO + 1)
    assert [found.exposed_us for found in list_collectives(read_trace(first, second))] == [80, 40]


def test_collectives_outside_of_the_steps_do_not_count() -> None:
    assert list_collectives(read_trace(annotate("gloo:broadcast", -50, 20, GLOO), make_event("aten::mm", 5, 5))) == []


@pytest.mark.skipif(not distributed.is_available(), reason="this torch has no torch.distributed")
def test_a_real_collective_of_gloo_is_found() -> None:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        recorder = OperatorRecorder("cpu")
        recorder.start()
        distributed.all_reduce(torch.ones(1000))
        recorder.end_step()
        (found,) = recorder.stop().collectives
    finally:
        distributed.destroy_process_group()
    assert found.name == "gloo:all_reduce"
    assert found.bytes in (4000, None)  # older releases of torch do not name the shape
    assert found.exposed_us == pytest.approx(found.duration_us, rel=0.01)


@pytest.mark.parametrize(("computing", "exposed"), [((200, 50), 50), ((0, 50), 100)])
def test_kernels_of_other_streams_hide_a_collective_on_cuda(computing: tuple[float, float], exposed: float) -> None:
    sizes = {"Collective_name": "allreduce", "In_msg_nelems": 500, "dtype": "BFloat16"}
    reduce = make_event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 150, 100, "kernel", 9, **sizes)
    (found,) = list_collectives(read_trace(reduce, make_event("gemm", *computing, "kernel", 7), device="cuda"))
    assert (found.name, found.exposed_us, found.bytes) == ("allreduce", exposed, 1000)
