"""arg_scope: default arguments for functions that are decorated with add_arg_scope."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Scope = dict[str, dict[str, Any]]  # default arguments by name, by the key of their function
Function = TypeVar("Function", bound=Callable[..., Any])
_stack: list[Scope] = [{}]  # the entered scopes, the innermost last; each includes the outer scopes' defaults


def add_arg_scope(function: Function) -> Function:
    """Decorate a function to take default arguments from the scopes in which it is called."""
    key = f"{function.__module__}.{function.__name__}"

    @functools.wraps(function)
    def call_with_defaults(*args: Any, **kwargs: Any) -> Any:
        positional = list(inspect.signature(function).parameters)[: len(args)]
        defaults = {name: value for name, value in _stack[-1].get(key, {}).items() if name not in positional}
        return function(*args, **{**defaults, **kwargs})

    call_with_defaults._key_op = key  # type: ignore[attr-defined]
    return call_with_defaults  # type: ignore[return-value]


def has_arg_scope(function: Any) -> bool:
    return hasattr(function, "_key_op")


@contextmanager
def arg_scope(list_ops_or_scope: Any, **kwargs: Any) -> Iterator[Scope]:
    """Enter a scope with defaults for a list of functions, or a scope from an earlier `arg_scope(…) as scope`."""
    if isinstance(list_ops_or_scope, dict):
        if kwargs:
            raise ValueError("When attempting to re-use a scope by suppling a dictionary, kwargs must be empty.")
        scope = list_ops_or_scope
    else:
        scope = {key: dict(values) for key, values in _stack[-1].items()}
        for function in list_ops_or_scope:
            if not has_arg_scope(function):
                raise ValueError(f"{function} is not decorated with @add_arg_scope")
            scope.setdefault(function._key_op, {}).update(kwargs)
    _stack.append(scope)
    try:
        yield scope
    finally:
        _stack.pop()


def current_arg_scope() -> Scope:
    return _stack[-1]


def arg_scoped_arguments(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)
