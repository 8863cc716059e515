"""Launch parameters that tuning chose for this process, by kernel and signature.

A signature is the sizes that a launch depends on, such as the input's shape, and the dtype. A point (search_space.py)
is a value for each launch parameter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from viaduct.search_space import Point, Value

Signature = tuple[Value, ...]  # sizes first, then the name of the dtype
Key = tuple[str, Signature]  # kernel and signature

_choices: dict[Key, Point] = {}
_launches: Counter[Key] | None = None  # None: launches are not counted


def find_choice(kernel: str, signature: Signature) -> Point | None:
    """Return the parameters chosen for this kernel and signature; None: use the defaults.

    Each launch calls this once, so `record_launches` counts the calls.
    """
    if _launches is not None:
        _launches[kernel, signature] += 1
    return _choices.get((kernel, signature)) if _choices else None


def set_choices(choices: Mapping[Key, Point]) -> None:
    """Add choices; they replace earlier ones for the same kernel and signature."""
    _choices.update({key: dict(point) for key, point in choices.items()})


def clear_choices() -> None:
    _choices.clear()


@contextmanager
def use_choices(choices: Mapping[Key, Point]) -> Iterator[None]:
    """Set choices within a `with` block, then restore the earlier ones."""
    before = dict(_choices)
    set_choices(choices)
    try:
        yield
    finally:
        _choices.clear()
        _choices.update(before)


@contextmanager
def record_launches() -> Iterator[Counter[Key]]:
    """Count launches by kernel and signature within a `with` block; replays of captured graphs are not counted."""
    global _launches
    before, _launches = _launches, Counter()
    try:
        yield _launches
    finally:
        _launches = before
