"""Stdout and log messages of a script are recorded, and pass on unchanged."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from rehearsal.plans import make_plan
from viaduct.rehearsal import limits, printing
from viaduct.rehearsal.printing import OutputRecorder, read_printed_lines


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OutputRecorder:
    monkeypatch.setattr(logging.Logger, "handle", logging.Logger.handle)
    monkeypatch.setenv(limits.PROJECT_VARIABLE, str(tmp_path / "project"))
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("RANK_ID", raising=False)
    return OutputRecorder(str(tmp_path))


def log(file: Path) -> None:
    logger = logging.getLogger("test_printing")
    logger.handle(logger.makeRecord(logger.name, logging.WARNING, str(file), 1, "loss %d", (3,), None))


def test_a_plain_rehearsal_records_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write = sys.stdout.write
    printing.install(make_plan(tmp_path))
    assert sys.stdout.write == write
    assert read_printed_lines(str(tmp_path / "record")) == {}


def test_log_messages_of_libraries_are_not_recorded(printed: OutputRecorder, tmp_path: Path) -> None:
    printed.watch_logging()
    log(tmp_path / "elsewhere.py")
    assert read_printed_lines(str(tmp_path)) == {}
    log(tmp_path / "project" / "train.py")
    assert read_printed_lines(str(tmp_path)) == {0: ["loss 3"]}


def test_what_is_printed_is_recorded_and_still_printed(
    printed: OutputRecorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed.watch_stdout()
    print("step 1\n\nloss", 2)
    assert capsys.readouterr().out == "step 1\n\nloss 2\n"
    assert read_printed_lines(str(tmp_path)) == {0: ["step 1", "loss 2"]}


def test_a_script_that_prints_without_end_does_not_fill_the_disk(
    printed: OutputRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printing, "MAX_CHARACTERS", 10)
    for _ in range(100):
        printed.record("12345\n")
    assert len(read_printed_lines(str(tmp_path))[0]) == 2


def test_of_several_processes_of_a_rank_the_one_that_printed_most_counts(tmp_path: Path) -> None:
    (tmp_path / "printed").mkdir()
    for pid, texts in ((1, ["a\n"]), (2, ["b\n", "progress 1\rprogress 2\n"])):
        lines = [json.dumps([0, text]) for text in texts] + [json.dumps([pid, "x"])]
        (tmp_path / "printed" / f"{pid}.jsonl").write_text("\n".join(lines))
    assert read_printed_lines(str(tmp_path)) == {0: ["b", "progress 1", "progress 2"], 1: ["x"], 2: ["x"]}


def test_a_process_that_was_killed_while_it_printed_leaves_its_complete_lines(
    printed: OutputRecorder, tmp_path: Path
) -> None:
    printed.record("step 1\n")
    printed.record("step 2\n")
    (file,) = (tmp_path / "printed").iterdir()
    file.write_text(file.read_text()[:-5])
    assert read_printed_lines(str(tmp_path)) == {0: ["step 1"]}
