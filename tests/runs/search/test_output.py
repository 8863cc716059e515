"""Output at the end of a search."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.search.recorded_findings import make_findings
from viaduct.runs.search.output import print_findings


def test_the_terminal_says_the_table_the_noise_and_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_findings(make_findings(tmp_path, 30, 12))
    said = capsys.readouterr().out
    assert "Importance (PED-ANOVA): " in said
    assert "Highest top1 of those trained to their end: " in said
    assert "viaduct train best.py" in said
    assert "pruned" in said
    assert (tmp_path / "report.html").is_file()
