"""Functions of the C extensions `_lerp` (interpolation) and `_region` (regions of JPEGs)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


@cache
def find_compiled(extension: str, name: str) -> Callable[..., Any] | None:
    """Return a function of an extension; None if the extension was not built, or was built without this function."""
    try:
        return getattr(import_module(f"viaduct.data.{extension}"), name, None)
    except ImportError:
        return None
