from __future__ import annotations

import os

import pytest

from viaduct.cores import count_cores


def test_cores_of_the_machine_that_the_process_may_not_use_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5})
    assert count_cores() == 2


def test_a_system_without_affinities_has_all_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.delattr(os, "sched_getaffinity")
    assert count_cores() == 64
