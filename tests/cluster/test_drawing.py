"""Drawing of a rank table in the terminal: every rank is in it, at its position."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from cluster.rank_tables import table_1
from viaduct.cluster.drawing import draw_table, format_spans
from viaduct.cluster.ranktable import parse_table


def drawn(servers: int, devices: list[int], width: int = 160, terminal: bool = True) -> list[str]:
    console = Console(file=io.StringIO(), width=width, markup=False, force_terminal=terminal, color_system=None)
    draw_table(parse_table(json.dumps(table_1(servers, devices))), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_servers_are_drawn_side_by_side_with_all_their_ranks() -> None:
    lines = drawn(2, list(range(8)))
    assert lines[0] == "the rank table: template 1, 2 servers, 16 devices; rank 0 is on 10.0.0.10"
    assert "10.0.0.10 · node 0" in lines[1]
    assert "10.0.1.10 · node 1" in lines[1]
    ranks = [cell for line in lines[1:] for cell in line.split("│") if "rank " in cell]
    assert sorted(int(rank.split()[1]) for rank in ranks) == list(range(16))


def test_a_device_that_is_not_used_is_a_dot() -> None:
    lines = drawn(1, [4, 6])
    assert not any("device 0" in line for line in lines)
    row = next(line for line in lines[1:] if "rank 0" in line)
    assert [cell.strip() for cell in row.split("│")[2:-2]] == ["rank 0", "·", "rank 1", "·"]


def test_no_line_is_wider_than_the_terminal() -> None:
    for width in (60, 80, 130):
        assert max(map(len, drawn(4, list(range(8)), width))) <= width


@pytest.mark.parametrize("width", [60, 100_000])
def test_in_a_pipe_servers_are_drawn_one_below_the_other_with_all_their_addresses(width: int) -> None:
    lines = drawn(2, list(range(8)), width, terminal=False)
    assert [line.count("· node") for line in lines].count(1) == 2
    assert max(map(len, lines)) < 120
    assert "…" not in "".join(lines)


def test_many_servers_are_a_line_each() -> None:
    lines = drawn(32, list(range(8)))
    assert len(lines) == 1 + 1 + 32
    assert lines[-1].split()[:4] == ["31", "10.0.31.10", "248-255", "0-7"]


def test_numbers_in_a_row_are_a_span() -> None:
    assert format_spans([0, 1, 2, 3, 6]) == "0-3, 6"
    assert format_spans([5]) == "5"
