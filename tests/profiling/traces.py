"""Traces as torch.profiler writes them, made up for tests: microseconds, one process."""

from __future__ import annotations

from typing import Any

from viaduct.profiling.trace_context import Trace

MAIN, ENGINE_THREAD, STREAM = 1, 2, 7


def make_event(
    name: str, start: float, duration: float, category: str = "cpu_op", thread: int = MAIN, **args: Any
) -> Any:
    """Return one complete event; `External_id=3` becomes the argument "External id"."""
    named = {key.replace("_", " "): value for key, value in args.items()}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": start,
        "dur": duration,
        "args": named,
    }


def annotate(name: str, start: float, duration: float, thread: int = MAIN, **args: Any) -> Any:
    """Return an annotation, such as an optimizer's."""
    return make_event(name, start, duration, "user_annotation", thread, **args)


def launch(correlation: int, start: float, kernel: str, kernel_start: float, duration: float, **args: Any) -> list[Any]:
    """Return a call of the runtime and the kernel that it launched."""
    return [
        make_event("cudaLaunchKernel", start, 1, "cuda_runtime", correlation=correlation),
        make_event(kernel, kernel_start, duration, "kernel", STREAM, correlation=correlation, stream=STREAM, **args),
    ]


def read_trace(*events: Any, steps: int = 1, step_us: float = 1000, device: str = "cpu") -> Trace:
    """Return the trace of some steps that follow each other from time 0 on."""
    windows = [(number * step_us, (number + 1) * step_us) for number in range(steps)]
    return Trace.read(list(events), windows, (1, MAIN), device)
