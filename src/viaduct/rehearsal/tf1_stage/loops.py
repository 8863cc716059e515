"""iterations_per_loop: operators that take N training steps on the device in one Session.run.

`util.set_iteration_per_loop` and NPUEstimator declare these operators here. On the CPU, `sessions.run_observed`
executes a run that contains such an operator N times.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viaduct.rehearsal.tf1_stage.sessions import GraphRun

# By graph, then by the name of a declared operator: its N.
_loops: weakref.WeakKeyDictionary[Any, dict[str, int]] = weakref.WeakKeyDictionary()


def declare_loop(graph: Any, op: Any) -> None:
    """Declare that a training run that executes `op` is a loop; N is 1 until `set_loop_counts` is called."""
    _loops.setdefault(graph, {})[op.name] = 1


def set_loop_counts(graph: Any, count: int) -> None:
    """Set the N of every declared operator to `count`; Ascend's TF Adapter stores it in a variable on the device."""
    declared = _loops.setdefault(graph, {})
    declared.update(dict.fromkeys(declared, count))


def count_steps(run: GraphRun) -> int:
    """Return the number of steps of a run: 1 unless it trains and executes a declared operator."""
    declared = _loops.get(run.graph)
    if not declared or not run.is_training:
        return 1
    executed = run.subgraph.ops
    return max((declared.get(op.name, 1) for op in executed), default=1)
