"""Dump, read, align, measure and judge tensors: find the first divergence of two runs, for example on two devices.

`Dump` needs torch and is imported when it is first used; comparing needs NumPy only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viaduct.comparison.dump import Dump

__all__ = ["Dump"]


def __getattr__(name: str) -> Any:
    if name != "Dump":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from viaduct.comparison.dump import Dump

    return Dump
