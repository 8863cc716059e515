"""arg_scope: default arguments for functions that were made for it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Scope = dict[str, dict[str, Any]]
Function = TypeVar("Function", bound=Callable[..., Any])
_stack: list[Scope] = [{}]


def key_of(function: Any) -> str:
    """Return the name under which arg_scope knows a function."""
    return str(getattr(function, "_key_op", f"{function.__module__}.{function.__name__}"))


def add_arg_scope(function: Function) -> Function:
    """Makes a function take its defaults from the scopes that it is called in."""
    key = f"{function.__module__}.{function.__name__}"

    @functools.wraps(function)
    def within(*args: Any, **kwargs: Any) -> Any:
        defaults = dict(_stack[-1].get(key, {}))
        taken = list(inspect.signature(function).parameters)[: len(args)]
        chosen = {name: value for name, value in defaults.items() if name not in taken}
        return function(*args, **{**chosen, **kwargs})

    within._key_op = key  # type: ignore[attr-defined]
    return within  # type: ignore[return-value]


def has_arg_scope(function: Any) -> bool:
    """Return True for a function that takes arguments from arg_scope."""
    return hasattr(function, "_key_op")


@contextmanager
def arg_scope(list_ops_or_scope: Any, **kwargs: Any) -> Iterator[Scope]:
    """Defaults for some functions, or a scope that was kept."""
    if isinstance(list_ops_or_scope, dict):
        if kwargs:
            raise ValueError("When attempting to re-use a scope by suppling a dictionary, kwargs must be empty.")
        scope = list_ops_or_scope
    else:
        scope = {key: dict(values) for key, values in _stack[-1].items()}
        for function in list_ops_or_scope:
            if not has_arg_scope(function):
                raise ValueError(f"{function} is not decorated with @add_arg_scope")
            scope.setdefault(key_of(function), {}).update(kwargs)
    _stack.append(scope)
    try:
        yield scope
    finally:
        _stack.pop()


def current_arg_scope() -> Scope:
    """Return the arguments that are in force."""
    return _stack[-1]


def arg_scoped_arguments(function: Any) -> tuple[str, ...]:
    """Return the names of a function's arguments."""
    return tuple(inspect.signature(inspect.unwrap(function)).parameters)
