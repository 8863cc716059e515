"""Find the networks of a user's script: modules that are called from outside any other module.

Calls with and without gradients count. Calls while torch.compile traces, and those that activation checkpointing
repeats in the backward pass, are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


class NetworkCalls:
    """Context manager that calls `on_call` and `on_return` around each outermost call of a module.

    Their arguments are (module, args) and (module, args, kwargs, output). `on_call` is called before the module's own
    pre-forward hooks, `on_return` before its forward hooks. After an exception kwargs is empty and the output None.
    """

    def __init__(
        self,
        on_call: Callable[[nn.Module, Any], None],
        on_return: Callable[[nn.Module, Any, Any, Any], None] = lambda module, args, kwargs, output: None,
    ) -> None:
        self.on_call, self.on_return = on_call, on_return
        self._outermost: nn.Module | None = None
        self._depth = 0
        self._handles: list[Any] = []

    def __enter__(self) -> NetworkCalls:
        from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        before: Any = self._on_enter
        after: Any = self._on_leave
        self._handles = [
            register_module_forward_pre_hook(before),
            register_module_forward_hook(after, with_kwargs=True, always_call=True),
        ]
        return self

    def __exit__(self, *error: object) -> None:
        from torch.nn.modules import module

        for handle in self._handles:
            handle.remove()
            # handle.remove() leaves this entry, for which torch warns at every compiled network.
            module._global_forward_hooks_with_kwargs.pop(handle.id, None)

    def _on_enter(self, module: nn.Module, args: Any) -> None:
        """Hook before the forward pass of every module."""
        import torch

        # torch.compile traces hooks, too; the return leaves it nothing to compile. Backward passes repeat checkpointed
        # parts.
        if torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1:
            return
        if self._depth == 0:
            self._outermost = module
            self.on_call(module, args)
        self._depth += 1

    def _on_leave(self, module: nn.Module, args: Any, *kwargs_and_output: Any) -> None:
        """Hook after the forward pass of every module, also one that raised."""
        import torch

        if torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1:
            return
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and module is self._outermost:
            self._outermost = None
            # After an exception torch leaves the keyword arguments out.
            kwargs, output = kwargs_and_output if len(kwargs_and_output) == 2 else ({}, kwargs_and_output[0])
            self.on_return(module, args, kwargs, output)
