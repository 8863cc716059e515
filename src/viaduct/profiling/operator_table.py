"""Rows of operators and kernels from the events of a trace.

    trace = Trace.read(raw_events, windows=[(start, end), …], main_thread=(pid, tid), device="cpu")
    operators, kernels = list_operators(trace), list_kernels(trace)

`trace_context.py` finds phase, module and script line of each operator, `operator_rows.py` and `kernel_rows.py` make
the rows. Importing this module does not import torch.
"""

from viaduct.profiling.kernel_rows import list_kernels
from viaduct.profiling.operator_rows import list_operators
from viaduct.profiling.trace_context import MODULE, Trace

__all__ = ["MODULE", "Trace", "list_kernels", "list_operators"]
