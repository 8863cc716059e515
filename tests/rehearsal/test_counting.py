"""Steps are counted, and the script is stopped after the last one."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from rehearsal.plans import make_plan
from viaduct.rehearsal.bounds import GRACE_S
from viaduct.rehearsal.counting import TorchStepCounter, limit_loaders
from viaduct.rehearsal.progress import read_notes
from viaduct.scripts.runner import StopScript


def test_a_process_that_takes_no_step_leaves_nothing(counter: TorchStepCounter, tmp_path: Path) -> None:
    nn.Linear(4, 2)(torch.ones(2, 4)).sum().backward()
    counter.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_script_that_catches_its_stop_is_stopped_again_at_the_next_step(
    counter: TorchStepCounter, tmp_path: Path
) -> None:
    counter.count_step()
    for _ in range(3):
        with pytest.raises(StopScript):
            counter.count_step()
    assert counter.step_count == 2
    assert read_notes(tmp_path, "steps")[str(os.getpid())]["steps"] == 2


def test_an_update_is_no_step_where_the_user_says_where_steps_end(tmp_path: Path) -> None:
    counter = TorchStepCounter(make_plan(tmp_path, step_at="train.py:3-3"), started_by_viaduct=True)
    counter.on_step_end(0)
    assert counter.step_count == 0
    plain = TorchStepCounter(make_plan(tmp_path), started_by_viaduct=True)
    plain.on_step_end(0)
    assert plain.step_count == 1


def test_a_process_of_the_scripts_own_exits_with_success(
    counter: TorchStepCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter, "started_by_viaduct", False)
    monkeypatch.setattr("threading.Timer", timer := Mock())
    counter.count_step()
    with pytest.raises(SystemExit) as stop:
        counter.count_step()
    assert stop.value.code == 0
    timer.assert_called_once_with(GRACE_S, os._exit, (0,))  # for a script that ignores the stop
    timer.return_value.start.assert_called_once()


def test_passes_over_a_loader_end_early_and_its_length_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.data import DataLoader

    monkeypatch.setattr(DataLoader, "__iter__", DataLoader.__iter__)
    limit_loaders(2)
    loader = DataLoader(range(10))
    assert [batch.item() for batch in loader] == [batch.item() for batch in loader] == [0, 1]
    assert len(loader) == 10
