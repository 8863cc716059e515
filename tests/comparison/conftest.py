from __future__ import annotations

import pytest

from comparison.scenes import Array, Story


@pytest.fixture
def values() -> Array:
    """Activations of 16 channels, normally distributed."""
    return Story().normal(8, 16, 10, 10)
