"""Ranks from the variables of Ascend, or of torch where these are missing."""

from __future__ import annotations

import os

import pytest

from viaduct.rehearsal.tf1_stage import state

NAMES = ("RANK_ID", "RANK_SIZE", "DEVICE_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that monkeypatch takes away what the function sets
        monkeypatch.delenv(name)


def test_variables_that_the_user_has_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "platform", "npu")
    for name, value in (("RANK_ID", "3"), ("RANK_SIZE", "8"), ("DEVICE_ID", "5"), ("RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    state.set_default_ranks()
    assert [os.environ[name] for name in ("RANK_ID", "RANK_SIZE", "DEVICE_ID")] == ["3", "8", "5"]
    assert (state.rank(), state.size()) == (3, 8)


@pytest.mark.parametrize(("stage", "device"), [("npu", "1"), ("original", None), ("mlu", None)])
def test_torchs_variables_are_taken_and_only_the_npu_gets_a_device(
    monkeypatch: pytest.MonkeyPatch, stage: str, device: str | None
) -> None:
    monkeypatch.setattr(state, "platform", stage)
    for name, value in (("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    state.set_default_ranks()
    assert (state.rank(), state.size(), state.local_rank(), state.local_size()) == (5, 8, 1, 4)
    assert os.environ.get("DEVICE_ID") == device


def test_without_any_variables_there_is_one_rank() -> None:
    assert (state.rank(), state.size(), state.local_rank(), state.local_size()) == (0, 1, 0, 1)


def test_the_local_rank_follows_from_the_rank_and_the_machines_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK_ID", "6"), ("RANK_SIZE", "8"), ("LOCAL_WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    assert state.local_rank() == 2
