"""slim.model_analyzer: prints a graph's variables or operators, and returns their sizes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def tensor_description(var: Any) -> str:
    """Return dtype and shape of a tensor, such as `(float32 [3, 3, 64])`."""
    return f"({var.dtype.name} {list(var.get_shape().as_list())})"


def analyze_vars(variables: Iterable[Any], print_info: bool = False) -> tuple[int, int]:
    """Return the number of elements and the number of bytes of all variables together."""
    if print_info:
        print("---------\nVariables: name (type shape) [size]\n---------")
    total_elements = total_bytes = 0
    for variable in variables:
        elements = variable.get_shape().num_elements() or 0
        total_elements += elements
        total_bytes += elements * variable.dtype.size
        if print_info:
            size = f"[{elements}, bytes: {elements * variable.dtype.size}]"
            print(variable.name, tensor_description(variable), size)
    if print_info:
        print(f"Total size of variables: {total_elements}\nTotal bytes of variables: {total_bytes}")
    return total_elements, total_bytes


def analyze_ops(graph: Any, print_info: bool = False) -> int:
    """Return the number of elements of all outputs of a graph's operators; unknown shapes count as 0."""
    if print_info:
        print("---------\nOperations: name -> (type shapes) [size]\n---------")
    total = 0
    for operation in graph.get_operations():
        sizes = [output.get_shape().num_elements() or 0 for output in operation.outputs]
        total += sum(sizes)
        if print_info:
            shapes = ", ".join(tensor_description(output) for output in operation.outputs if output.shape.ndims)
            print(operation.name, "->", shapes, f"[{sum(sizes)}]")
    if print_info:
        print(f"Total size: {total}")
    return total
