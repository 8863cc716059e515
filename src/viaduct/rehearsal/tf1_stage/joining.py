"""Makes ranks of a script that was written for one device train together, as data parallel training is defined.

All begin with rank 0's variables, and gradients of trainable variables are averaged as soon as they are computed. A
script that was migrated for several ranks is compared with this: by itself, the original trains on each rank alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from viaduct.rehearsal.tf1_stage import averaging, collectives, gradients, sessions, state
from viaduct.rehearsal.tf1_stage.reach import uses_weights
from viaduct.rehearsal.tf1_stage.variables import find_variables


def install() -> None:
    if state.size() > 1:
        gradients.combine = average
        sessions.observers.append(Broadcast())


def average(targets: list[Any], found: list[Any]) -> list[Any]:
    """Return the gradients of trainable variables as means over the ranks; others are the rank's own."""
    known = [gradient for gradient in found if gradient is not None]
    if not known:
        return found
    graph = gradients.part(known[0]).graph
    weights = {variable.op.name for variable in find_variables(graph, "trainable_variables")}
    if not all(gradients.variable_name(target) in weights for target in targets):
        return found
    return averaging.average_gradients(found)


class Broadcast(sessions.Observer):
    """Hands rank 0's variables to the others, before the first run of each session that uses them."""

    def __init__(self) -> None:
        self.sessions: list[sessions.Opened] = []

    def begins(self, run: sessions.Pass) -> None:
        if any(opened is run.opened for opened in self.sessions) or not uses_weights(run.graph, run.reach):
            return
        self.sessions.append(run.opened)
        session, variables = run.opened.session, find_variables(run.graph, "variables")
        ranks = list(range(state.size()))
        with sessions.internal_run():
            values = [np.asarray(session.run(source_of(variable))) for variable in variables]
            values = collectives.broadcast_arrays(f"joining|{len(self.sessions)}", ranks, values, 0)
            for variable, value in zip(variables, values, strict=True):
                session.run(variable.initializer, {variable.initializer.inputs[1]: value})


def source_of(variable: Any) -> Any:
    return variable._graph_element if hasattr(variable, "_graph_element") else variable
