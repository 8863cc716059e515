from __future__ import annotations

from collections.abc import Iterator

import pytest

from comparison.comparison_builder import Array, ComparisonBuilder
from viaduct.comparison.records import StoredDump


@pytest.fixture
def values() -> Array:
    """Activations of 16 channels, normally distributed."""
    return ComparisonBuilder().normal(8, 16, 10, 10)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread, which gives the same bits in every run."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def side(tmp_path_factory: pytest.TempPathFactory) -> StoredDump:
    """Dump of two steps of the network `Awkward`."""
    from comparison.networks import dump_training

    return dump_training(tmp_path_factory.mktemp("dump"), steps="0,2")
