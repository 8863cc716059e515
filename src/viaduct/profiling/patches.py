"""Callbacks around functions of torch while a script runs.

Each function returns a context manager that replaces functions of torch by functions that also call back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from viaduct.profiling.clocks import read_host_us


@contextmanager
def replace_attribute(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a function of a class or module by `wrap(function)` within the block."""
    original = getattr(owner, name)
    is_own = name in vars(owner)  # False: inherited
    setattr(owner, name, functools.wraps(original)(wrap(original)))
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)


def call_around(
    owner: Any, name: str, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None
) -> Any:
    """Return a context in which `before` and `after` are called around a function; `after` only if it returns."""

    def wrap(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            before()
            result = original(*args, **kwargs)
            after()
            return result

        return call

    return replace_attribute(owner, name, wrap)


@contextmanager
def observe_loaders(
    before: Callable[[], None], after: Callable[[Any, float, float], None], add_note: Callable[[str], None]
) -> Iterator[None]:
    """Call `before()` when a batch is requested, and `after(iterator, begin_us, end_us)` when it has arrived.

    The start of an epoch (`DataLoader.__iter__`) counts too, because it starts the workers; `after` then gets the
    loader, which has no `__next__`. If this torch has no iterator class of the known name, only `add_note` is called.
    """
    from torch.utils.data import DataLoader, dataloader

    iterator: Any = getattr(dataloader, "_BaseDataLoaderIter", None)
    if iterator is None or "__next__" not in vars(iterator):
        add_note("waits for a DataLoader were not measured: this torch has no DataLoader iterator of the known name.")
        yield
        return

    def wrap(original: Any) -> Any:
        def call(self: Any) -> Any:
            before()
            began_us = read_host_us()
            result = original(self)
            after(self, began_us, read_host_us())
            return result

        return call

    with replace_attribute(iterator, "__next__", wrap), replace_attribute(DataLoader, "__iter__", wrap):
        yield


@contextmanager
def observe_backward(after: Callable[[], None]) -> Iterator[None]:
    """Call back after torch.autograd.backward, which `Tensor.backward` calls, and torch.autograd.grad."""
    import torch

    def call_after() -> None:
        if not torch.compiler.is_compiling():
            after()

    with (
        call_around(torch.autograd, "backward", after=call_after),
        call_around(torch.autograd, "grad", after=call_after),
    ):
        yield
