"""Rows of kernels from the events of a trace.

    kernels = list_kernels(Trace.read(…))

On an accelerator the rows are kernels, copies and fills on the device. On the CPU, an operator counts as a kernel, with
its self time, in three cases: its work is known by a formula (flop_formulas.py); it is compiled code; or it calls no
operators except HELPERS, which only allocate or describe memory, and is none of them itself. Importing this module does
not import torch.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from viaduct.profiling import kinds
from viaduct.profiling.events import ANNOTATION, OPERATOR, OPTIMIZER, Event
from viaduct.profiling.flop_formulas import DTYPE_BYTES, NOTHING_KNOWN, Work
from viaduct.profiling.operator_rows import find_kernels, find_works, read_call, sum_per_step
from viaduct.profiling.record import Kernel
from viaduct.profiling.trace_context import Trace

HELPER_NAMES = (
    "empty", "empty_like", "empty_strided", "new_empty", "resize_", "view", "reshape", "as_strided",
    "as_strided_", "t", "transpose", "permute", "expand", "expand_as", "select", "slice", "squeeze",
    "unsqueeze", "detach", "detach_", "alias", "_unsafe_view", "_reshape_alias", "narrow", "unbind", "split",
    "chunk", "view_as", "numpy_T", "flatten", "result_type", "is_same_size", "set_", "resolve_conj",
    "resolve_neg", "lift_fresh", "unfold", "contiguous", "to",
)  # fmt: skip
HELPERS = {f"aten::{name}" for name in HELPER_NAMES}
HELPERS |= {"detach", "detach_", "TorchDynamo Cache Lookup", "Pregraph bytecode"}
"""Names of operators that allocate or describe memory but compute nothing."""


def list_kernels(trace: Trace, rank: int = 0) -> list[Kernel]:
    """Return a row for each kernel name, dtype and operator, the longest first."""
    launches = list_leaf_operators(trace) if trace.device == "cpu" else list_launches(trace)
    groups: dict[KernelSignature, list[Launch]] = defaultdict(list)
    for launch in launches:
        groups[launch.signature].append(launch)
    steps = len(trace.step_spans)
    kernels = [
        Kernel(
            **signature._asdict(),
            calls=len(group) / steps,
            time_us=trace.find_typical_time_per_step((launch.moment, launch.time_us) for launch in group),
            flops=sum_per_step([launch.work.flops for launch in group], steps),
            bytes=sum_per_step([launch.work.bytes for launch in group], steps),
            rank=rank,
        )
        for signature, group in groups.items()
    ]
    return sorted(kernels, key=lambda kernel: -kernel.time_us)


class KernelSignature(NamedTuple):
    """Properties by which launches are grouped into rows."""

    name: str
    kind: str
    dtype: str
    operator: str


class Launch(NamedTuple):
    """One launch of a kernel, or one call of an operator that counts as a kernel."""

    signature: KernelSignature
    moment: float  # the launch belongs to the step that contains this time
    time_us: float
    work: Work


def list_leaf_operators(trace: Trace) -> list[Launch]:
    """Return the CPU's kernels: leaf operators, operators with a formula and compiled code, each with its self time."""
    callers = {id(event.find_enclosing(OPERATOR)) for event in trace.operators if event.name not in HELPERS}
    works = find_works(trace.operators)
    launches: list[Launch] = []
    for event in trace.operators:
        is_leaf = id(event) not in callers and event.name not in HELPERS
        if is_leaf or works[id(event)].family or kinds.classify_operator(event.name) == kinds.COMPILED:
            outer = event.find_enclosing(OPERATOR)
            caller = outer.name if outer is not None else ""
            signature = KernelSignature(event.name, find_kind(trace, event), find_dtype(event), caller)
            launches.append(Launch(signature, event.start, trace.get_self_time(event), works[id(event)]))
    return launches


def list_launches(trace: Trace) -> list[Launch]:
    """Return launches of kernels; the only kernel that an operator launched has the operator's work."""
    works, kernels = find_works(trace.operators), find_kernels(trace)
    counts: dict[int, int] = defaultdict(int)
    for _, operator in kernels:
        counts[id(operator)] += 1
    launches: list[Launch] = []
    for kernel, operator in kernels:
        is_only_kernel = operator is not None and counts[id(operator)] == 1
        work = works.get(id(operator), NOTHING_KNOWN) if is_only_kernel else NOTHING_KNOWN
        dtype = find_dtype(operator) if operator is not None else ""
        name = operator.name if operator is not None else ""
        signature = KernelSignature(kernel.name, find_kernel_kind(trace, kernel, operator), dtype, name)
        moment = operator.start if operator is not None else kernel.start
        launches.append(Launch(signature, moment, kernel.duration, work))
    return launches


def find_dtype(event: Event) -> str:
    """Return the dtype of the first floating-point input, else of the first tensor; "" without tensors."""
    dtypes = [dtype for dtype in read_call(event).dtypes if dtype in DTYPE_BYTES]
    return next((dtype for dtype in dtypes if "float" in dtype), dtypes[0] if dtypes else "")


def find_kind(trace: Trace, event: Event) -> str:
    """Return the kind of an operator; every operator inside an optimizer's step has the kind OPTIMIZER."""
    context = trace.contexts.get(id(event))
    outer = event.find_enclosing(ANNOTATION)
    is_inside_step = outer is not None and outer.name.startswith(OPTIMIZER)
    if context is not None and context.phase == "update" and is_inside_step:
        return kinds.OPTIMIZER
    return kinds.refine_other_kind(kinds.classify_operator(event.name), event.name)


def find_kernel_kind(trace: Trace, kernel: Event, operator: Event | None) -> str:
    """Return the kind of a kernel by its own name, or by its operator if that is an update or more specific."""
    by_operator = find_kind(trace, operator) if operator is not None else kinds.OTHER
    by_name = kinds.refine_other_kind(kinds.classify_kernel(kernel.name), kernel.name)
    if by_operator == kinds.OPTIMIZER or by_name in (kinds.PRODUCT, kinds.OTHER, kinds.ELEMENTWISE):
        return by_name if by_operator in (kinds.OTHER, kinds.COMPILED) else by_operator
    return by_name
