"""What tests on the card have measured is shown at the end, whether they passed or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

FOUND: list[str] = []


@pytest.fixture
def show(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Put a line under the results of the tests."""
    return lambda line: FOUND.append(f"{request.node.name}: {line}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if FOUND:
        terminalreporter.section("measured")
        for line in FOUND:
            terminalreporter.write_line(line)
