"""Tables on the page of a profile."""

from __future__ import annotations

from dataclasses import replace

from viaduct.reporting import Table, VirtualTable

from .page_parts import build_sections, find_parts
from .sample_profiles import large_profile, small_profile


def test_operators_are_a_table_with_the_longest_first():
    profile = large_profile(steps=30, operators=60)
    (table,) = find_parts(profile, "Operators", VirtualTable)
    times = next(column for column in table.columns if column.name == "time ms").values
    assert [times[row] for row in table.order] == sorted(times, reverse=True)
    assert table.download == "operators.csv"
    assert "rank" not in [column.name for column in table.columns]


def test_the_hosts_time_is_left_out_where_only_the_device_was_seen():
    operators = [replace(operator, total_us=0.0, self_us=0.0, device_us=5.0) for operator in small_profile().operators]
    (table,) = find_parts(replace(small_profile(), operators=operators), "Operators", Table)
    assert "time ms" in table.columns
    assert "host total ms" not in table.columns


def test_few_kernels_make_a_plain_table():
    (table,) = find_parts(small_profile(), "Kernels", Table)
    assert len(table.rows) == 7
    assert "The CPU has no kernels" in build_sections(small_profile())["Kernels"].text


def test_tables_of_a_reader_sort_as_numbers_and_keep_what_is_missing():
    (large,) = find_parts(large_profile(steps=30, operators=60), "Further tables", VirtualTable)
    step, computing, communication, *_ = large.columns
    assert step.values[:2] == [0.0, 1.0]
    assert (computing.decimals, computing.values[3]) == (2, 4.5)
    assert set(communication.values) == {None}


def test_a_table_with_ragged_rows_is_shown():
    table = {"columns": ["a", "b"], "rows": [["1"], ["2", "x", "left over"]]}
    (shown,) = find_parts(replace(small_profile(), tables={"odd.csv": table}), "Further tables", Table)
    assert [list(row) for row in shown.rows] == [[1.0, ""], [2.0, "x"]]
