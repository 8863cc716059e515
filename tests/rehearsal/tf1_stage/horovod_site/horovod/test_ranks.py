"""Ranks of Horovod, before and after init()."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from viaduct.rehearsal.tf1_stage.horovod_site.horovod import _ranks


@pytest.fixture(autouse=True)
def rank_5_of_8(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in (("RANK_ID", "5"), ("RANK_SIZE", "8"), ("LOCAL_WORLD_SIZE", "4"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    _ranks.shutdown()
    yield
    _ranks.shutdown()


CALLS = (_ranks.rank, _ranks.size, _ranks.local_rank, _ranks.local_size, _ranks.cross_rank, _ranks.cross_size)


def test_before_init_and_after_shutdown_there_are_no_ranks() -> None:
    for call in CALLS:
        with pytest.raises(ValueError, match=r"use hvd\.init"):
            call()
    _ranks.init()
    _ranks.shutdown()
    assert not _ranks.is_initialized()
    with pytest.raises(ValueError, match="not been initialized"):
        _ranks.rank()


def test_after_init_ranks_are_those_of_the_environment_and_machines_are_counted() -> None:
    _ranks.init()
    assert [call() for call in CALLS] == [5, 8, 1, 4, 1, 2]


def test_gloo_is_the_only_library() -> None:
    libraries = {name: getattr(_ranks, f"{name}_built")() for name in ("gloo", "mpi", "nccl", "cuda", "rocm")}
    assert [name for name, is_built in libraries.items() if is_built] == ["gloo"]
