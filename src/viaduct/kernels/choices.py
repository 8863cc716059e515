"""Launch parameters that tuning chose, by kernel and signature (shape, dtype). Without a choice a kernel uses defaults.

The table belongs to the process. Launch code asks `find_choice` and uses its own sizes where that returns None. Callers
(`viaduct.tuning`, `train --bank`) set and clear choices, and record which signatures a step uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from viaduct.search_space import Point, Value

Signature = tuple[Value, ...]  # sizes first, then the name of the dtype
Key = tuple[str, Signature]  # kernel and signature

_choices: dict[Key, Point] = {}
_launches: Counter[Key] | None = None


def find_choice(kernel: str, signature: Signature) -> Point | None:
    """Return the parameters chosen for this kernel and signature; None: the default."""
    if _launches is not None:
        _launches[kernel, signature] += 1
    return _choices.get((kernel, signature)) if _choices else None


def set_choices(choices: Mapping[Key, Point]) -> None:
    """Add choices; an earlier choice for the same kernel and signature is replaced."""
    _choices.update({key: dict(point) for key, point in choices.items()})


def clear_choices() -> None:
    """Remove all choices, so that launches use the defaults."""
    _choices.clear()


def list_choices() -> dict[Key, Point]:
    """Return a copy of all choices."""
    return dict(_choices)


@contextmanager
def use_choices(choices: Mapping[Key, Point]) -> Iterator[None]:
    """Set choices for the duration of a block, then restore what was set before."""
    before = dict(_choices)
    set_choices(choices)
    try:
        yield
    finally:
        _choices.clear()
        _choices.update(before)


@contextmanager
def record_launches() -> Iterator[Counter[Key]]:
    """Count the kernels and signatures that are launched inside the block.

    Replays of a captured graph launch nothing from Python: record an eager step.
    """
    global _launches
    before, _launches = _launches, Counter()
    try:
        yield _launches
    finally:
        _launches = before
