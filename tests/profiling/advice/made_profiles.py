"""Profiles made by hand, in which one thing stands out or nothing does."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from viaduct.profiling.advice import add_advice
from viaduct.profiling.figures import Convolution, MatrixProduct, Microbenchmarks
from viaduct.profiling.record import Advice, Collective, Facts, Kernel, Operator, Profile, Step


def make_steps(
    count: int = 10,
    rank: int = 0,
    data_us: float = 100.0,
    compute_us: float = 9000.0,
    update_us: float = 900.0,
    **fields: Any,
) -> list[Step]:
    """Return steps that all take the same times."""
    length = data_us + compute_us + update_us
    return [
        Step(
            rank=rank,
            number=number,
            previous_end_us=number * length,
            forward_start_us=number * length + data_us,
            backward_end_us=number * length + data_us + compute_us,
            end_us=(number + 1) * length,
            **fields,
        )
        for number in range(count)
    ]


def with_collective(steps: Sequence[Step], duration_us: float, exposed_us: float, after_backward: bool) -> list[Step]:
    """Return the steps with one all-reduce each."""
    rows = []
    for step in steps:
        start = step.backward_end_us if after_backward else step.backward_end_us - duration_us
        rows.append(replace(step, collectives=(Collective("all_reduce", start, duration_us, 4_000_000, exposed_us),)))
    return rows


def make_profile(
    steps: Sequence[Step] | None = None, device: str = "cpu", kind: str = "script", **parts: Any
) -> Profile:
    """Return a profile of steps of 10 ms; facts may be among the parts."""
    facts = Facts(source="train.py", kind=kind, device=device, cores=4, **parts.pop("facts", {}))  # type: ignore[arg-type]
    return Profile(facts, steps=make_steps() if steps is None else steps, **parts)


def multiply(time_us: float, dtype: str = "float32", module: str = "", calls: float = 1, **fields: Any) -> Operator:
    """Return a matrix product of 256 x 512 with 512 x 1024."""
    row = {"shapes": "[1024], [256, 512], [512, 1024]", "dtypes": ", ".join([dtype] * 3), "flops": 2.7e8 * calls}
    row |= {"phase": "forward", "module": module} | fields
    return Operator("aten::addmm", calls, time_us, time_us, **row)  # type: ignore[arg-type]


def convolve(time_us: float, layout: str = "contiguous", calls: float = 1, **fields: Any) -> Operator:
    """Return a convolution of 3 x 3 and 64 channels on 16 images of 28 x 28."""
    flops = 2 * 16 * 64 * 28 * 28 * 64 * 9 * calls
    row = {"shapes": "[16, 64, 28, 28], [64, 64, 3, 3]", "dtypes": "float32, float32", "layout": layout, "flops": flops}
    row |= {"phase": "forward", "module": "layer1.conv"} | fields
    return Operator("aten::mkldnn_convolution", calls, time_us, time_us, **row)  # type: ignore[arg-type]


def read_value(calls: float = 1, location: str = "train.py:41", **fields: Any) -> Operator:
    """Return an operator that reads a value from the device."""
    row: dict[str, Any] = {"synchronises": True, "location": location, "phase": "other"} | fields
    return Operator("aten::item", calls, 5.0 * calls, 2.0 * calls, **row)


def launch(name: str, time_us: float, calls: float, kind: str = "elementwise", operator: str = "") -> Kernel:
    """Return a kernel of an accelerator."""
    return Kernel(name, kind, calls, time_us, "float32", operator)


class FixedTimes:
    """Microbenchmarks that return given times, and record what was requested."""

    def __init__(self, times: tuple[float, float] | None) -> None:
        self.times = times
        self.asked: list[Any] = []
        self.failures: list[str] = [] if times else ["RuntimeError: no memory"]

    def time_layouts(self, convolution: Convolution) -> tuple[float, float] | None:
        self.asked.append(convolution)
        return self.times

    def time_dtypes(self, work: Convolution | MatrixProduct, dtype: str) -> tuple[float, float] | None:
        self.asked.append((work, dtype))
        return self.times

    def time_updates(self, class_name: str, sizes: Sequence[int]) -> tuple[float, float] | None:
        self.asked.append((class_name, list(sizes)))
        return self.times


def advise(profile: Profile, microbenchmarks: Microbenchmarks | None = None) -> list[Advice]:
    return list(add_advice(profile, microbenchmarks).advice)


def find_advice(name: str, profile: Profile) -> Advice | None:
    return next((advice for advice in advise(profile) if advice.name == name), None)
