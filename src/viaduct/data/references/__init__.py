"""Preprocessing of the reference implementations of networks: one file each, registered by its file name.

names()              ("amoebanet", "official", …): values of a recipe's data.preprocess
load("official")     the `Preprocessing` (views.py) that official.py defines
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from viaduct.errors import BadValue, UnknownName

if TYPE_CHECKING:
    from viaduct.data.views import Preprocessing


@cache
def names() -> tuple[str, ...]:
    """Return the names of all references, sorted."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py")))


def load(name: str) -> Preprocessing:
    """Return the preprocessing of a reference."""
    if not isinstance(name, str):
        raise BadValue(f"a preprocessing is given by its name, not by {name!r}.", f"There are: {', '.join(names())}.")
    if name not in names():
        raise UnknownName("preprocessing", name, names())
    preprocessing: Preprocessing = import_module(f"{__name__}.{name}").preprocessing
    return preprocessing
