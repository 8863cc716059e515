"""Readers of existing profiles, one file per layout; every module in this folder is loaded as a reader.

    LAYOUT           name of the layout in messages
    TRIED_AFTER      names of the readers that are tried before this one
    recognise(path)  True if the path has this layout, by names of files (kineto.py also opens a single JSON file)
    read(path)       the Profile; damaged parts of another tool's files are left out, with a note

`read_any` uses the first reader that recognises a path.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Protocol, cast

from viaduct.errors import BadData
from viaduct.profiling.record import Profile

MAX_SHOWN = 12  # names in a message


class Reader(Protocol):
    """Interface of the modules in this folder."""

    LAYOUT: str
    TRIED_AFTER: tuple[str, ...]

    def recognise(self, path: Path) -> bool: ...

    def read(self, path: Path) -> Profile: ...


@cache
def load_readers() -> tuple[Reader, ...]:
    """Return the readers, each after those in its TRIED_AFTER."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    readers = {name: cast("Reader", importlib.import_module(f"{__name__}.{name}")) for name in sorted(names)}
    order = TopologicalSorter({name: reader.TRIED_AFTER for name, reader in readers.items()}).static_order()
    return tuple(readers[name] for name in order)


def read_any(path: Path) -> Profile:
    """Return the profile at a path, of any known tool; raise BadData with the known layouts if none fits."""
    if "\0" in str(path) or not path.exists():
        raise BadData(f"there is no {str(path)!r}.", "Give the folder that the profiler wrote.")
    for reader in load_readers():
        if reader.recognise(path):
            return reader.read(path)
    layouts = "; ".join(reader.LAYOUT for reader in load_readers())
    contents = f"It holds: {list_contents(path)}." if path.is_dir() else "It is a file of another kind."
    raise BadData(f"{str(path)!r} holds no profile that can be read.", contents, f"Known layouts: {layouts}.")


def list_contents(path: Path) -> str:
    """Return some names in a folder, for a message."""
    names = sorted(child.name + ("/" if child.is_dir() else "") for child in path.iterdir())
    shown = ", ".join(names[:MAX_SHOWN]) or "nothing"
    return shown if len(names) <= MAX_SHOWN else f"{shown} and {len(names) - MAX_SHOWN} more"
