"""The tables of `viaduct bench`."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any

import pytest

from viaduct.benching.record import COLUMNS
from viaduct.benching.table import build_time_table, print_record, render_record
from viaduct.errors import BadData

PROFILED = {"ms": {"convolution": 2.5}, "host_gaps_ms": 0.25, "data_wait_ms": 0.0}


def make_record(**changes: Any) -> dict[str, Any]:
    """Return the record of one variant, without peers."""
    ours = {"variant": "viaduct, fp32", "time": {"why_not": "no profile was asked for"}, "ms_per_step": 2.75}
    rows = [dict.fromkeys(COLUMNS, "") | {COLUMNS[0]: "viaduct, fp32"}]
    record = {"title": "net: batch 2", "machine": {"description": "a CPU"}, "precision": "fp32", "data": "synthetic"}
    ceilings = {"bandwidth_bytes_per_s": 1e11, "matrix_flop_per_s": 1e12}
    more = {"notes": [], "rows": rows, "peers": [], "left_out": {}, "ceilings": ceilings, "counted": {}}
    return {**record, **more, **ours, **changes}


def test_without_a_profile_there_is_no_table_of_times() -> None:
    assert build_time_table(make_record()) is None


def test_times_are_those_of_ours_and_the_fastest_peer() -> None:
    slow = {"variant": "slow", "time": PROFILED, "ms_per_step": 9.0}
    fast = {"variant": "fast", "time": PROFILED, "ms_per_step": 3.0}
    table = build_time_table(make_record(time=PROFILED, peers=[slow, fast]))
    assert table is not None
    text = render_record(make_record(time=PROFILED, peers=[slow, fast]))
    assert "convolution" in text
    assert "fast" in text
    assert "slow" not in text


def test_a_peer_that_was_left_out_is_named_with_the_reason() -> None:
    assert "Left out: timm: it is not installed." in render_record(
        make_record(left_out={"timm": "it is not installed"})
    )


@pytest.mark.parametrize(("file", "advice"), [(None, "--json FILE"), (Path("f.json"), "They are in f.json")])
def test_a_full_disk_behind_stdout_names_where_the_figures_are(
    file: Path | None, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk:
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stdout", FullDisk())
    monkeypatch.setattr("viaduct.benching.table.redirect_to_null", lambda stream: None)
    with pytest.raises(BadData, match=advice):
        print_record(make_record(), file)
