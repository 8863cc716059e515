"""Wrappers around functions of libraries, for the rest of the process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that replaces the function `name` of a module or class by the decorated one.

    The decorated function gets the replaced one as its first argument:

        @wrap(os, "remove")
        def remove(plain, path):
            print(path)
            plain(path)
    """
    plain = getattr(owner, name)

    def replace(wrapper: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            return wrapper(plain, *args, **kwargs)

        setattr(owner, name, call)
        return call

    return replace
