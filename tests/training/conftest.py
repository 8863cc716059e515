"""One thread: small networks on a busy machine, where threads wait for one another, take ten times longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from viaduct.training.rundir import RunDir


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """An empty run directory."""
    path = tmp_path / "run"
    path.mkdir()
    return RunDir(path)


@pytest.fixture(scope="session")
def unsettled_run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A short run whose batch norms' averages have not settled."""
    from training.unsettled_run import SLOW, run_recipe

    run = RunDir(tmp_path_factory.mktemp("runs") / "slow")
    run_recipe(run, SLOW)
    return run
