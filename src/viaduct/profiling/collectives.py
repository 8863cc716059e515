"""Collective operations in a trace, and the time of each that no computation overlaps.

On the CPU, collectives are annotations that gloo, MPI or UCC makes in its own threads, such as "gloo:all_reduce". Time
inside operators is computation, except operators of c10d (torch.distributed), which wait. On an accelerator,
collectives are kernels of NCCL, HCCL or CNCL, and all other kernels are computation.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from viaduct.profiling.events import ANNOTATION, Event, Span, join_spans, remove_spans, sum_spans
from viaduct.profiling.flop_formulas import DTYPE_BYTES
from viaduct.profiling.operator_rows import TRACE_DTYPES, find_kernels
from viaduct.profiling.record import Collective
from viaduct.profiling.trace_context import Trace

HOST_COLLECTIVE_PREFIXES = ("gloo:", "mpi:", "ucc:")
COLLECTIVE_KERNEL_PREFIXES = ("ncclDevKernel", "ncclKernel", "hcom_", "cnclKernel")
# Name of a dtype in the arguments of a collective's event -> torch's name.
ELEMENT_TYPES = {
    "Float": "float32", "Double": "float64", "BFloat16": "bfloat16", "Half": "float16", "Long": "int64",
    "Int": "int32", "Byte": "uint8", "Char": "int8", "Bool": "bool",
}  # fmt: skip


def list_collectives(trace: Trace) -> list[Collective]:
    """Return the collectives of the recorded steps in order of time."""
    if trace.device == "cpu":
        annotations = [
            event for event in trace.events if event.category == ANNOTATION and trace.is_in_step(event.start)
        ]
        events = [event for event in annotations if event.name.startswith(HOST_COLLECTIVE_PREFIXES)]
        waits = [(event.start, event.end) for event in trace.operators if event.name.startswith("c10d::")]
        busy = remove_spans(join_spans((event.start, event.end) for event in trace.operators), join_spans(waits))
    else:
        kernels = [event for event, _ in find_kernels(trace)]
        events = [event for event in kernels if event.name.startswith(COLLECTIVE_KERNEL_PREFIXES)]
        busy = join_spans(
            (event.start, event.end) for event in kernels if not event.name.startswith(COLLECTIVE_KERNEL_PREFIXES)
        )
    return make_collectives(sorted(events, key=lambda event: event.start), busy)


def make_collectives(events: Iterable[Event], busy: list[Span]) -> list[Collective]:
    """Return the collectives with their exposed time: the time outside `busy`, the spans of computation.

    If several collectives run in the same exposed time, it counts only for the first of them.
    """
    measured: list[Collective] = []
    covered = busy
    for event in events:
        exposed = remove_spans([(event.start, event.end)], covered)
        covered = join_spans([*covered, *exposed])
        name = str(event.args.get("Collective name") or event.name)
        measured.append(Collective(name, event.start, event.duration, find_bytes(event), sum_spans(exposed)))
    return measured


def find_bytes(event: Event) -> int | None:
    """Return the size of a collective's input; None if the trace does not have it."""
    elements, dtype = event.args.get("In msg nelems"), event.args.get("dtype")
    if isinstance(elements, int) and dtype in ELEMENT_TYPES:
        return elements * DTYPE_BYTES[ELEMENT_TYPES[str(dtype)]]
    shapes, types = event.args.get("Input Dims") or [], event.args.get("Input type") or []
    if not shapes or not types or TRACE_DTYPES.get(types[0]) not in DTYPE_BYTES:
        return None
    return int(prod(shapes[0])) * DTYPE_BYTES[TRACE_DTYPES[types[0]]]
