"""Functions of the C extensions, which may not have been built."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from viaduct.data.compiled import find_compiled


@pytest.fixture(autouse=True)
def forget_functions() -> Iterator[None]:
    """Look functions up anew in each test, and again after the last."""
    find_compiled.cache_clear()
    yield
    find_compiled.cache_clear()


def test_an_extension_that_was_not_built_is_no_error() -> None:
    assert find_compiled("_never_built", "lerp") is None


def test_a_function_that_an_older_extension_lacks_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    older = ModuleType("viaduct.data._older")
    older.sample = max  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "viaduct.data._older", older)
    assert find_compiled("_older", "sample_and_normalise") is None
    assert find_compiled("_older", "sample") is max
