"""Triton's interpreter, one process for all tests of a worker: its imports take five seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kernels.interpreter import Interpret, start_interpreter


@pytest.fixture(scope="session")
def interpret() -> Iterator[Interpret]:
    pytest.importorskip("triton", reason="Triton is not installed")
    with start_interpreter() as interpret:
        yield interpret


@pytest.fixture
def assert_sizes_agree(interpret: Interpret) -> Callable[..., None]:
    """Compare a tunable kernel with PyTorch: launched by default, and with two random points of its space."""
    import random

    from kernels.check_tunable import CPU, find_wrong_points, measure_errors

    def assert_agree(key: tuple[str, tuple[int | str, ...]]) -> None:
        errors = interpret(measure_errors, key, CPU, 2, random.Random())
        assert find_wrong_points(errors) == {}
        assert len(errors) == 5

    return assert_agree
