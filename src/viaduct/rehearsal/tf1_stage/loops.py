"""iterations_per_loop: operators that take N steps on the device in one run.

`util.set_iteration_per_loop` and NPUEstimator declare these operators here; `sessions.run_observed` executes a run with
such an operator N times.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viaduct.rehearsal.tf1_stage.sessions import GraphRun

# By graph, then by the name of a declared operator: its loop count.
_loops: weakref.WeakKeyDictionary[Any, dict[str, int]] = weakref.WeakKeyDictionary()


def declare_loop(graph: Any, op: Any) -> None:
    """Declare that a training run that executes `op` is a loop, of one step until `set_loop_counts`."""
    _loops.setdefault(graph, {})[op.name] = 1


def set_loop_counts(graph: Any, times: int) -> None:
    """Set the loop count of every declared operator, as the adapter does by loading a variable on the device."""
    declared = _loops.setdefault(graph, {})
    declared.update(dict.fromkeys(declared, times))


def count_steps(run: GraphRun) -> int:
    """Return the number of steps of a run: 1 unless it trains and executes a declared operator."""
    declared = _loops.get(run.graph)
    if not declared or not run.training:
        return 1
    return max((declared.get(op.name, 1) for op in run.reach.ops), default=1)
