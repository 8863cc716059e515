"""Output at the end of a search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runs.search.recorded_findings import make_findings
from viaduct.runs.search.output import describe_end, print_findings
from viaduct.runs.search.results import State


def test_the_terminal_says_the_table_the_noise_and_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_findings(make_findings(tmp_path, 30, 12))
    output = capsys.readouterr().out
    assert "Importance (PED-ANOVA): " in output
    assert "Highest top1 of those trained to their end: " in output
    assert "viaduct train best.py" in output
    assert "pruned" in output
    assert (tmp_path / "report.html").is_file()


def test_a_search_without_a_best_trial_says_how_many_were_stopped(tmp_path: Path) -> None:
    findings = make_findings(tmp_path, 6, past=2)
    states: list[State] = ["pruned", "failed", "pruned"]
    trials = [replace(findings.results[-1], number=number, state=state) for number, state in enumerate(states)]
    assert "2 of 3 were stopped early" in describe_end(replace(findings, results=[*findings.results[:2], *trials]))
