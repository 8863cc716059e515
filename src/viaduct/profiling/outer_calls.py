"""Report the calls of a script's networks: modules with parameters that are called from outside any other module.

    with OuterCalls(on_call, on_return) as calls:
        …                                         # hooks on all modules (scripts/network_calls.py) find the networks
        calls.observe_only_called_classes()       # without these hooks
        …

Hooks on all modules slow down every call of every layer. `observe_only_called_classes` replaces `__call__` of the
networks' classes instead, which costs one Python call per pass. With torch.compile the hooks stay: compiled code does
not contain them, and removing them would trigger recompilation.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from viaduct.profiling.compilations import count_graphs
from viaduct.scripts.network_calls import NetworkCalls

if TYPE_CHECKING:
    from torch import nn

OnCall = Callable[["nn.Module"], None]
OnReturn = Callable[["nn.Module", Any, Any, Any], None]  # module, positional and keyword arguments, output


class OuterCalls:
    """Context manager that calls `on_call` and `on_return` around outermost calls of modules with parameters.

    `on_return` gets None as the output if the call raised an exception.
    """

    def __init__(self, on_call: OnCall, on_return: OnReturn) -> None:
        self._on_call, self._on_return = on_call, on_return
        # Hooks on all modules; None once removed.
        self._hooks: NetworkCalls | None = NetworkCalls(self._on_begin, self._on_end)
        self._replaced: dict[type, Any] = {}  # class -> its own __call__, None if it inherits it
        self._called_classes: dict[type, None] = {}  # an ordered set
        self._networks: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # modules with parameters
        self._is_inside = False
        self._graphs_before = count_graphs()

    def __enter__(self) -> OuterCalls:
        if self._hooks is not None:
            self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._hooks is not None:
            self._hooks.__exit__()
            self._hooks = None
        for network_class, own_call in self._replaced.items():
            if own_call is None:
                with suppress(AttributeError):
                    del network_class.__call__
            else:
                network_class.__call__ = own_call  # type: ignore[method-assign]
        self._replaced.clear()

    def observe_only_called_classes(self) -> None:
        """Observe only the classes of networks called so far; do nothing if there are none, or if code was compiled."""
        if self._hooks is None or not self._called_classes or count_graphs() > self._graphs_before:
            return
        for network_class in self._called_classes:
            self._replace_call(network_class)
        self._hooks.__exit__()
        self._hooks = None

    def _replace_call(self, network_class: Any) -> None:
        """Replace `__call__` of a class by a function that also reports outermost calls."""
        original = network_class.__call__

        @functools.wraps(original)
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._is_inside or is_compiling_or_backward():
                return original(module, *args, **kwargs)
            output = None
            self._is_inside = True
            try:
                self._on_begin(module, args)
                output = original(module, *args, **kwargs)
            finally:
                self._is_inside = False
                self._on_end(module, args, kwargs, output)
            return output

        self._replaced[network_class] = network_class.__dict__.get("__call__")
        network_class.__call__ = call

    def _on_begin(self, module: nn.Module, args: Any) -> None:
        if module in self._networks or next(module.parameters(), None) is not None:
            self._networks.add(module)
            self._called_classes.setdefault(type(module))
            self._on_call(module)

    def _on_end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if module in self._networks:
            self._on_return(module, args, kwargs, output)


def is_compiling_or_backward() -> bool:
    """Return True while torch.compile traces, and in a backward pass, which calls checkpointed modules again."""
    import torch

    return torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1
