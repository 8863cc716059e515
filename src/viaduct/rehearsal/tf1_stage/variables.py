"""Finds, reads and assigns a graph's variables.

Under a distribution strategy a collection holds distributed variables, whose properties may add operators to a
finalized graph. A rehearsal has one replica, so the first copy of a distributed variable is used.
"""

from __future__ import annotations

from typing import Any


def find_variables(graph: Any, *collections: str) -> list[Any]:
    """Return the variables of some collections of a graph, each once."""
    variables = [unwrap_variable(variable) for name in collections for variable in graph.get_collection(name)]
    return list({id(variable): variable for variable in variables}.values())


def unwrap_variable(variable: Any) -> Any:
    """Return the first copy of a distributed variable; other variables are returned unchanged."""
    copies = getattr(variable, "values", None)
    return copies[0] if isinstance(copies, tuple) and copies else variable


def find_trainable_names(graph: Any) -> set[str]:
    return {variable.op.name for variable in find_variables(graph, "trainable_variables")}


def read_tensor(variable: Any) -> Any:
    """Return what a session fetches to read a variable: a resource variable's tensor, or the reference variable."""
    return variable._graph_element if hasattr(variable, "_graph_element") else variable


def assign_value(session: Any, variable: Any, value: Any) -> None:
    """Set a variable by running its initializer with another value, without adding operators to the graph."""
    # After init_from_checkpoint the initializer is a tensor, else an operator.
    assign = getattr(variable.initializer, "op", variable.initializer)
    session.run(assign, {assign.inputs[1]: value})
