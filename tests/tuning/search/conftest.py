"""The recorded space, read once."""

from __future__ import annotations

import pytest

from tuning.recorded_space import RecordedSpace, read_recorded_space


@pytest.fixture(scope="session")
def recorded() -> RecordedSpace:
    return read_recorded_space()
