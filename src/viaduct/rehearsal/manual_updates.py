"""Steps of scripts that update their weights without an optimizer.

The trained tensors are the leaves that a loss depends on: parameters of networks, and other tensors that require
gradients. Their values are stored after each backward pass. If the values differ at the next forward or backward pass,
or when the step counter calls `check_for_update` at the script's end, a step was taken. A step was also taken if the
next backward pass has new tensors with other values in their place, as in functional code (`params = [p - lr * g for
…]`, `torch.func.grad`). As soon as an optimizer steps, its steps count and this module does nothing.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from viaduct.rehearsal.limits import blame_viaduct
from viaduct.rehearsal.wrapping import wrap
from viaduct.scripts.network_calls import NetworkCalls

if TYPE_CHECKING:
    import torch

MAX_NODES = 200_000  # visited nodes of an autograd graph
Checksums = list[tuple["torch.Tensor", int]]  # tensors, each with the checksum of its values


class ManualUpdates:
    """Calls `on_backward` after a backward pass and `on_step` after an update, until an optimizer steps.

    For functions that return gradients instead of setting `.grad`, it calls `on_gradient_function(loss, inputs,
    gradients)`.
    """

    def __init__(
        self,
        on_backward: Callable[[list[torch.Tensor]], None],
        on_step: Callable[[], None],
        on_gradient_function: Callable[[Any, list[torch.Tensor], list[torch.Tensor | None]], None],
    ) -> None:
        self.on_backward, self.on_step, self.on_gradient_function = on_backward, on_step, on_gradient_function
        self.has_optimizer_stepped = False  # set by the step counter
        self._after_backward: Checksums = []  # of the trained tensors after the last backward pass
        self._inside = False  # a wrapped function is running, in which others may be called
        self._network_calls = NetworkCalls(lambda module, args: self.check_for_update())

    def start(self) -> None:
        import torch

        self._network_calls.__enter__()
        for owner in (torch.Tensor, torch.autograd):
            self._wrap_backward(owner)
        self._wrap_autograd_grad(torch.autograd)
        self._wrap_function_gradients(torch.func)

    def close(self) -> None:
        """Remove the hook on modules; wrapped functions stay wrapped."""
        self._network_calls.__exit__()

    def check_for_update(self, trained: list[torch.Tensor] | None = None) -> None:
        """Call `on_step` if a step was taken since the last backward pass.

        `trained` are the tensors of the next backward pass.
        """
        previous = self._after_backward
        if self.has_optimizer_stepped or not previous:
            return
        is_changed = any(compute_checksum(tensor) != known for tensor, known in previous)
        if is_changed or is_replaced(previous, trained or []):
            self._after_backward = []
            self.on_step()

    def _wrap_backward(self, owner: Any) -> None:
        """Wrap Tensor.backward or torch.autograd.backward."""

        @wrap(owner, "backward")
        def backward(plain: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside or self.has_optimizer_stepped:
                return plain(*args, **kwargs)
            losses = args[0] if args else kwargs.get("tensors")
            trained = find_leaves(losses if isinstance(losses, (tuple, list)) else [losses])
            with self._backward_pass(trained):
                result = plain(*args, **kwargs)
            self.on_backward(trained)
            return result

    @contextmanager
    def _backward_pass(self, trained: list[torch.Tensor]) -> Iterator[None]:
        """Check for an update before the block, ignore wrapped functions in it, and store checksums after it."""
        self.check_for_update(trained)
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
        self._after_backward = [(tensor, compute_checksum(tensor)) for tensor in trained]

    def _wrap_autograd_grad(self, owner: Any) -> None:
        """Wrap torch.autograd.grad.

        A call with create_graph, grad_outputs or several losses is taken for a gradient penalty and is ignored.
        """

        @wrap(owner, "grad")
        def grad(plain: Any, outputs: Any, inputs: Any, grad_outputs: Any = None, *args: Any, **kwargs: Any) -> Any:
            losses = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
            create_graph = kwargs.get("create_graph") or (len(args) > 1 and args[1])  # the fifth parameter
            is_penalty = grad_outputs is not None or create_graph or len(losses) != 1
            if self._inside or self.has_optimizer_stepped or is_penalty:
                return plain(outputs, inputs, grad_outputs, *args, **kwargs)
            trained = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
            with self._backward_pass(trained):
                gradients = plain(outputs, inputs, grad_outputs, *args, **kwargs)
            self.on_gradient_function(losses[0], trained, list(gradients))
            return gradients

    def _wrap_function_gradients(self, owner: Any) -> None:
        """Wrap torch.func.grad and grad_and_value; calls inside of other transforms are ignored."""
        import torch

        @wrap(owner, "grad_and_value")
        def grad_and_value(plain: Any, func: Any, argnums: Any = 0, has_aux: bool = False) -> Any:
            transformed = plain(func, argnums, has_aux)

            @functools.wraps(func)
            def call(*args: Any, **kwargs: Any) -> Any:
                # Within vmap, grad or another transform tensors have no values to read.
                is_transformed = torch._C._functorch.peek_interpreter_stack() is not None
                if self._inside or self.has_optimizer_stepped or is_transformed:
                    return transformed(*args, **kwargs)
                numbers = argnums if isinstance(argnums, (tuple, list)) else [argnums]
                trained = list_tensors_in([args[number] for number in numbers])
                with self._backward_pass(trained):
                    gradients, value = transformed(*args, **kwargs)
                self.on_gradient_function(value[0] if has_aux else value, trained, [*list_tensors_in(gradients)])
                return gradients, value

            return call

        @wrap(owner, "grad")
        def grad(plain: Any, func: Any, argnums: Any = 0, has_aux: bool = False) -> Any:
            # `plain` does not return the loss, so the wrapped grad_and_value takes its place.
            transformed = grad_and_value(func, argnums, has_aux)

            @functools.wraps(func)
            def call(*args: Any, **kwargs: Any) -> Any:
                gradients, value = transformed(*args, **kwargs)
                return (gradients, value[1]) if has_aux else gradients

            return call


def list_tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested containers."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


@blame_viaduct()  # an exception in it is reported as viaduct's failure, not the script's
def find_leaves(losses: Iterable[Any]) -> list[torch.Tensor]:
    """Return the leaf tensors that get gradients in a backward pass of these losses, in the order of a graph walk.

    The walk visits at most about MAX_NODES nodes, so leaves of a larger graph may be missing.
    """
    waiting = [loss.grad_fn for loss in losses if getattr(loss, "grad_fn", None) is not None]
    visited = set(waiting)
    leaves: list[torch.Tensor] = []
    while waiting and len(visited) < MAX_NODES:
        node = waiting.pop()
        if (leaf := getattr(node, "variable", None)) is not None:
            leaves.append(leaf)
        for following, _ in node.next_functions:
            if following is not None and following not in visited:
                visited.add(following)
                waiting.append(following)
    return leaves


def is_replaced(previous: Checksums, current: list[torch.Tensor]) -> bool:
    """Return True if all tensors are new ones of the same shapes and dtypes, and one has other values."""
    if len(previous) != len(current) or any(old is new for old, _ in previous for new in current):
        return False
    pairs = list(zip(previous, current, strict=True))
    if any(old.shape != new.shape or old.dtype != new.dtype for (old, _), new in pairs):
        return False
    return any(known != compute_checksum(new) for (_, known), new in pairs)


@blame_viaduct()  # as find_leaves
def compute_checksum(tensor: torch.Tensor) -> int:
    import torch

    plain = tensor.detach().cpu().contiguous()
    return zlib.crc32(plain.view(-1).view(torch.uint8).numpy().tobytes()) if plain.numel() else 0
