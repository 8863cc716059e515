"""Finds the calls of a script's networks: modules that are called from outside of any other module.

    with OuterCalls(on_call, on_return) as calls:
        …                         # hooks on all modules, while the script's networks become known
        calls.narrow()            # from here on only the classes met so far are watched
        …

Hooks on all modules make every call of every layer slower. Classes of the networks met so far are watched by a method
of their own instead, which costs one call a pass. Where torch.compile is used the hooks stay: they are not part of
compiled code, and removing them would compile it again.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from viaduct.profiling.compilations import count_graphs
from viaduct.scripts.roots import Roots

if TYPE_CHECKING:
    from torch import nn

Began = Callable[["nn.Module", Any], None]
Ended = Callable[["nn.Module", Any, Any, Any], None]


class OuterCalls:
    """While entered, `on_call(module, args)` and `on_return(module, args, kwargs, output)` surround outermost calls of
    modules with parameters."""

    def __init__(self, on_call: Began, on_return: Ended) -> None:
        self._on_call, self._on_return = on_call, on_return
        self._roots: Roots | None = Roots(self._on_begin, self._on_end)
        self._classes: dict[type, Any] = {}  # class -> its own __call__, None where it inherits it
        self._met: dict[type, None] = {}
        self._networks: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # modules with parameters
        self._is_inside = False
        self._graphs_before = count_graphs()

    def __enter__(self) -> OuterCalls:
        if self._roots is not None:
            self._roots.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._roots is not None:
            self._roots.__exit__()
            self._roots = None
        for kind, own in self._classes.items():
            if own is None:
                with suppress(AttributeError):
                    del kind.__call__
            else:
                kind.__call__ = own  # type: ignore[method-assign]
        self._classes.clear()

    def narrow(self) -> None:
        """Watch only the classes of networks that were met; nothing happens where none was, or code was compiled."""
        if self._roots is None or not self._met or count_graphs() > self._graphs_before:
            return
        for kind in self._met:
            self._watch_class(kind)
        self._roots.__exit__()
        self._roots = None

    def _watch_class(self, kind: Any) -> None:
        plain = kind.__call__

        @functools.wraps(plain)
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._is_inside or is_untouchable():
                return plain(module, *args, **kwargs)
            return self._call(plain, module, args, kwargs)

        self._classes[kind] = kind.__dict__.get("__call__")
        kind.__call__ = call

    def _call(self, plain: Any, module: nn.Module, args: Any, kwargs: Any) -> Any:
        output = None
        self._is_inside = True
        try:
            self._on_begin(module, args)
            output = plain(module, *args, **kwargs)
        finally:
            self._is_inside = False
            self._on_end(module, args, kwargs, output)
        return output

    def _on_begin(self, module: nn.Module, args: Any) -> None:
        if module in self._networks or next(module.parameters(), None) is not None:
            self._networks.add(module)
            self._met.setdefault(type(module))
            self._on_call(module, args)

    def _on_end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if module in self._networks:
            self._on_return(module, args, kwargs, output)


def is_untouchable() -> bool:
    """Return True while code is compiled, and in a backward pass, which computes checkpointed parts again."""
    import torch

    return torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1
