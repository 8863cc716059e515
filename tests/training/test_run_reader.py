"""Reading a run directory that another process writes to: half lines, cut files, and little memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.made_up_run import (
    append_histograms,
    append_log,
    write_run,
)
from viaduct.training.run_reader import RunReader


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def test_a_line_that_is_half_written_waits_for_its_rest(run: Path) -> None:
    reader = RunReader(run)
    with (run / "metrics.jsonl").open("a") as file:
        append_log(run.parent, 310)
        line = (run.parent / "metrics.jsonl").read_text()
        file.write(line[:40])
        file.flush()
        assert reader.read().logs[-1]["step"] == 300
        file.write(line[40:])
        file.flush()
        assert reader.read().logs[-1]["step"] == 310
    assert len(reader.read().logs) == 31


def test_metrics_that_a_resumed_run_has_cut_are_read_anew(run: Path) -> None:
    reader = RunReader(run)
    assert len(reader.read().logs) == 30
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "new").write_text("".join(lines[:5]))
    (run / "new").replace(run / "metrics.jsonl")
    assert [record["step"] for record in reader.read().logs] == [10, 20, 30, 40, 50]
    (run / "metrics.jsonl").write_text("".join(lines[5:]))  # the same file with other lines
    assert reader.read().logs[0]["step"] == 60
    (run / "metrics.jsonl").unlink()
    assert reader.read().logs == []


def test_histograms_of_a_long_run_are_few_and_end_with_the_newest(run: Path) -> None:
    reader = RunReader(run)
    for step in range(400, 10_000, 100):
        append_histograms(run, step, names=1)
        reader.read()
    (by_name, *_) = reader.read().histograms["parameters"].values()
    steps = [histogram.step for histogram in by_name]
    assert len(steps) <= 8
    assert (steps[0], steps[-1]) == (100, 9900)
    assert len(reader.histograms) <= 16


def test_nothing_is_read_again_where_nothing_has_changed(run: Path) -> None:
    reader = RunReader(run)
    assert reader.read() is reader.read()
