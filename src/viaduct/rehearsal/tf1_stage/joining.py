"""Makes ranks of a TensorFlow script that was written for one device train together, by data parallelism.

Every rank begins with rank 0's variables, and gradients of trainable variables are averaged over the ranks as soon as
they are computed. A script that was migrated for several ranks is compared with such a run of the original, whose ranks
would otherwise train alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from viaduct.rehearsal.tf1_stage import collectives, data_parallel, gradients, sessions, state
from viaduct.rehearsal.tf1_stage.subgraph import uses_weights
from viaduct.rehearsal.tf1_stage.variables import assign_value, find_trainable_names, find_variables, read_tensor


def install() -> None:
    """Average gradients and broadcast variables; with one rank do nothing."""
    if state.size() > 1:
        gradients.combine_over_ranks = average_weights_gradients
        sessions.observers.append(Broadcast())


def average_weights_gradients(targets: list[Any], computed: list[Any]) -> list[Any]:
    """Return gradients averaged over the ranks if all targets are trainable variables.

    Others are returned unchanged, for example the gradients w.r.t. an input in a gradient penalty.
    """
    present = [gradient for gradient in computed if gradient is not None]
    if not present:
        return computed
    graph = gradients.get_dense_tensor(present[0]).graph
    weights = find_trainable_names(graph)
    if not all(gradients.get_variable_name(target) in weights for target in targets):
        return computed
    return data_parallel.average_gradients(computed)


class Broadcast(sessions.Observer):
    """Broadcasts rank 0's variables before the first run of each session that uses weights."""

    def __init__(self) -> None:
        self.sessions: list[sessions.SessionRecord] = []  # whose variables were broadcast

    def before_run(self, run: sessions.GraphRun) -> None:
        if any(record is run.session_record for record in self.sessions) or not uses_weights(run.graph, run.subgraph):
            return
        self.sessions.append(run.session_record)
        session, variables = run.session_record.session, find_variables(run.graph, "variables")
        ranks = list(range(state.size()))
        with sessions.mark_internal():
            values = [np.asarray(session.run(read_tensor(variable))) for variable in variables]
            values = collectives.broadcast_arrays(f"joining|{len(self.sessions)}", ranks, values, 0)
            for variable, value in zip(variables, values, strict=True):
                assign_value(session, variable, value)
