"""Profiles made by hand, with every field of the records filled."""

from __future__ import annotations

from collections.abc import Sequence

from viaduct.profiling.record import (
    Advice,
    Ceilings,
    Collective,
    Facts,
    Kernel,
    MemoryOwner,
    MemoryPoint,
    Operator,
    Profile,
    Sample,
    Step,
)


def make_steps(
    rank: int = 0, count: int = 5, data: float = 10.0, compute: float = 70.0, update: float = 20.0
) -> list[Step]:
    """Return steps whose phases take these times, one all-reduce in each backward pass."""
    iteration = data + compute + update
    steps = []
    for number in range(count):
        previous = number * iteration
        forward = previous + data
        backward_end = forward + compute
        reduce = Collective("all_reduce", backward_end - 5, 12.0, 4096, 7.0)
        steps.append(
            Step(
                rank,
                number,
                forward_start_us=forward,
                backward_end_us=backward_end,
                end_us=previous + iteration,
                previous_end_us=None if number == 0 else previous,
                loader_wait_us=data * 0.8,
                collectives=(reduce,),
            )
        )
    return steps


def make_profile(rank: int = 0, steps: Sequence[Step] | None = None) -> Profile:
    """Return a profile with something in every part."""
    operator = Operator(
        "aten::convolution",
        calls=2.0,
        total_us=50.0,
        self_us=30.0,
        phase="forward",
        module="layer1.conv",
        shapes="[32, 3, 8, 8], [4, 3, 3, 3]",
        dtypes="float32, float32",
        layout="contiguous",
        location="train.py:12",
        flops=1e6,
        bytes=2e4,
        rank=rank,
    )
    return Profile(
        Facts(
            "train.py",
            "script",
            description="a CPU",
            batch=32,
            precision="float32",
            mode="eager",
            timed_steps=5,
            recorded_steps=2,
            recorded_step_us=120.0,
            phases_found_by=("FP start: the first module",),
            notes=("no GPU",),
            versions={"torch": "2.13.0"},
            date="2026-01-01",
            zero_unix_us=1.7e15 + rank * 1000,
        ),
        steps=make_steps(rank) if steps is None else steps,
        operators=[operator, Operator("aten::add", calls=4.0, total_us=8.0, self_us=8.0, rank=rank)],
        kernels=[Kernel("aten::convolution", "convolution", 2.0, 30.0, "float32", flops=1e6, rank=rank)],
        memory=[MemoryPoint(0.0, 1 << 20, 1 << 21, rank), MemoryPoint(50.0, 3 << 20, None, rank)],
        memory_owners=[MemoryOwner("layer1", 1 << 20, rank)],
        samples=[Sample(0.0, {"cpu 0 %": 50.0}), Sample(200.0, {"cpu 0 %": 75.5, "memory MiB": 900.0})],
        ceilings=Ceilings(1e10, {"float32": 1e11}),
        advice=[
            Advice(
                "The loader is slow", "more workers", ("8 ms of 10",), 8.0, "the wait", ("train.py:3",), name="loader"
            )
        ],
        tables={"step_trace_time": {"columns": ["Step", "Computing"], "rows": [[1, 2.5]]}},
    )
