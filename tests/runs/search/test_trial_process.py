"""Trials as processes: their commands, shares of the machine, and why they failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct import devices
from viaduct.errors import MissingDevice
from viaduct.runs.search.study_folder import StudyFolder
from viaduct.runs.search.trial_process import TrainLauncher, divide_machine, find_reason
from viaduct.runs.state import is_locked


class TwoCards:
    NAME = "cuda"

    @staticmethod
    def count_cards() -> int:
        return 2

    @staticmethod
    def find_problem() -> str | None:
        return None


def test_a_machine_without_the_card_is_refused() -> None:
    if devices.get("npu").is_available():
        pytest.skip("there is an NPU")
    with pytest.raises(MissingDevice):
        divide_machine("npu", 2)


def test_trials_share_the_cores_or_have_cards_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert divide_machine("cpu", 1) == ([{}], "")
    for cores, parallel, share in ((8, 3, "2"), (2, 4, "1")):
        monkeypatch.setattr("viaduct.runs.search.trial_process.count_cores", lambda cores=cores: cores)
        assert divide_machine("cpu", parallel)[0] == [{"OMP_NUM_THREADS": share}] * parallel
    monkeypatch.setattr(devices, "get", lambda name: TwoCards)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    variables, line = divide_machine("cuda", 3)
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in variables] == ["0", "1", "0"]
    assert "3 trials share 2 cards" in line
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in divide_machine("cuda", 2)[0]] == ["5", "7"]
    assert divide_machine("cuda:1", 2)[0] == [{}, {}]


def test_a_trial_is_an_ordinary_train_command(tmp_path: Path) -> None:
    launcher = TrainLauncher(StudyFolder(tmp_path), "shapes_taster", "top1", ["--device", "cpu"], [{}])
    words = launcher.build_command(7, {"optimizer.lr": "0.5"})
    assert words[:4] == ["train", "shapes_taster", "--run", str(tmp_path / "trial-007")]
    assert words[4:] == ["--device", "cpu", "--set", "optimizer.lr=0.5"]


def test_the_reason_of_a_failure_is_the_message_or_the_last_line(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("step 1\nviaduct train: the loss became nan at step 3, with learning rate 9.\n  Try a lower rate.\n")
    assert find_reason(log, 2) == "the loss became nan at step 3, with learning rate 9"
    log.write_text("step 1\nTraceback\nValueError: something\n")
    assert find_reason(log, 1) == "exit code 1: ValueError: something"
    log.write_text("")
    assert find_reason(log, -9) == "signal 9"
    assert find_reason(tmp_path / "none.txt", 1) == "exit code 1"


def test_a_run_that_another_process_writes_is_recognised(tmp_path: Path) -> None:
    import fcntl

    assert not is_locked(str(tmp_path))
    with (tmp_path / ".lock").open("w") as lock:
        assert not is_locked(str(tmp_path))
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_locked(str(tmp_path))
    assert not is_locked(str(tmp_path))
