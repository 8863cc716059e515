"""Fixtures of the tests on a card. What they measured is shown at the end, whether they passed or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

FOUND: list[str] = []


@pytest.fixture
def show(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Put a line under the results of the tests."""
    return lambda line: FOUND.append(f"{request.node.name}: {line}")


@pytest.fixture
def without_tf32() -> Iterator[None]:
    """Compute float32 products and convolutions in float32. monkeypatch cannot restore these two attributes."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    torch.cuda.empty_cache()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if FOUND:
        terminalreporter.section("measured")
        for line in FOUND:
            terminalreporter.write_line(line)
