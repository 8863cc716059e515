"""Functions of torch that are watched while a script runs: loaders, backward passes, saving, loss scaling.

Each is a context manager that calls back around torch's own function and puts that back at its end. A name that a
release of torch does not have is reported through `lacks`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from viaduct.profiling.clocks import read_host_us


@contextmanager
def replace_attribute(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Put what `make` returns for the plain function in its place."""
    plain = getattr(owner, name)
    is_own = name in vars(owner)
    setattr(owner, name, functools.wraps(plain)(make(plain)))
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, plain)
        else:
            delattr(owner, name)


@contextmanager
def watch_loaders(
    on_begin: Callable[[], None], on_end: Callable[[Any, float, float], None], lacks: Callable[[str], None]
) -> Iterator[None]:
    """Call back before a DataLoader is asked for a batch, and with loader, begin and end after it has given one.

    Starting a pass over a loader counts, too: it starts the workers.
    """
    from torch.utils.data import DataLoader, dataloader

    iterator: Any = getattr(dataloader, "_BaseDataLoaderIter", None)
    if iterator is None or "__next__" not in vars(iterator):
        lacks("waits for a DataLoader were not measured: this torch has no DataLoader iterator of the known name.")
        yield
        return

    def make_next(plain: Any) -> Any:
        def __next__(self: Any) -> Any:
            on_begin()
            began = read_host_us()
            batch = plain(self)
            on_end(self, began, read_host_us())
            return batch

        return __next__

    def make_iter(plain: Any) -> Any:
        def __iter__(self: Any) -> Any:
            on_begin()
            began = read_host_us()
            batches = plain(self)
            on_end(self, began, read_host_us())
            return batches

        return __iter__

    with replace_attribute(iterator, "__next__", make_next), replace_attribute(DataLoader, "__iter__", make_iter):
        yield


@contextmanager
def watch_backward(on_end: Callable[[], None]) -> Iterator[None]:
    """Call back after each backward pass: `Tensor.backward`, which calls torch.autograd.backward, and autograd.grad."""
    import torch

    def wrap(plain: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            result = plain(*args, **kwargs)
            if not torch.compiler.is_compiling():
                on_end()
            return result

        return run

    with replace_attribute(torch.autograd, "backward", wrap), replace_attribute(torch.autograd, "grad", wrap):
        yield


@contextmanager
def watch_saving(on_begin: Callable[[], None]) -> Iterator[None]:
    """Call back before torch.save."""
    import torch

    def wrap(plain: Any) -> Any:
        def save(*args: Any, **kwargs: Any) -> Any:
            on_begin()
            return plain(*args, **kwargs)

        return save

    with replace_attribute(torch, "save", wrap):
        yield


@contextmanager
def watch_scaler(on_begin: Callable[[], None], on_end: Callable[[], None]) -> Iterator[None]:
    """Call back around each `GradScaler.step`, whether or not it lets the optimizer step."""
    from torch.amp import GradScaler

    def wrap(plain: Any) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            on_begin()
            result = plain(*args, **kwargs)
            on_end()
            return result

        return step

    with replace_attribute(GradScaler, "step", wrap):
        yield


@contextmanager
def count_optimizers(on_made: Callable[[], None]) -> Iterator[None]:
    """Call back for each optimizer that is made."""
    from torch.optim import Optimizer

    def wrap(plain: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            on_made()
            plain(self, *args, **kwargs)

        return __init__

    with replace_attribute(Optimizer, "__init__", wrap):
        yield
